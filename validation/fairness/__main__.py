"""`python -m validation.fairness [--quick] [PART…]`: suites on modelled disks.

Prints a table and writes build/bench/fairness.json, the commit and the machine beside it. With
parts named, only their figures are replaced.
"""

import sys

from validation.bench import Bench

if __name__ == "__main__":
    sys.exit(
        Bench.of(
            "fairness", "validation.fairness", "none: simulated suites on modelled disks"
        ).main()
    )
