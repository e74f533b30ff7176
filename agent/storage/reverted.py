"""Drives that we reverted and have not blanked yet.

A revert leaves random bytes, which nobody could tell from someone's encrypted volume. What we began
is noted on the target, so that a crash in between does not leave a disk that we refuse ourselves.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from agent.files import write_json
from agent.journal import boot_id
from agent.plan import Disk
from agent.storage.facts import DiskFacts

PLACE = Path("/var/lib/fde-testbed/reverted.json")
_ZEROS = hashlib.sha256(bytes(2**20)).hexdigest()


def begin(disk: Disk, facts: DiskFacts, place: Path = PLACE) -> None:
    """Note that a drive of ours is about to be reverted."""
    _keep(place, disk, {"boot_id": boot_id(), "diskseq": facts.diskseq, "edges": None})


def done(disk: Disk, facts: DiskFacts, place: Path = PLACE) -> None:
    """Note what the revert left at the edges of the medium."""
    _keep(place, disk, {**_noted(place).get(disk.serial, {}), "edges": list(facts.edges)})


def forget(disk: Disk, place: Path = PLACE) -> None:
    """The disk is blank, or somebody else's."""
    if disk.serial in _noted(place):
        _keep(place, disk, None)


def left_by_us(disk: Disk, facts: DiskFacts, place: Path = PLACE) -> bool:
    """Whether the unknown data on a disk is what our revert left, as far as it was not blanked.

    Without a note of the edges, the disk must not have been away since: same start of the target,
    same appearance of the device.
    """
    note = _noted(place).get(disk.serial)
    if note is None or facts.serial != disk.serial or not facts.unknown:
        return False
    if facts.opal is None or facts.opal.locking_enabled:
        return False
    if note["edges"] is not None:
        pairs = zip(facts.edges, note["edges"], strict=True)
        return all(now in (then, _ZEROS) for now, then in pairs)
    return (note["boot_id"], note["diskseq"]) == (boot_id(), facts.diskseq)


def _noted(place: Path) -> dict[str, Any]:
    try:
        notes: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return notes


def _keep(place: Path, disk: Disk, note: dict[str, Any] | None) -> None:
    notes = {**_noted(place), disk.serial: note}
    place.parent.mkdir(parents=True, exist_ok=True)
    write_json(place, {serial: kept for serial, kept in notes.items() if kept is not None})
