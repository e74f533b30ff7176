"""Print a workload's parameters and missing requirements: `python3 -m workloads.describe NAME`.

`all` instead of a name lists every one. Assets are not checked, because the inventory names them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from contract.parameters import described as described_parameter
from workloads import registry
from workloads.base import Workload, WorkloadError


def described(workload: Workload) -> Iterator[str]:
    """Yield lines for people."""
    yield f"{workload.name}: {workload.summary}"
    yield f"  measures  {workload.program}"
    for parameter in workload.parameters:
        yield f"  {described_parameter(parameter)}"
    if workload.assets:
        yield f"  assets    {', '.join(workload.assets)}"
    for reason in workload.requires(registry.complete(workload.name, {}), {}):
        if reason not in workload.unnamed({}):
            yield f"  cannot run here: {reason}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one workload, or `all`; return the exit status."""
    names = sys.argv[1:] if arguments is None else list(arguments)
    if len(names) != 1:
        print("usage: python3 -m workloads.describe NAME|all", file=sys.stderr)
        return 2
    try:
        workloads = [registry.load(n) for n in (registry.names() if names == ["all"] else names)]
    except WorkloadError as error:
        print(f"fde: {error}", file=sys.stderr)
        return 1
    print("\n".join(line for workload in workloads for line in described(workload)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
