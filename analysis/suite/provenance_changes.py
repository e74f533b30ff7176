"""Report what changed on the target between the records of its provenance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.suite.documents import read_document
from analysis.suite.records import leaves

# What counts up, names a time, or is recorded once: all else is a setting, and is compared.
MAY_CHANGE = frozenset(
    {"boot_id", "error", "link_after", "link_before", "swaps", "used_percent", "wall"}
    | {"written_bytes"}
)
_MOST_NAMED = 5


def changes(folder: Path, problems: list[str]) -> Iterator[str]:
    """Yield a sentence for each record that differs from the one before it, naming what differs."""
    provenance = folder / "provenance"
    resumed = sorted(provenance.glob("before-resumed-*.json"), key=lambda p: (len(p.name), p.name))
    paths = [provenance / "before.json", *resumed, provenance / "after.json"]
    last: tuple[str, dict[str, str]] | None = None
    for path in paths:
        document = read_document(dict[str, Any], path, problems)
        if not document:
            continue
        current = {k: v for k, v in leaves(document) if k.rpartition(".")[2] not in MAY_CHANGE}
        if last is not None:
            before = last[1]
            differing = [
                f"{key} was {before.get(key, 'absent')}, then {current.get(key, 'absent')}"
                for key in sorted({*before, *current})
                if before.get(key) != current.get(key)
            ]
            if differing:
                rest = len(differing) - _MOST_NAMED
                more = f"; and {rest} more" * (rest > 0)
                yield (
                    f"The target changed between provenance/{last[0]} and {path.name}: "
                    f"{'; '.join(differing[:_MOST_NAMED])}{more}. Joules from before and after it "
                    "are of different configurations."
                )
        last = (path.name, current)
