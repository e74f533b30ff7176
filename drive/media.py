"""The disk's medium: a sparse file, bare or encrypted range by range.

What is written to the file survives the end of this process, so the disk reports no volatile write
cache. A crash of the host is not modelled.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import NamedTuple, Protocol

from . import aes_xts
from .aes_xts import AesXts
from .stats import Stats

_KEEP_SIZE_PUNCH_HOLE = 0x01 | 0x02
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class MediaError(Exception):
    """The backing file cannot be used; the message is one sentence for people."""


class AccessDeniedError(Exception):
    """The command touches a locked range."""


class Media(Protocol):
    """Blocks by address; AccessDeniedError means that nothing was done, OSError a fault."""

    fd: int
    bare: bool

    def read(self, lba: int, target: memoryview) -> None:
        """Fill `target` (whole blocks) from `lba` on."""

    def write(self, lba: int, data: memoryview) -> None:
        """Store whole blocks; `data` may be changed."""

    def write_zeroes(self, lba: int, blocks: int) -> None:
        """Make the blocks read as zeroes."""

    def deallocate(self, lba: int, blocks: int) -> None:
        """Free the blocks' storage; their content afterwards is undefined."""


def open_backing(path: Path, size_bytes: int) -> int:
    """Open or create the sparse file; an existing one must have `size_bytes`."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    actual_bytes = os.fstat(fd).st_size
    if actual_bytes == 0:
        os.ftruncate(fd, size_bytes)
    elif actual_bytes != size_bytes:
        os.close(fd)
        raise MediaError(
            f"{path} has {actual_bytes} bytes, not the {size_bytes} asked for; "
            "give its real size or another file"
        )
    return fd


def _read_fully(fd: int, target: memoryview, offset: int) -> None:
    read_bytes = 0
    while read_bytes < len(target):
        got = os.preadv(fd, [target[read_bytes:]], offset + read_bytes)
        if not got:
            raise OSError("the backing file is shorter than the disk")
        read_bytes += got


def _write_fully(fd: int, data: memoryview, offset: int) -> None:
    written_bytes = 0
    while written_bytes < len(data):
        written_bytes += os.pwrite(fd, data[written_bytes:], offset + written_bytes)


def _punch(fd: int, offset: int, length: int) -> None:
    if _LIBC.fallocate(fd, _KEEP_SIZE_PUNCH_HOLE, offset, length) != 0:
        raise OSError(ctypes.get_errno(), "the file system cannot punch holes")


class PlainMedia:
    """A medium without a cipher."""

    bare = True

    def __init__(self, fd: int, block_bytes: int) -> None:
        self.fd = fd
        self._block_bytes = block_bytes

    def read(self, lba: int, target: memoryview) -> None:
        _read_fully(self.fd, target, lba * self._block_bytes)

    def write(self, lba: int, data: memoryview) -> None:
        _write_fully(self.fd, data, lba * self._block_bytes)

    def write_zeroes(self, lba: int, blocks: int) -> None:
        _punch(self.fd, lba * self._block_bytes, blocks * self._block_bytes)

    deallocate = write_zeroes


class Segment(NamedTuple):
    """Blocks `start` (included) to `end` with one key and one lock state; no cipher when locked."""

    start: int
    end: int
    readable: bool
    writable: bool
    cipher: AesXts | None


class Shadow(NamedTuple):
    """A file that hosts see in place of the blocks before `end_lba`."""

    fd: int
    end_lba: int


class EncryptedMedia:
    """The file under AES-XTS. `segments` cover the whole disk in order of address.

    The tuple is replaced as a whole when a range is locked, unlocked or moved, so that a command
    sees one state from its check to its end. While there is a `shadow`, it is what hosts read in
    the place of the first blocks, whatever is locked there; they can neither change it nor read
    across its end (Opal, MBR shadowing).
    """

    bare = False

    def __init__(self, fd: int, block_bytes: int, stats: Stats) -> None:
        aes_xts.load()  # what it lacks is told at the start, not at the first unlocking
        self.fd = fd
        self.segments: tuple[Segment, ...] = ()
        self.shadow: Shadow | None = None
        self.lock_ignored = False
        self._block_bytes = block_bytes
        self._stats = stats

    def _parts(self, lba: int, blocks: int, write: bool) -> list[tuple[AesXts, int, int]]:
        """Return (cipher, first, end) of each segment touched.

        Raises AccessDeniedError if one is locked, or if the shadow covers one of the blocks.
        """
        parts = []
        end, shadow = lba + blocks, self.shadow
        if shadow is not None and lba < shadow.end_lba:
            raise AccessDeniedError
        for segment in self.segments:
            if segment.end <= lba or segment.start >= end:
                continue
            allowed = segment.writable if write else segment.readable
            if not allowed or segment.cipher is None:
                if self.lock_ignored and not write:
                    continue
                raise AccessDeniedError
            parts.append((segment.cipher, max(lba, segment.start), min(end, segment.end)))
        return parts

    def read(self, lba: int, target: memoryview) -> None:
        size, shadow = self._block_bytes, self.shadow
        if shadow is not None and lba + len(target) // size <= shadow.end_lba:
            _read_fully(shadow.fd, target, lba * size)
            return
        parts = self._parts(lba, len(target) // size, write=False)
        _read_fully(self.fd, target, lba * size)
        for cipher, first, end in parts:
            cipher.decrypt(first, target[(first - lba) * size : (end - lba) * size])
        self._stats.add(bytes_decrypted=len(target))

    def write(self, lba: int, data: memoryview) -> None:
        size = self._block_bytes
        for cipher, first, end in self._parts(lba, len(data) // size, write=True):
            cipher.encrypt(first, data[(first - lba) * size : (end - lba) * size])
        self._stats.add(bytes_encrypted=len(data))
        _write_fully(self.fd, data, lba * size)

    def write_zeroes(self, lba: int, blocks: int) -> None:
        step = max(1, (1 << 20) // self._block_bytes)
        self._parts(lba, blocks, write=True)
        for first in range(lba, lba + blocks, step):
            count = min(step, lba + blocks - first)
            self.write(first, memoryview(bytearray(count * self._block_bytes)))

    def deallocate(self, lba: int, blocks: int) -> None:
        self._parts(lba, blocks, write=True)
        self.discard(lba, blocks)

    def discard(self, lba: int, blocks: int) -> None:
        """Deallocate blocks whose key is gone, even if they are locked."""
        _punch(self.fd, lba * self._block_bytes, blocks * self._block_bytes)
