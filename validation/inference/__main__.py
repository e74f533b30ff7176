"""`python -m validation.inference [--quick] [PART…]`: the analysis against known truth.

Prints a table and writes build/bench/analysis.json, the commit and the machine beside it. With
parts named, only their figures are replaced.
"""

import sys

from validation.bench import Bench

if __name__ == "__main__":
    sys.exit(
        Bench.of(
            "analysis", "validation.inference", "none: simulated suites on this machine"
        ).main()
    )
