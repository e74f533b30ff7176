"""What this testbed has begun with a disk, noted on the target.

A revert leaves random bytes and a teardown the data of its runs, which nobody could tell from
someone's encrypted volume; an ownership that was interrupted looks like none. The note says what of
it is ours, as long as nobody else writes to the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.checks import smart
from agent.storage import samples
from contract.errors import AgentError
from contract.files import write_json
from contract.journal import boot_id
from contract.plan import Disk
from contract.strict_json import read_object

if TYPE_CHECKING:
    from agent.storage.facts import DiskFacts

PLACE = Path("/var/lib/fde-testbed/disks.json")


@contextmanager
def reverting(
    disk: Disk, facts: DiskFacts, was_done: Callable[[], bool], place: Path = PLACE
) -> Iterator[None]:
    """Record that a drive of ours is reverted in here, for what that leaves is not known before.

    Where that fails, the note stays if the drive `was_done` with it all the same.
    """
    earlier = _noted(place, disk)
    here = {"boot_id": boot_id(), "diskseq": facts.diskseq, "written_bytes": _written(facts)}
    _keep(place, disk, {**here, "edges": None})
    try:
        yield
    except AgentError:
        if not was_done():
            _keep(place, disk, earlier or None)
        raise


def reverted(disk: Disk, place: Path = PLACE) -> bool:
    """Whether a drive was reverted, and not cleaned up after."""
    note = _noted(place, disk)
    return "edges" in note and note["edges"] is None


def _written(facts: DiskFacts) -> int | None:
    """Bytes that were ever written to a disk, by its own count; None where it keeps none."""
    life = smart.lifetime(Path(facts.path).name) if facts.path else None
    return life["written_bytes"] if life else None


def leave(disk: Disk, facts: DiskFacts, place: Path = PLACE) -> None:
    """Record that what lies on the disk now is ours, and may become blank."""
    _keep(
        place,
        disk,
        {**_noted(place, disk), "edges": list(facts.edges), "samples": list(facts.samples)},
    )


def begin_taking(disk: Disk, place: Path = PLACE) -> None:
    """Record that the drive is about to be given our PIN.

    It does not show the PIN until all of it is done.
    """
    _keep(place, disk, {**_noted(place, disk), "taking": True})


def taking(disk: Disk, place: Path = PLACE) -> bool:
    """Whether an ownership was begun and not ended."""
    return bool(_noted(place, disk).get("taking"))


def drop(disk: Disk, *keys: str, place: Path = PLACE) -> None:
    """Parts of a note that are no longer true."""
    noted = _noted(place, disk)
    if noted.keys() & keys:
        kept = {key: value for key, value in noted.items() if key not in keys}
        _keep(place, disk, kept or None)


def forget(disk: Disk, place: Path = PLACE) -> None:
    """Drop the note of a disk that is laid out as ours and whole, or somebody else's."""
    if _noted(place, disk):
        _keep(place, disk, None)


def left_by_us(disk: Disk, facts: DiskFacts, place: Path = PLACE) -> bool:
    """Whether the unknown data on a disk is what we left, as far as it was not blanked.

    Without a note of the contents, as in the middle of a revert, the disk must not have been away
    since (same start of the target, same appearance of the device), or must not have been written
    since by its own count, as one that was dead until a power cycle.
    """
    note = _noted(place, disk)
    if "edges" not in note or facts.serial != disk.serial or not facts.unknown:
        return False
    if facts.opal is not None and facts.opal.locking_enabled:
        return False
    if note["edges"] is None:
        if facts.opal is None or (facts.sid is not None and facts.sid.taken):
            return False
        here = (note["boot_id"], note["diskseq"]) == (boot_id(), facts.diskseq)
        written_bytes = note.get("written_bytes")  # a note of an earlier version has none
        return here or (written_bytes is not None and written_bytes == _written(facts))
    edges = zip(facts.edges, note["edges"], strict=True)
    same = all(now == then or now in samples.BLANK_EDGES for now, then in edges)
    return same and samples.same_or_blanked(facts.samples, note["samples"])


def _noted(place: Path, disk: Disk) -> dict[str, Any]:
    record = read_object(place).get(disk.serial)
    return record if isinstance(record, dict) else {}


def _keep(place: Path, disk: Disk, note: dict[str, Any] | None) -> None:
    notes = {**read_object(place), disk.serial: note}
    place.parent.mkdir(parents=True, exist_ok=True)
    write_json(place, {serial: kept for serial, kept in notes.items() if kept is not None})
