"""JSON documents and lines as they were fetched; what cannot be read becomes a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from instrumentation import strict_json


def optional(path: Path, problems: list[str]) -> dict[str, Any]:
    """A JSON object; empty where there is none."""
    if not path.exists():
        return {}
    try:
        document = strict_json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        problems.append(f"{path.name} cannot be read.")
        return {}
    return document if isinstance(document, dict) else {"entries": document}


def lines(path: Path, problems: list[str]) -> Iterator[dict[str, Any]]:
    """JSON objects of a file of lines; a line that cannot be read is told and left out."""
    if not path.exists():
        return
    bad = 0
    with path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                line = strict_json.loads(text)
            except ValueError:
                bad += 1
                continue
            if isinstance(line, dict):
                yield line
    if bad:
        problems.append(f"{path.name} is cut short or damaged: {bad} line(s) cannot be read.")
