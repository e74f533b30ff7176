"""The first readings of a suite, kept in its folder, for what must stay as it was then."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from contract.files import write_json

NAME = "first-readings.json"


def reading(suite_dir: Path | None, key: str, now: Any) -> Any:
    """What the suite read first under this key; `now`, which is then kept, if it is the first."""
    if suite_dir is None:
        return now
    path = suite_dir / "provenance" / NAME
    kept = _kept(path)
    if key not in kept:
        with suppress(OSError):  # no room: the check of that waits for it, and says so
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, {**kept, key: now})
        return now
    return kept[key]


def _kept(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
