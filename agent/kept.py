"""What a workload's programs wrote of themselves, kept with the run and summed in its run.json."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from agent.pack import fetched_files

FOLDER = "kept"


def sums(run_folder: Path) -> dict[str, str]:
    """SHA-256 (hex) of each file below `kept`, by its path there. On the medium once this returns.

    Hidden files and links are none of it: they are not fetched either (agent/pack.py).
    """
    root = run_folder / FOLDER
    return {str(path.relative_to(root)): _sum(path) for path in fetched_files(root)}


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()
