"""Byte tables (the MBR shadow, the DataStore): sparse files next to the drive's state."""

from __future__ import annotations

import os
from pathlib import Path

from ..own_files import ForeignFileError, open_own
from .uids import MethodError, Status

_MAX_PENDING_BYTES = 1 << 20


class ByteTable:
    """`size_bytes` bytes, zero until written. Within a transaction, writes wait for its end.

    Raises ForeignFileError for a file that cannot be this table.

    A write is one pwrite: a loss of power can tear it, as it can on a real medium.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.fd = open_own(path, "--state")
        if os.fstat(self.fd).st_size not in (0, size_bytes):
            os.close(self.fd)
            raise ForeignFileError(
                f"{path} is not a drive's table of {size_bytes} bytes; name another --state"
            )
        os.ftruncate(self.fd, size_bytes)
        self._pending: list[tuple[int, bytes]] | None = None

    def read(self, first: int, end: int) -> bytes:
        """Return bytes `first` (included) to `end`."""
        data = bytearray(os.pread(self.fd, end - first, first))
        for start, part in self._pending or ():
            low, high = max(first, start), min(end, start + len(part))
            if low < high:
                data[low - first : high - first] = part[low - start : high - start]
        return bytes(data)

    def write(self, first: int, data: bytes) -> None:
        """Store `data` at `first`; raises INSUFFICIENT_SPACE beyond the table or transaction."""
        if first + len(data) > self.size_bytes:
            raise MethodError(Status.INSUFFICIENT_SPACE)
        if self._pending is None:
            os.pwrite(self.fd, data, first)
            return
        if sum(len(part) for _, part in self._pending) + len(data) > _MAX_PENDING_BYTES:
            raise MethodError(Status.INSUFFICIENT_SPACE)
        self._pending.append((first, data))

    def clear(self) -> None:
        os.ftruncate(self.fd, 0)
        os.ftruncate(self.fd, self.size_bytes)

    def begin(self) -> None:
        """Hold writes back until `end`."""
        self._pending = []

    def end(self, commit: bool) -> None:
        """Store the writes held back, or drop them."""
        pending, self._pending = self._pending or [], None
        for first, data in pending if commit else ():
            os.pwrite(self.fd, data, first)
