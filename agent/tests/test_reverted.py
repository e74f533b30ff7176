"""What our own revert left may be blanked; anything else that nobody knows may not."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from agent.plan import Disk
from agent.storage import reverted
from agent.storage.facts import DiskFacts
from agent.storage.opal_ioctl import Status

DISK = Disk("sed", "/dev/disk/by-id/nvme-x", "S1", 2**31)
FACTORY = Status(
    supported=True,
    locking_supported=True,
    locking_enabled=False,
    locked=False,
    mbr_enabled=False,
    mbr_done=False,
)
LEFT = DiskFacts(
    path="/dev/nvme1n1",
    whole_disk=True,
    serial="S1",
    size_bytes=2**31,
    diskseq=7,
    edges=("a" * 64, "b" * 64),
    unknown=True,
    opal=FACTORY,
)
ZEROS = hashlib.sha256(bytes(2**20)).hexdigest()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "var" / "reverted.json"


def test_without_a_note_it_is_somebody_elses(place: Path) -> None:
    assert not reverted.left_by_us(DISK, LEFT, place)
    place.parent.mkdir()
    place.write_text("{torn")
    assert not reverted.left_by_us(DISK, LEFT, place)


def test_what_the_revert_left_is_known_also_half_blanked_and_after_a_restart(place: Path) -> None:
    reverted.begin(DISK, LEFT, place)
    reverted.done(DISK, LEFT, place)
    elsewhere = replace(LEFT, diskseq=99)
    assert reverted.left_by_us(DISK, elsewhere, place)
    assert reverted.left_by_us(DISK, replace(elsewhere, edges=("a" * 64, ZEROS)), place)
    for other in (("c" * 64, "b" * 64), ("a" * 64, "c" * 64)):
        assert not reverted.left_by_us(DISK, replace(LEFT, edges=other), place)


def test_a_crash_in_the_revert_itself_is_known_while_the_disk_was_not_away(place: Path) -> None:
    reverted.begin(DISK, LEFT, place)
    assert reverted.left_by_us(DISK, replace(LEFT, edges=("c" * 64, "d" * 64)), place)
    assert not reverted.left_by_us(DISK, replace(LEFT, diskseq=8), place)
    text = place.read_text()
    place.write_text(text.replace('"boot_id": "', '"boot_id": "another-'))
    assert place.read_text() != text
    assert not reverted.left_by_us(DISK, LEFT, place)


@pytest.mark.parametrize(
    "facts",
    [
        replace(LEFT, serial="S2"),
        replace(LEFT, unknown=False),
        replace(LEFT, opal=None),
        replace(LEFT, opal=replace(FACTORY, locking_enabled=True)),
    ],
    ids=["another disk", "something known", "no Opal", "owned again"],
)
def test_another_state_is_not_what_we_left(place: Path, facts: DiskFacts) -> None:
    reverted.begin(DISK, LEFT, place)
    reverted.done(DISK, LEFT, place)
    assert not reverted.left_by_us(DISK, facts, place)


def test_a_note_is_forgotten_alone(place: Path) -> None:
    other = replace(DISK, serial="S2")
    reverted.forget(DISK, place)
    assert not place.exists()
    reverted.begin(DISK, LEFT, place)
    reverted.begin(other, replace(LEFT, serial="S2"), place)
    reverted.forget(DISK, place)
    assert not reverted.left_by_us(DISK, LEFT, place)
    assert reverted.left_by_us(other, replace(LEFT, serial="S2"), place)
