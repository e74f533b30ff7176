"""Read fetched JSON documents and lines; unreadable ones become sentences in `problems`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from contract import schema, strict_json

Shape = TypeVar("Shape")


def read_document(shape: type[Shape], path: Path, problems: list[str]) -> Shape | None:
    """Read a JSON document of a shape; None if it is missing or of another shape."""
    if not path.exists():
        return None
    try:
        return schema.read(shape, strict_json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        problems.append(f"{path.name} cannot be read ({error}).")
        return None


def read_lines(shape: type[Shape], path: Path, problems: list[str]) -> Iterator[Shape]:
    """Yield the JSON lines of a file; lines of another shape are skipped and reported."""
    if not path.exists():
        return
    bad = 0
    with path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                line = schema.read(shape, strict_json.loads(text))
            except ValueError:
                bad += 1
            else:
                yield line
    if bad:
        problems.append(f"{path.name} is cut short or damaged: {bad} line(s) cannot be read.")
