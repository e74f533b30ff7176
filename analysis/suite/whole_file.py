"""A file that appears whole or not at all."""

from __future__ import annotations

from pathlib import Path


def replaced(path: Path, content: bytes) -> None:
    """Put `content` where `path` is. Raises OSError; then the file from before is as it was."""
    unfinished = path.with_name(f".{path.name}.part")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        error.filename = str(path)
        raise
