"""What a program left on a machine: two snapshots, compared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

Traces = Mapping[str, Sequence[str]]


def differences(before: Traces, after: Traces, *, allowed: str = r"(?!)") -> list[str]:
    """List what is new (`+`) and what is missing (`-`) as `+ kind: line`.

    A line that the expression `allowed` matches at its start may come or go.
    """

    def unequal() -> Iterator[str]:
        for kind, lines in after.items():
            new, old = set(lines), set(before[kind])
            for sign, some in (("+", new - old), ("-", old - new)):
                yield from (
                    f"{sign} {kind}: {line}" for line in sorted(some) if not re.match(allowed, line)
                )

    return list(unequal())
