"""Samples of a disk between its edges, at the usual places of headers and all over the disk.

Headers begin where partitions usually do, also without a table. Their places within a partition are
those of libblkid (util-linux 2.41, `libblkid/src/superblocks`), of LUKS2 (on-disk format 1.1) and
of btrfs, which has copies at 64 MiB and 256 GiB.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
from collections.abc import Iterable, Iterator

from agent.storage import devices
from agent.storage.devices import SECTOR_BYTES
from agent.system.command import run

MIB = 2**20
BLOCK_BYTES = 4096
# One place, drawn by the disk's serial number, in each of this many equal parts of the disk.
PARTS = 256
# Ends of the first partitions that installers make: ESP, MSR, /boot and swap of the usual sizes.
STARTS_MIB = (
    *range(1, 18),
    *(32, 33, 64, 65, 101, 117, 129, 201, 257, 261, 301, 487, 501, 513, 551, 601),
    *(1024, 1025, 1537, 2048, 2049, 4097, 8193),
)
# All that libblkid looks for near a start lies within the first; ZFS and UFS have more behind it.
_HEADERS = ((0, 68 * 1024), (128 * 1024, BLOCK_BYTES), (256 * 1024, BLOCK_BYTES))
# btrfs copies and ext's second superblock, of a disk without a table and of a first partition.
_COPIES = (64 * MIB, 128 * MIB, 256 * 2**30)
_NAMED = 8
_HEADER_BYTES = 8 * MIB
_MOST_HEADERS = 512
BLANK_EDGES = frozenset(hashlib.sha256(byte * MIB).hexdigest() for byte in (b"\0", b"\xff"))


def blank(data: bytes) -> bool:
    """Return whether data reads as a new or erased medium does: all zeros, or all ones."""
    return data[:1] in (b"", b"\0", b"\xff") and data.count(data[:1]) == len(data)


def places(size: int, seed: str) -> list[tuple[int, int]]:
    """Return (offset, length) in bytes of everything that is read of a disk, in order."""
    starts = [mib * MIB for mib in STARTS_MIB]
    ranges = {(start + offset, length) for start in starts for offset, length in _HEADERS}
    ranges |= {(copy + base, BLOCK_BYTES) for copy in _COPIES for base in (0, MIB)}
    draw = random.Random(seed)
    part = size // PARTS
    for number in range(PARTS):
        offset = number * part + draw.randrange(max(part, 1))
        ranges.add((offset - offset % BLOCK_BYTES, BLOCK_BYTES))
    return sorted((offset, length) for offset, length in ranges if offset + length <= size)


def take(path: str, size: int, seed: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Read all places of a disk past the page cache; raises OSError.

    Returns the sum of each place in turn, empty where it is blank, and the offsets of the others.
    """
    spans = places(size, seed)
    with devices.opened(path, os.O_RDONLY | os.O_DIRECT) as fd:
        data = [devices.read(fd, offset, length) for offset, length in spans]
    sums = tuple("" if blank(d) else hashlib.blake2b(d, digest_size=8).hexdigest() for d in data)
    occupied = (offset for (offset, _), value in zip(spans, sums, strict=True) if value)
    return sums, tuple(occupied)


def without_table(offsets: Iterable[int]) -> list[int]:
    """Return those of the offsets at which partitions usually begin."""
    return [offset for offset in offsets if offset in {mib * MIB for mib in STARTS_MIB}]


def headers(path: str, size: int, volumes: Iterable[tuple[int, int]]) -> tuple[str, ...]:
    """Return sums of the disk's first 8 MiB and last MiB, of its volumes, and of those inside.

    `volumes`: (offset, length) in bytes, with length 0 if unknown. File systems, volume groups and
    arrays note their use there (times, counts, generations, free blocks), so that a file stored
    anywhere in them changes a sum. Raises OSError.
    """
    waiting = sorted({(0, size), *volumes})
    sums: dict[int, str] = {}
    with devices.opened(path, os.O_RDONLY | os.O_DIRECT) as fd:

        def read(offset: int, length: int) -> bytes:
            begin = offset - offset % BLOCK_BYTES
            end = min(offset + length, size) // BLOCK_BYTES * BLOCK_BYTES
            data = devices.read(fd, begin, end - begin) if end > begin else b""
            sums[begin] = "" if blank(data) else hashlib.blake2b(data, digest_size=8).hexdigest()
            return data[offset - begin :]

        while waiting and len(sums) < _MOST_HEADERS:
            start, length = waiting.pop(0)
            first = read(start, _HEADER_BYTES)
            if length > _HEADER_BYTES:
                read(start + length - MIB, MIB)
            inside = {start + offset for offset in _inside(first)}
            waiting += [(o, 0) for o in sorted(inside) if o - o % BLOCK_BYTES not in sums]
    return tuple(f"{offset} {value}" for offset, value in sorted(sums.items()))


def _inside(data: bytes) -> Iterator[int]:
    """Yield where a volume that begins with `data` keeps others, or what changes with its files.

    LUKS: its payload (on-disk formats 1.2.3 and 2 of 1.1.2). LVM2: all its logical volumes, those
    of older versions of its metadata too. MD: the data behind a superblock 1.1 or 1.2. NTFS: the
    master file table. exFAT: the map of its clusters.
    """
    if data.startswith(b"LUKS\xba\xbe\0\1"):
        yield SECTOR_BYTES * int.from_bytes(data[104:108])
    elif data.startswith(b"LUKS\xba\xbe\0\2"):
        text = data[4096 : int.from_bytes(data[8:16])].split(b"\0")[0]
        yield from map(int, re.findall(rb'"offset":"(\d{1,18})","size":"(?:dynamic|\d+)"', text))
    elif b"LABELONE" in data[: 4 * SECTOR_BYTES]:
        starts = {int(n) for n in re.findall(rb"pe_start = (\d{1,12})\n", data)}
        sizes = {int(n) for n in re.findall(rb"extent_size = (\d{1,12})\n", data)}
        extents = {int(n) for n in re.findall(rb'"pv\d+", (\d{1,12})\n', data)}
        yield from (SECTOR_BYTES * (s + n * e) for s in starts for n in sizes for e in extents)
    elif data[3:11] == b"NTFS    ":
        per_cluster = data[13] if data[13] <= 128 else 1 << (256 - data[13])
        yield _little(data, 11, 2) * per_cluster * _little(data, 48, 8)
    elif data[3:11] == b"EXFAT   ":
        yield _little(data, 88, 4) << (data[108] & 15)
    for at in (0, 4096):
        if data[at : at + 8] == b"\xfc\x4e\x2b\xa9\1\0\0\0":
            yield SECTOR_BYTES * _little(data, at + 128, 8)


def _little(data: bytes, offset: int, length: int) -> int:
    return int.from_bytes(data[offset : offset + length], "little")


def find_types(path: str, offsets: Iterable[int]) -> list[tuple[str, int]]:
    """Return (type, offset in bytes) of what libblkid knows at the usual starts with data."""
    names = []
    for start in without_table(offsets)[:_NAMED]:
        argv = ["blkid", "--probe", "--offset", str(start), "--output", "export", path]
        probed = run(argv, ok=(0, 2, 8))
        fields = dict(line.split("=", 1) for line in probed.out.splitlines() if "=" in line)
        if kind := fields.get("TYPE") or fields.get("PTTYPE"):
            names.append((kind, start))
    return names
