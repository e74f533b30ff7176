"""Where the lab keeps things, and whether there is room for them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from contract.errors import LabError

REPOSITORY = Path(__file__).resolve().parent.parent
GIB = 1 << 30


def cache_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """Directory of what is expensive to make and belongs to the machine, not to a checkout."""
    if environment.get("FDE_CACHE"):
        return Path(environment["FDE_CACHE"]).absolute()
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base).absolute() / "fde-testbed"


def require_room(
    directory: Path, needed_bytes: int, what: str, free_bytes: int | None = None
) -> None:
    """Raise LabError unless `needed_bytes` are free where `directory` stands or will stand."""
    if free_bytes is None:
        standing = next(p for p in (directory, *directory.parents) if p.exists())
        free_bytes = shutil.disk_usage(standing).free
    if free_bytes < needed_bytes:
        raise LabError(
            f"{what} needs {needed_bytes / GIB:.1f} GiB in {directory}, where "
            f"{free_bytes / GIB:.1f} GiB are free; make room there or choose another place "
            f"({'FDE_CACHE' if 'image' in what else '--dir'})"
        )
