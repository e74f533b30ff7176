"""Records on the target of operations that this testbed began on a disk.

A revert leaves random bytes and a teardown the data of its runs, which look like someone's
encrypted volume; an interrupted ownership leaves no sign. The record identifies what is ours, as
long as no other program writes to the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agent.checks import smart
from agent.storage import samples
from agent.storage.opal_ioctl import LOCKED_OUT, NOT_AUTHORISED
from contract import schema
from contract.errors import AgentError
from contract.files import write_json
from contract.journal import boot_id
from contract.plan import Disk
from contract.strict_json import read_object

if TYPE_CHECKING:
    from agent.storage.facts import DiskFacts

PLACE = Path("/var/lib/fde-testbed/disks.json")


@dataclass(frozen=True)
class Record:
    """Operations that were begun on a disk.

    `edges` and `samples` are sums of the contents that we left; `edges` is None during a revert,
    which has begun in this boot at this `diskseq` and at a count of `written_bytes`, and False if
    nothing was left. `taking`: an ownership was begun.
    """

    edges: tuple[str, ...] | Literal[False] | None = False
    samples: tuple[str, ...] = ()
    boot_id: str = ""
    diskseq: int = 0
    written_bytes: int | None = None
    taking: bool = False


NOTHING = Record()


@contextmanager
def reverting(
    disk: Disk, facts: DiskFacts, was_done: Callable[[], bool], place: Path = PLACE
) -> Iterator[None]:
    """Record that the block reverts a drive of ours, whose contents are then unpredictable.

    If the block fails, the record stays unless no request was sent or the drive refused the PIN,
    and not `was_done`: a drive that did not answer, or has finished, may revert later.
    """
    earlier = _record(place, disk)
    written_bytes = _written(facts)
    reverted = Record(None, (), boot_id(), facts.diskseq, written_bytes)
    _change(place, disk, **vars(reverted))
    try:
        yield
    except AgentError as error:
        refused = error.facts.get("status", 0) in (0, NOT_AUTHORISED, LOCKED_OUT)
        if refused and error.code != "no-answer" and not was_done():
            _change(place, disk, **vars(earlier))
        raise


def reverted(disk: Disk, place: Path = PLACE) -> bool:
    """Return whether a drive was reverted and not yet cleaned up."""
    return _record(place, disk).edges is None


def _written(facts: DiskFacts) -> int | None:
    """Return the bytes ever written to a disk, by its own count; None if it keeps none."""
    life = smart.lifetime(Path(facts.path).name) if facts.path else None
    return life.written_bytes if life else None


def record_contents(disk: Disk, facts: DiskFacts, place: Path = PLACE) -> None:
    """Record that the present contents of the disk are ours, and may become blank."""
    _change(place, disk, edges=facts.edges, samples=facts.samples)


def begin_taking(disk: Disk, place: Path = PLACE) -> None:
    """Record that the drive is about to be given our PIN.

    The drive itself does not show the PIN until all steps are done.
    """
    _change(place, disk, taking=True)


def taking(disk: Disk, place: Path = PLACE) -> bool:
    """Return whether an ownership was begun and not ended."""
    return _record(place, disk).taking


def end_taking(disk: Disk, place: Path = PLACE) -> None:
    """Record that the ownership that was begun has ended."""
    _change(place, disk, taking=False)


def forget_contents(disk: Disk, place: Path = PLACE) -> None:
    """Drop the record of the contents: they are no longer what we left."""
    _change(place, disk, edges=False, samples=())


def forget(disk: Disk, place: Path = PLACE) -> None:
    """Drop the record of a disk that is laid out completely as ours, or that someone else owns."""
    _change(place, disk, **vars(NOTHING))


def left_by_us(disk: Disk, facts: DiskFacts, place: Path = PLACE) -> bool:
    """Return whether the unknown data on a disk is what we left, as far as it was not blanked.

    Without a note of the contents, as during a revert, the disk must not have been disconnected
    since (same start of the target, same appearance of the device), or its own count must show no
    writes since, as for one that was dead until a power cycle.
    """
    record = _record(place, disk)
    if record.edges is False or facts.serial != disk.serial or not facts.unknown:
        return False
    if facts.opal_error or facts.owned:
        return False
    if record.edges is None:
        if facts.opal is None or (facts.sid is not None and facts.sid.taken):
            return False
        same_appearance = (record.boot_id, record.diskseq) == (boot_id(), facts.diskseq)
        is_counted = record.written_bytes is not None  # a record of an earlier version has none
        return same_appearance or (is_counted and record.written_bytes == _written(facts))
    edges = zip(facts.edges, record.edges, strict=True)
    same_edges = all(edge == noted or edge in samples.BLANK_EDGES for edge, noted in edges)
    if not same_edges or len(facts.samples) != len(record.samples):
        return False
    between = zip(facts.samples, record.samples, strict=True)
    return all(current in ("", noted) for current, noted in between)


def _record(place: Path, disk: Disk) -> Record:
    try:
        return schema.read(Record, read_object(place)[disk.serial])
    except (KeyError, ValueError):
        return NOTHING


def _change(place: Path, disk: Disk, **changes: Any) -> None:
    """Write the record with these fields changed, without those that are as in `NOTHING`."""
    before = _record(place, disk)
    record = replace(before, **changes)
    if record == before:
        return
    records = {serial: item for serial, item in read_object(place).items() if item is not None}
    records.pop(disk.serial, None)
    if record != NOTHING:
        default = asdict(NOTHING)
        fields = asdict(record).items()
        records[disk.serial] = {key: value for key, value in fields if value != default[key]}
    place.parent.mkdir(parents=True, exist_ok=True)
    write_json(place, records)
