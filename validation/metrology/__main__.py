"""`python -m validation.metrology [--quick] [PART…]`: measure against known truth.

Prints a table and writes build/bench/metrology.json, the commit and the machine beside it, and the
plots. With parts named, only their figures are replaced.
"""

from __future__ import annotations

import sys

from validation.bench import Bench

PARTS = (
    "wraps",
    "faults",
    "alignment",
    "phases",
    "coverage",
    "replug",
    "cost",
    "stream",
    "throughput",
)
BENCH = Bench(
    "metrology", "validation.metrology", PARTS, subject="none: simulated meters on this machine"
)

if __name__ == "__main__":
    sys.exit(BENCH.main())
