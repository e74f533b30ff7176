"""The first readings of a suite, kept in its folder, for what must stay as it was then."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from contract.files import write_json
from contract.strict_json import read_object

NAME = "first-readings.json"


def reading(suite_dir: Path | None, key: str, now: Any) -> Any:
    """What the suite read first under this key; `now`, which is then kept, if it is the first."""
    if suite_dir is None:
        return now
    path = suite_dir / "provenance" / NAME
    kept = read_object(path)
    if key not in kept:
        with suppress(OSError):  # no room: the check of that waits for it, and says so
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, {**kept, key: now})
        return now
    return kept[key]
