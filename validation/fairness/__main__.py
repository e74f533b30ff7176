"""`python -m validation.fairness [--quick] [PART…]`: suites on modelled disks.

Every module of this package with a `measure(quick)` is a part. Prints a table and writes
build/bench/fairness.json, the commit and the machine beside it.
"""

from __future__ import annotations

import sys

from validation.bench import Bench, parts_of

SUBJECT = "none: simulated suites on modelled disks"

if __name__ == "__main__":
    sys.exit(
        Bench("fairness", "validation.fairness", parts_of("validation.fairness"), SUBJECT).main()
    )
