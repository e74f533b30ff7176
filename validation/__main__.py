"""`python -m validation BENCHMARK [--quick] [PART…]`: what we compute, against known truth.

Prints a table and writes build/bench/<name>.json, the commit and the machine beside it, and what
plots there are. With parts named, only their figures are replaced.
"""

import sys

from validation.bench import Bench

# The name of the file of figures, and what was measured, by package.
BENCHMARKS = {
    "metrology": ("metrology", "none: simulated meters on this machine"),
    "inference": ("analysis", "none: simulated suites on this machine"),
    "report": ("report", "none: synthetic suites and a browser on this machine"),
    "drive": ("drive", "none: drive and host on loopback"),
    "fairness": ("fairness", "none: simulated suites on modelled disks"),
}


def main(arguments: list[str]) -> int:
    """Run a benchmark; return 1 if a figure misses its target."""
    if not arguments or arguments[0] not in BENCHMARKS:
        print(f"usage: python -m validation {{{','.join(BENCHMARKS)}}} …", file=sys.stderr)
        return 2
    name, subject = BENCHMARKS[arguments[0]]
    return Bench.from_package(name, f"validation.{arguments[0]}", subject).main(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
