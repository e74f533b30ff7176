"""Counters of a drive, in a file that others may read while it runs."""

from __future__ import annotations

import mmap
import os
import struct
import threading
from pathlib import Path

from .own_files import ForeignFileError, open_own

FIELDS = (
    "bytes_read",
    "bytes_written",
    "bytes_encrypted",
    "bytes_decrypted",
    "busy_ns",
    "reads",
    "writes",
    "service_ns",
)
CELLS = struct.Struct("<9Q")
_FILE_BYTES = CELLS.size
_MARK = int.from_bytes(b"fdedrive", "little")  # says that the file is one of these
_INDEX = {name: index for index, name in enumerate(FIELDS)}


class Stats:
    """Nine little-endian u64 in `path`, zeroed at start; eight only grow, the last is a mark.

    `busy_ns` is the time between a command's arrival and its answer being handed to the
    socket, summed over the queues: two queues that work at once count twice. `service_ns` is the
    time that a declared behaviour (`drive.behaviour`) had the medium work; 0 without one.
    Raises ForeignFileError for a file that is no drive's counters.
    """

    def __init__(self, path: Path) -> None:
        fd = open_own(path, "--stats")
        try:
            content = os.pread(fd, _FILE_BYTES + 1, 0)
            mark = int.from_bytes(content[-8:], "little")
            if content and (len(content) != _FILE_BYTES or mark != _MARK):
                raise ForeignFileError(
                    f"{path} does not hold a drive's counters; name another file with --stats"
                )
            os.pwrite(fd, bytes(_FILE_BYTES - 8) + _MARK.to_bytes(8, "little"), 0)
            self._map = mmap.mmap(fd, _FILE_BYTES)  # keeps the file locked
        finally:
            os.close(fd)
        self._cells = memoryview(self._map).cast("Q")
        self._lock = threading.Lock()

    def add(self, **amounts: int) -> None:
        """Add to several counters in a single step."""
        with self._lock:
            for name, amount in amounts.items():
                self._cells[_INDEX[name]] += amount

    def snapshot(self) -> dict[str, int]:
        """Return all counters by name."""
        with self._lock:
            return dict(zip(FIELDS, self._cells, strict=False))


def read(path: Path) -> dict[str, int]:
    """Read the counters of a running drive from its file."""
    return dict(zip(FIELDS, CELLS.unpack(path.read_bytes()), strict=False))
