"""`python -m validation.metrology [--quick] [PART…]`: time and energy against known truth.

Prints a table and writes build/bench/metrology.json, the commit and the machine beside it, and the
plots. With parts named, only their figures are replaced.
"""

import sys

from validation.bench import Bench

if __name__ == "__main__":
    sys.exit(
        Bench.of(
            "metrology", "validation.metrology", "none: simulated meters on this machine"
        ).main()
    )
