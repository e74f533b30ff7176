"""Counters in a file that other processes map: what the drive did, for the power model."""

from __future__ import annotations

import mmap
import struct
import threading
from pathlib import Path

FIELDS = (
    "bytes_read",
    "bytes_written",
    "bytes_encrypted",
    "bytes_decrypted",
    "busy_ns",
    "reads",
    "writes",
)
_FILE_BYTES = 64
_INDEX = {name: index for index, name in enumerate(FIELDS)}


class Stats:
    """Eight little-endian u64 in `path`, zeroed at start; each only ever grows.

    `busy_ns` is the time between a command's arrival and its answer being handed to the
    socket, summed over the queues: two queues that work at once count twice.
    """

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_FILE_BYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _FILE_BYTES)
        self._cells = memoryview(self._map).cast("Q")
        self._lock = threading.Lock()

    def add(self, **amounts: int) -> None:
        """Adds to several counters in a single step."""
        with self._lock:
            for name, amount in amounts.items():
                self._cells[_INDEX[name]] += amount

    def snapshot(self) -> dict[str, int]:
        """All counters by name."""
        with self._lock:
            return dict(zip(FIELDS, self._cells, strict=False))


def read(path: Path) -> dict[str, int]:
    """The counters of a running drive, read from outside."""
    return dict(zip(FIELDS, struct.unpack("<8Q", path.read_bytes()), strict=False))
