"""The layout of a test disk: GPT with one marked partition at 1 MiB, header area, then the data."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from agent.command import run
from agent.errors import AgentError
from agent.plan import DATA_OFFSET_BYTES, Disk, Extent
from agent.storage import devices
from agent.storage.base import Place
from agent.storage.guard import MARKER_NAME, MARKER_TYPE, DiskFacts, Partition

MIB = 2**20
START_BYTES = MIB
# The backup GPT takes 33 sectors at the end: one MiB is enough for every block size.
END_BYTES = MIB


class LayoutError(AgentError):
    """The disk cannot be laid out."""


def partition_bytes(extent: Extent) -> int:
    """Size of our partition."""
    return extent.offset_bytes + extent.size_bytes


def fits(disk: Disk, extent: Extent) -> str | None:
    """Why the extent cannot lie on this disk; None if it can."""
    if extent.offset_bytes != DATA_OFFSET_BYTES:
        return f"The data must begin {DATA_OFFSET_BYTES} bytes into the partition."
    if extent.size_bytes <= 0 or extent.size_bytes % MIB:
        return f"extent_bytes is {extent.size_bytes}: make it a positive multiple of {MIB}."
    need = START_BYTES + partition_bytes(extent) + END_BYTES
    if need > disk.size_bytes:
        return (
            f"Disk {disk.role} has {disk.size_bytes} bytes, the extent needs {need}: "
            "choose a smaller extent_bytes."
        )
    return None


def matches(partition: Partition, extent: Extent) -> bool:
    """Whether our partition has the place and size that this extent asks for."""
    return (partition.start_bytes, partition.size_bytes) == (START_BYTES, partition_bytes(extent))


def script(extent: Extent) -> str:
    """What sfdisk is told."""
    return (
        "label: gpt\n"
        f"start={START_BYTES // MIB}MiB, size={partition_bytes(extent) // MIB}MiB, "
        f'type={MARKER_TYPE}, name="{MARKER_NAME}"\n'
    )


def write(disk: Disk, extent: Extent, check: Callable[[Disk], DiskFacts]) -> None:
    """Write table and marker and clear the header area; `check` is the guard, asked right before.

    Raises LayoutError, GuardError, CommandError.
    """
    path = check(disk).path
    if path is None:
        raise LayoutError(f"There is no block device at {disk.by_id}.")
    run(["sfdisk", "--quiet", "--wipe", "always", path], stdin=script(extent).encode())
    name = devices.wait_for_partition(Path(path).name)
    if name is None:
        raise LayoutError(
            f"The kernel does not show the new partition of {path}: "
            "reload its table (blockdev --rereadpt) and provision again."
        )
    clear_header(f"/dev/{name}", extent)


def clear_header(partition: str, extent: Extent) -> None:
    """Zeros over the header area: what an earlier owner left there must not be taken for ours."""
    with Path(partition).open("r+b", buffering=0) as file:
        left = extent.offset_bytes
        while left:
            left -= file.write(bytes(min(MIB, left)))
        os.fsync(file.fileno())


def clear(disk: Disk, check: Callable[[Disk], DiskFacts]) -> None:
    """Take our partition and table away again."""
    facts = check(disk)
    if facts.path and facts.partition:
        clear_header(facts.partition.path, Extent(DATA_OFFSET_BYTES, 0))
        check(disk)
        run(["wipefs", "--quiet", "--all", facts.path])
        reread(facts.path)


def reread(path: str) -> None:
    """Make the kernel forget what it remembers of the disk's blocks and partitions."""
    run(["blockdev", "--flushbufs", "--rereadpt", path])


def place(disk: Disk, extent: Extent, partition: Partition) -> Place:
    """Where configurations of this disk live; raises LayoutError if the layout is another one."""
    if not matches(partition, extent):
        raise LayoutError(
            f"The partition of disk {disk.role} ({disk.by_id}) is not as large as the plan's "
            "extent: provision the target again."
        )
    return Place(disk, partition.path, 1, extent)
