"""`make bench-first-use`: figures to build/bench/first-use.json."""

from __future__ import annotations

import sys

from validation.bench import Bench

BENCH = Bench.from_package(
    "first-use", "validation.first_use", "first use, on a guest as a foreign machine"
)

if __name__ == "__main__":
    sys.exit(BENCH.main())
