"""The layout of a disk: our partition, and discards (TRIM) before and during each configuration.

Every configuration begins with the same state of the medium. A file system on a plain disk reports
free blocks to the disk, one on dm-crypt only if asked: on a disk that works faster with free
blocks, that would favour one of them.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agent.storage import devices, disk_records, guard, nvme, plaintext_probe, samples
from agent.storage.base import Place
from agent.storage.facts import (
    MARKER_NAME,
    MARKER_TYPE,
    DiskFacts,
    Partition,
    disk_uuid,
    partition_uuid,
    with_contents,
)
from agent.storage.plaintext_probe import locked_read
from agent.system.command import run
from contract import system_text
from contract.errors import AgentError
from contract.plan import DATA_OFFSET_BYTES, Disk, Extent
from contract.problem import Problem, wordings_of

# Outcomes of a discard; only `DISCARDED` was looked at, on a disk that promises zeros.
NOT_OFFERED, REFUSED, IGNORED = "not-offered", "refused", "ignored"
ASKED, DISCARDED, NOT_PLANNED = "asked", "discarded", "not-planned"
_LOOKS = 64


def discard_extent(place: Place) -> str:
    """Discard the data's extent of the disk, below every layer; return the outcome.

    The discard is forced, since only our own mapping has the partition open. If the
    disk refuses, every configuration uses it without one. Raises CommandError, OSError.
    """
    if not DiscardLimits.from_kernel(Path(place.partition).name).max_bytes:
        return NOT_OFFERED
    start, size = place.extent.offset_bytes, place.extent.size_bytes
    byte_range = ("--offset", str(start), "--length", str(size))
    argv = ["blkdiscard", "--force", *byte_range, place.partition]
    if run(argv, ok=(0, 1), progress=devices.progress(place.partition)).code:
        return REFUSED
    if not nvme.reads_zeros(devices.kernel_name(place.disk.by_id) or ""):
        return ASKED
    step = size // _LOOKS - size // _LOOKS % samples.BLOCK_BYTES
    with devices.opened(place.partition, os.O_RDONLY | os.O_DIRECT) as fd:
        looks = (devices.read(fd, start + n * step, samples.BLOCK_BYTES) for n in range(_LOOKS))
        return DISCARDED if not any(map(any, looks)) else IGNORED


def discarded_bytes(place: Place, outcome: str) -> int:
    """Return the bytes that were discarded, as far as known."""
    return place.extent.size_bytes if outcome in (ASKED, DISCARDED) else 0


@dataclass(frozen=True)
class DiscardLimits:
    """A device's limits in bytes, for a partition those of its disk; 0 without support."""

    granularity_bytes: int
    max_bytes: int

    @classmethod
    def from_kernel(cls, name: str) -> DiscardLimits:
        """Read the limits of a device by its kernel name."""
        files = (devices.queue(name) / f"discard_{file}" for file in ("granularity", "max_bytes"))
        return cls(*(int(system_text.read(file)) if file.exists() else 0 for file in files))


@dataclass(frozen=True)
class DiscardFindings:
    """The discards of each layer, by name; `mounted`: the file system discards unasked.

    `first_outcome` is that of the discard before the configuration was made.
    """

    layers: Mapping[str, DiscardLimits]
    mounted: bool
    first_bytes: int = 0
    first_outcome: str = NOT_PLANNED


def discard_findings(
    place: Place, mappings: Mapping[str, str], mount_options: str, first_outcome: str
) -> DiscardFindings:
    """Collect what each layer discards now, and what was discarded at first."""
    names = {Path(place.partition).name: Path(place.partition).name, **mappings}
    return DiscardFindings(
        {name: DiscardLimits.from_kernel(kernel) for name, kernel in names.items()},
        any(option.partition("=")[0] == "discard" for option in mount_options.split(",")),
        discarded_bytes(place, first_outcome),
        first_outcome,
    )


MIB = 2**20
START_BYTES = MIB
# The backup GPT takes 33 sectors at the end: one MiB is enough for every block size.
END_BYTES = MIB
_TRIES = 1024


class LayoutError(AgentError):
    """The disk cannot be laid out."""

    WORDINGS = wordings_of("agent/storage", "LayoutError")


def partition_bytes(extent: Extent) -> int:
    """Return the size of our partition."""
    return extent.offset_bytes + extent.size_bytes


def extent_refusal(disk: Disk, extent: Extent) -> Problem | None:
    """Return the reason why the extent does not fit on this disk; None if it does."""
    if extent.offset_bytes != DATA_OFFSET_BYTES:
        begin = {"found": extent.offset_bytes, "wanted": DATA_OFFSET_BYTES}
        return Problem.from_wording(guard.WORDINGS, "extent-begin", begin)
    if extent.size_bytes <= 0 or extent.size_bytes % MIB:
        size = {"found": extent.size_bytes, "multiple": MIB}
        return Problem.from_wording(guard.WORDINGS, "extent-size", size)
    needed = START_BYTES + partition_bytes(extent) + END_BYTES
    if needed > disk.size_bytes:
        sizes = {"role": disk.role, "size_bytes": disk.size_bytes, "needed": needed}
        return Problem.from_wording(guard.WORDINGS, "extent-large", sizes)
    return None


def unfit_for_opal(disk: Disk, facts: DiskFacts, extent: Extent) -> list[Problem]:
    """Return the reasons why no locking range can be made, as reported without a PIN."""
    discovery = facts.discovery
    reasons = []
    if discovery.encrypts is False:
        reasons.append(guard.refusal("opal-no-encryption", disk, facts))
    geometry, block = discovery.geometry, facts.block_bytes
    if geometry is None:
        return reasons
    if geometry.block_bytes != block:
        sizes = {"found": geometry.block_bytes, "wanted": block}
        return [*reasons, guard.refusal("opal-blocks", disk, facts, **sizes)]
    start, unit = START_BYTES + extent.offset_bytes, geometry.alignment_blocks
    if (start // block - geometry.lowest_lba) % unit or extent.size_bytes // block % unit:
        place = {"start_bytes": start, "length_bytes": extent.size_bytes}
        alignment = {"alignment_bytes": unit * block, "lowest_lba": geometry.lowest_lba}
        reasons.append(guard.refusal("opal-alignment", disk, facts, **place, **alignment))
    return reasons


def matches(partition: Partition, extent: Extent) -> bool:
    """Whether our partition has the place and size that this extent asks for."""
    return (partition.start_bytes, partition.size_bytes) == (START_BYTES, partition_bytes(extent))


def ready(disk: Disk, facts: DiskFacts, extent: Extent) -> bool:
    """Return whether the disk is laid out for this extent and holds nothing to be erased."""
    partition = facts.partition
    return (
        partition is not None
        and matches(partition, extent)
        and not guard.foreign_refusals(disk, facts)
    )


def script(disk: Disk, extent: Extent) -> str:
    """Return the input of sfdisk; the UUIDs bind the mark to the disk's serial number.

    Without the first block and the grain, sfdisk rounds start and size to the disk's optimal size
    of requests, which may be more than a MiB.
    """
    return (
        f"label: gpt\nlabel-id: {disk_uuid(disk.serial)}\nfirst-lba: 34\ngrain: 512\n"
        f"start={START_BYTES // MIB}MiB, size={partition_bytes(extent) // MIB}MiB, "
        f"type={MARKER_TYPE}, uuid={partition_uuid(disk.serial)}, "
        f'name="{MARKER_NAME}"\n'
    )


def write(disk: Disk, extent: Extent, approved: DiskFacts) -> None:
    """Blank the future partition, then write table and mark; `approved` is what was agreed to.

    Raises LayoutError, GuardError, CommandError.
    """
    with guard.holding(disk):
        facts = guard.check_still(disk, approved)
        _blank(disk, facts, extent if facts.partition is None else None)
        _try_medium(disk, facts, START_BYTES + partition_bytes(extent))
        # Contents between the edges were given up or are ours, and have no table any more.
        blanked = guard.check(replace(disk, erase=disk.serial))
        path = blanked.path or disk.by_id
        if not blanked.bare or blanked.diskseq != approved.diskseq:
            raise LayoutError("not-blank", role=disk.role, by_id=disk.by_id)
        argv = ["sfdisk", "--quiet", "--wipe", "always", "--wipe-partitions", "always", path]
        run(argv, stdin=script(disk, extent).encode())
    if devices.wait_for_partition(Path(path).name) is None:
        raise LayoutError("no-partition", path=path)


def _try_medium(disk: Disk, facts: DiskFacts, end: int) -> None:
    """Check that a blanked disk keeps what is written up to `end`.

    A drive with less capacity than it reports puts some of these blocks over others, or over the
    header's zeros. One block in each step of the header's length finds any such capacity, for up to
    `_TRIES` steps; on larger disks, only capacities that are powers of two. Raises LayoutError.
    """
    start = START_BYTES + DATA_OFFSET_BYTES
    last = end - samples.BLOCK_BYTES
    step = max(DATA_OFFSET_BYTES, -(-end // _TRIES // MIB) * MIB)
    places = {*range(last, start, -step), *(last % 2**n for n in range(24, last.bit_length()))}
    blocks = {at: plaintext_probe.content(f"{disk.serial}-{at}") for at in places if at >= start}
    try:
        with (
            devices.opened(facts.path or disk.by_id, os.O_RDWR | os.O_EXCL | os.O_DIRECT) as fd,
            mmap.mmap(-1, samples.BLOCK_BYTES) as buffer,  # page-aligned, as O_DIRECT wants it
        ):
            for at, block in blocks.items():
                buffer[:] = block
                os.pwrite(fd, buffer, at)
            os.fsync(fd)
            lost = [at for at in blocks if devices.read(fd, at, len(buffer)) != blocks[at]]
            header = devices.read(fd, START_BYTES, DATA_OFFSET_BYTES)
            lost += [START_BYTES] * bool(header.strip(b"\0"))
    except OSError as error:
        raise LayoutError("not-written", **_named(disk, facts), error=error.strerror) from error
    if lost:
        counts = {"lost": len(lost), "count": len(blocks) + 1, "at": min(lost)}
        raise LayoutError("not-kept", **_named(disk, facts), **counts)


def _named(disk: Disk, facts: DiskFacts) -> dict[str, str]:
    return {"role": disk.role, "by_id": disk.by_id, "path": facts.path or disk.by_id}


def clear(disk: Disk, approved: DiskFacts) -> None:
    """Remove our partition and table; the disk ends blank but for our runs' data."""
    with guard.holding(disk):
        _blank(disk, guard.check_still(disk, approved), None)


def blank_after_revert(disk: Disk, approved: DiskFacts) -> None:
    """Make a disk bare after a revert, which leaves random bytes in place of table and data.

    Its contents cannot be compared, but it must still be the same disk, unused. Raises AgentError,
    with a separate code if the drive does not answer before a power cycle.
    """
    path = approved.path or disk.by_id
    with guard.holding(disk):
        try:
            reread(path)
            _blank(disk, approved, None)
        except AgentError as failure:
            error = locked_read(path, 0)
            if error is None:
                raise
            raise LayoutError("dead", error=error, **_named(disk, approved)) from failure


def _blank(disk: Disk, facts: DiskFacts, tail_of: Extent | None) -> None:
    """Write zeros over tables, headers and foreign superblocks; note the rest as ours.

    In this order a disk of ours remains one until its table is erased. `tail_of`: also blank the
    end of the future partition, where earlier owners may have left something.
    """
    size = facts.size_bytes
    header = START_BYTES + DATA_OFFSET_BYTES
    extents = [(size - END_BYTES, END_BYTES), (START_BYTES, min(DATA_OFFSET_BYTES, size - header))]
    if tail_of is not None:
        extents.append((START_BYTES + partition_bytes(tail_of) - MIB, MIB))
    named = _named(disk, facts)
    before = with_contents(replace(facts, read_error=None))
    if before.read_error is not None:
        raise LayoutError("unreadable", error=before.read_error, **named)
    disk_records.record_contents(disk, before)
    try:
        devices.zero(named["path"], facts.diskseq, [*extents, (0, START_BYTES)])
    except OSError as error:
        raise LayoutError("not-written", error=error.strerror, **named) from error
    reread(named["path"])


def reread(path: str) -> None:
    """Make the kernel forget a disk's cached blocks and partitions; the disk is held."""
    run(["blockdev", "--flushbufs", "--rereadpt", path])


def place(disk: Disk, extent: Extent, partition: Partition) -> Place:
    """Return the place of this disk's configurations.

    Raises LayoutError if the layout is another one, or a program is using a header there.
    """
    if not matches(partition, extent):
        raise LayoutError("other-extent", role=disk.role, by_id=disk.by_id)
    if users := devices.wait_for_luks_lock(partition.path):
        raise LayoutError("luks-locked", path=partition.path, users=users)
    return Place(disk, partition.path, 1, extent)
