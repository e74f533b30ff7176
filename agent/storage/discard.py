"""Discard (TRIM): the same state of the medium for every configuration, and what each layer does.

A file system on a plain disk tells the disk what is free, one on dm-crypt does not unless asked: a
disk that works faster where much is free would favour the one or the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.command import run
from agent.storage.base import Place
from agent.storage.devices import BLOCK


def extent(place: Place) -> int:
    """Discard the data's extent of the disk, below every layer; its bytes, 0 where it cannot.

    Who has the partition open is not asked: it is our own mapping. Raises CommandError.
    """
    if not _limits(Path(place.partition).name)["max_bytes"]:
        return 0
    where = ("--offset", str(place.extent.offset_bytes), "--length", str(place.extent.size_bytes))
    run(["blkdiscard", "--force", *where, place.partition])
    return place.extent.size_bytes


def findings(place: Place, mappings: dict[str, str], mount_options: str) -> dict[str, Any]:
    """What each layer passes on, by its name, and whether the file system discards by itself."""
    names = {Path(place.partition).name: Path(place.partition).name, **mappings}
    return {
        "layers": {name: _limits(kernel) for name, kernel in names.items()},
        "mounted": "discard" in mount_options.split(","),
    }


def _limits(name: str) -> dict[str, int]:
    """A device's limits in bytes, a partition's are those of its disk; 0 where there are none."""
    device = (BLOCK / name).resolve()
    queue = (device if (device / "queue").exists() else device.parent) / "queue"
    files = {"granularity_bytes": "discard_granularity", "max_bytes": "discard_max_bytes"}
    there = {key: queue / file for key, file in files.items()}
    return {key: int(file.read_text()) if file.exists() else 0 for key, file in there.items()}
