"""`python -m lab.inference [--quick] [PART…]`: the analysis against known truth; all by default.

Every module of this package with a `measure(quick)` is a part. Prints a table and writes
build/bench/analysis.json, the commit and the machine beside it. With parts named, only their
figures are replaced.
"""

from __future__ import annotations

import sys

from lab.bench import Bench, parts_of

SUBJECT = "none: simulated suites on this machine"

if __name__ == "__main__":
    sys.exit(Bench("analysis", "lab.inference", parts_of("lab.inference"), SUBJECT).main())
