"""`python -m validation.inference [--quick] [PART…]`: the analysis against known truth.

Every module of this package with a `measure(quick)` is a part. Prints a table and writes
build/bench/analysis.json, the commit and the machine beside it. With parts named, only their
figures are replaced.
"""

from __future__ import annotations

import sys

from validation.bench import Bench, parts_of

SUBJECT = "none: simulated suites on this machine"

if __name__ == "__main__":
    sys.exit(
        Bench("analysis", "validation.inference", parts_of("validation.inference"), SUBJECT).main()
    )
