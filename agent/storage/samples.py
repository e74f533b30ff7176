"""Is anything between a disk's edges? Read where formats have their headers, and all over the disk.

Headers begin where partitions usually do, also where no table is left to tell. Their places within
a partition are those of libblkid (util-linux 2.41, `libblkid/src/superblocks`), of LUKS2 (on-disk
format 1.1) and of btrfs, whose copies stand at 64 MiB and 256 GiB.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.command import run
from agent.storage import devices

MIB = 2**20
BLOCK_BYTES = 4096
# One place, drawn by the disk's serial number, in each of so many equal parts of the disk.
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
BLANK_EDGES = frozenset(hashlib.sha256(byte * MIB).hexdigest() for byte in (b"\0", b"\xff"))


@dataclass(frozen=True)
class Samples:
    """`sums`: of each place in turn, empty where it is blank; `found`: the others' offsets."""

    sums: tuple[str, ...]
    found: tuple[int, ...]


def blank(data: bytes) -> bool:
    """Whether it is as a new or an erased medium reads: all zeros, or all ones."""
    return data[:1] in (b"", b"\0", b"\xff") and data.count(data[:1]) == len(data)


def places(size: int, seed: str) -> list[tuple[int, int]]:
    """(offset, length) in bytes of all that is read of a disk of `size` bytes, in order."""
    starts = [mib * MIB for mib in STARTS_MIB]
    found = {(start + offset, length) for start in starts for offset, length in _HEADERS}
    found |= {(copy + base, BLOCK_BYTES) for copy in _COPIES for base in (0, MIB)}
    draw = random.Random(seed)
    part = size // PARTS
    for number in range(PARTS):
        offset = number * part + draw.randrange(max(part, 1))
        found.add((offset - offset % BLOCK_BYTES, BLOCK_BYTES))
    return sorted((offset, length) for offset, length in found if offset + length <= size)


def take(path: str, size: int, seed: str) -> Samples:
    """Read all places of a disk past the page cache; raises OSError."""
    wanted = places(size, seed)
    with devices.opened(path, os.O_RDONLY | os.O_DIRECT) as fd:
        data = [devices.read(fd, offset, length) for offset, length in wanted]
    sums = tuple("" if blank(d) else hashlib.blake2b(d, digest_size=8).hexdigest() for d in data)
    found = (offset for (offset, _), value in zip(wanted, sums, strict=True) if value)
    return Samples(sums, tuple(found))


def same_or_blanked(now: Sequence[str], then: Sequence[str]) -> bool:
    """Whether sums differ from earlier ones only where the disk has become blank."""
    return len(now) == len(then) and all(a in ("", b) for a, b in zip(now, then, strict=True))


def named(path: str, found: Iterable[int]) -> list[tuple[str, int]]:
    """(type, offset in bytes) of what libblkid knows at the usual starts where something lies."""
    starts = [offset for offset in found if offset in {mib * MIB for mib in STARTS_MIB}]
    names = []
    for start in starts[:_NAMED]:
        said = run(
            ["blkid", "--probe", "--offset", str(start), "--output", "export", path], ok=(0, 2, 8)
        )
        fields = dict(line.split("=", 1) for line in said.out.splitlines() if "=" in line)
        if kind := fields.get("TYPE") or fields.get("PTTYPE"):
            names.append((kind, start))
    return names
