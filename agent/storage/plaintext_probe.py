"""Look for a known block of a file on the raw medium, to see whether it is plaintext there."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from agent.marks import written_bytes
from agent.storage.devices import BLOCK, SECTOR_BYTES, opened
from contract import system_text
from contract.errors import AgentError
from contract.problem import wordings_of

BLOCK_BYTES = 4096
LARGE_BYTES = 4 * 2**20
DROP_CACHES = Path("/proc/sys/vm/drop_caches")
# How far in front of the extent a product may keep its headers.
BEFORE_BYTES = 8 * 2**20
_NEEDLE_BYTES = 512  # no layer parts less than a sector
_PIECE_BYTES = 2**20
_FIEMAP = 0xC020660B  # FS_IOC_FIEMAP, linux/fs.h
_FIEMAP_HEAD = struct.Struct("<QQIIII")  # start, length, flags, mapped, extent count, reserved
_FIEMAP_EXTENT = struct.Struct("<QQQQQIIII")  # logical, physical, length, 2 reserved, flags, 3 res.
_FIEMAP_SYNC = 1
# Extents whose address is unknown, not yet allocated, encoded, inline, packed or unwritten.
_FIEMAP_NO_ADDRESS = 0x2 | 0x4 | 0x8 | 0x200 | 0x400 | 0x800


class ProbeError(AgentError):
    """The plaintext probe could not be placed or looked for."""

    WORDINGS = wordings_of("agent/storage", "ProbeError")


@dataclass(frozen=True)
class Probe:
    """The observations of the probe, or the `error` that prevented them.

    `offset_bytes` is where the search begins within the partition; `through_mapping` whether the
    mapping shows it there (it must, else the place is wrong); `on_medium` whether the raw partition
    does; `written_bytes` and `read_bytes` by the partition's counters while its `size_bytes` were
    written and, if `searched_bytes` is not 0, read again past all caches.
    """

    sha256: str = ""
    offset_bytes: int = 0
    through_mapping: bool = False
    on_medium: bool = False
    written_bytes: int = 0
    error: str | None = None
    size_bytes: int = BLOCK_BYTES
    read_bytes: int = 0
    searched_bytes: int = 0


def content(key: str, size_bytes: int = BLOCK_BYTES) -> bytes:
    """Return bytes that look random and can be made again from the run's id."""
    return hashlib.shake_256(f"fde-probe:{key}".encode()).digest(size_bytes)


def look(
    folder: Path, key: str, mapping: str, partition: str, offset_bytes: int, *, room_bytes: int = 0
) -> Probe:
    """Write the probe, find its physical place, read it there past the page cache, remove it.

    If a layer puts other data between the data, the raw place is up to `room_bytes` behind the one
    that the file system knows, and all of that is searched. Raises ProbeError.
    """
    block = content(key)
    with _placed(folder / f"plaintext-probe-{key}", block, partition) as (place, before_bytes):
        return Probe(
            hashlib.sha256(block).hexdigest(),
            offset_bytes + place,
            through_mapping=read_direct(mapping, place) == block,
            on_medium=contains(partition, offset_bytes + place, room_bytes, block),
            written_bytes=written_bytes(Path(partition)) - before_bytes,
        )


@contextmanager
def _placed(path: Path, block: bytes, partition: str) -> Iterator[tuple[int, int]]:
    """Write a file that is removed at the end of the block; raises ProbeError.

    Yields its physical place, and the bytes that were written to the partition before.
    """
    try:
        before_bytes = written_bytes(Path(partition))
        with path.open("wb") as file:
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
            place = physical(file.fileno())
        yield place, before_bytes
    except OSError as error:
        raise ProbeError("failed", error=error.strerror) from error
    finally:
        # A file system that failed has gone read-only: what it said first is what counts.
        with suppress(OSError):
            path.unlink(missing_ok=True)


def look_everywhere(folder: Path, key: str, mapping: str, partition: str, size_bytes: int) -> Probe:
    """Look for the probe of an unknown mapping in the whole partition.

    More is written than only a file system would write, and it is read again after all caches of
    the kernel were dropped. A `size_bytes` of 0 skips the search. Raises ProbeError.
    """
    block, path = content(key, LARGE_BYTES), folder / f"plaintext-probe-{key}"
    os.sync()
    with _placed(path, block, partition) as (place, before_bytes):
        moved_bytes = written_bytes(Path(partition)) - before_bytes
        DROP_CACHES.write_text("3\n")
        read = _read_bytes(partition)
        is_same = read_direct(str(path), 0, LARGE_BYTES) == block
        return Probe(
            hashlib.sha256(block).hexdigest(),
            through_mapping=is_same and read_direct(mapping, place) == block[:BLOCK_BYTES],
            written_bytes=moved_bytes,
            size_bytes=LARGE_BYTES,
            read_bytes=_read_bytes(partition) - read,
            on_medium=bool(size_bytes) and contains(partition, 0, size_bytes - BLOCK_BYTES, block),
            searched_bytes=size_bytes,
        )


def _read_bytes(partition: str) -> int:
    """Return the bytes read by the kernel's count (Documentation/block/stat.rst)."""
    return SECTOR_BYTES * int(system_text.read(BLOCK / Path(partition).name / "stat").split()[2])


def contains(device: str, offset_bytes: int, room_bytes: int, block: bytes) -> bool:
    """Return whether a sector of the block begins there or up to `room_bytes` behind.

    It is read directly. A file system's blocks may be smaller than the disk's. Raises OSError.
    """
    needle, end = block[:_NEEDLE_BYTES], offset_bytes + room_bytes + BLOCK_BYTES
    last = b""
    with opened(device, os.O_RDONLY | os.O_DIRECT) as fd:
        for place in range(offset_bytes - offset_bytes % BLOCK_BYTES, end, _PIECE_BYTES):
            length_bytes = min(_PIECE_BYTES, -(-(end - place) // BLOCK_BYTES) * BLOCK_BYTES)
            read = _read(fd, place, length_bytes)
            if needle in last + read:
                return True
            last = read[1 - _NEEDLE_BYTES :]
    return False


def read_direct(device: str, offset_bytes: int, length_bytes: int = BLOCK_BYTES) -> bytes:
    """Return a block or more, read with O_DIRECT; raises OSError as the kernel gives it."""
    with opened(device, os.O_RDONLY | os.O_DIRECT) as fd:
        return _read(fd, offset_bytes, length_bytes)


def _read(fd: int, offset_bytes: int, length_bytes: int) -> bytes:
    with mmap.mmap(-1, length_bytes) as buffer:  # page-aligned, as O_DIRECT wants it
        read = os.preadv(fd, [buffer], offset_bytes)
        return buffer[:read]


def locked_read(device: str, offset_bytes: int) -> str | None:
    """Return the error's name if a direct read there is refused; None if it can be read."""
    try:
        read_direct(device, offset_bytes)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error.errno))
    return None


def physical(fd: int) -> int:
    """Return the byte address of the file's only block on its file system's device."""
    head = _FIEMAP_HEAD.pack(0, BLOCK_BYTES, _FIEMAP_SYNC, 0, 1, 0)
    buffer = bytearray(head + bytes(_FIEMAP_EXTENT.size))
    fcntl.ioctl(fd, _FIEMAP, buffer, True)
    mapped = _FIEMAP_HEAD.unpack_from(buffer)[3]
    _, place, length, _, _, flags, *_ = _FIEMAP_EXTENT.unpack_from(buffer, _FIEMAP_HEAD.size)
    if mapped != 1 or length < BLOCK_BYTES or flags & _FIEMAP_NO_ADDRESS:
        raise ProbeError("no-address")
    return int(place)
