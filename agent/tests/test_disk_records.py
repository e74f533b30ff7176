"""What our own revert left may be blanked; anything else that nobody knows may not."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.storage import disk_records, samples
from agent.storage.facts import DiskFacts
from agent.storage.opal_ioctl import (
    LOCKED_OUT,
    NO_SESSIONS,
    NOT_AUTHORISED,
    Discovery,
    OpalError,
    Sid,
)
from agent.tests.builders import FRESH, OWNED
from contract.disks import Lifetime
from contract.errors import AgentError
from contract.plan import Disk

DISK = Disk("sed", "/dev/disk/by-id/nvme-x", "S1", 2**31)
A, B, C = "a" * 64, "b" * 64, "c" * 64
BARE = DiskFacts("/dev/nvme1n1", True, serial="S1", size_bytes=2**31, diskseq=7, opal=FRESH)
LEFT = replace(BARE, edges=(A, B), samples=("1", "", "3"), unknown="unrecognised data")
ZEROS = hashlib.sha256(bytes(2**20)).hexdigest()
REVERTED = replace(LEFT, edges=(C, "d" * 64), samples=("7", "8", "9"))


def _not_done() -> bool:
    return False


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "var" / "disks.json"


def test_data_without_a_record_is_not_ours(place: Path) -> None:
    assert not disk_records.left_by_us(DISK, LEFT, place)
    place.parent.mkdir()
    place.write_text("{torn")
    assert not disk_records.left_by_us(DISK, LEFT, place)


@pytest.mark.parametrize(
    ("changes", "is_ours"),
    [
        ({}, True),
        ({"diskseq": 99}, True),  # after a restart
        ({"edges": (A, ZEROS)}, True),  # half blanked
        ({"opal": None}, True),  # by a teardown of a plain disk
        ({"edges": (C, B)}, False),
        ({"edges": (A, C)}, False),
        ({"samples": ("1", "", "")}, True),
        *(({"samples": s}, False) for s in (("1", "2", "3"), ("2", "", "3"), ("1", ""), ())),
        ({"serial": "S2"}, False),
        ({"unknown": ""}, False),
        ({"opal": OWNED}, False),
    ],
)
def test_only_recorded_contents_are_ours_after_a_revert(
    place: Path, changes: dict[str, Any], is_ours: bool
) -> None:
    disk_records.record_contents(DISK, LEFT, place)
    assert disk_records.left_by_us(DISK, replace(LEFT, **changes), place) == is_ours


def test_a_crash_during_a_revert_is_recognised_until_the_disk_is_unplugged(place: Path) -> None:
    with suppress(KeyboardInterrupt), disk_records.reverting(DISK, LEFT, _not_done, place):
        raise KeyboardInterrupt  # the process ends here
    assert disk_records.left_by_us(DISK, REVERTED, place)
    assert not disk_records.left_by_us(DISK, replace(REVERTED, diskseq=8), place)
    assert not disk_records.left_by_us(DISK, replace(REVERTED, opal=None), place)
    text = place.read_text()
    place.write_text(text.replace('"boot_id": "', '"boot_id": "another-'))
    assert place.read_text() != text
    assert not disk_records.left_by_us(DISK, REVERTED, place)


@pytest.mark.parametrize(
    ("code", "status", "stays"),
    [
        ("not-opened", 0, False),
        ("wrong-pin", NOT_AUTHORISED, False),
        ("no-tries", LOCKED_OUT, False),
        ("no-session", NO_SESSIONS, True),  # also how NVMe says that it aborted the command
        ("status", 0x3F, True),
        ("no-answer", 0, True),
    ],
)
def test_a_refused_revert_leaves_the_record_unchanged(
    place: Path, code: str, status: int, stays: bool
) -> None:
    """What the drive may have begun is no refusal."""
    disk_records.begin_taking(DISK, place)
    facts = dict.fromkeys(("device", "action", "error", "refused", "most", "way_out"), "")
    with pytest.raises(OpalError), disk_records.reverting(DISK, LEFT, _not_done, place):
        raise OpalError(code, **facts, status=status)
    assert disk_records.reverted(DISK, place) == stays
    assert disk_records.taking(DISK, place) != stays
    assert disk_records.left_by_us(DISK, REVERTED, place) == stays


def test_a_finished_revert_is_recorded_until_its_cleanup(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a drive that is dead until a power cycle, by what it counts as written in its life."""
    life = Lifetime(512_000)
    monkeypatch.setattr("agent.checks.smart.lifetime", lambda _name: life)
    with pytest.raises(AgentError), disk_records.reverting(DISK, LEFT, lambda: True, place):
        raise AgentError("the drive says no, and does it")
    assert disk_records.reverted(DISK, place)
    again = replace(REVERTED, diskseq=8)
    assert disk_records.left_by_us(DISK, again, place)
    taken = Discovery(sid=Sid(taken=True, blocked=False))
    assert not disk_records.left_by_us(DISK, replace(again, discovery=taken), place)
    life = Lifetime(1_024_000)
    assert not disk_records.left_by_us(DISK, again, place)
    disk_records.record_contents(DISK, LEFT, place)
    assert not disk_records.reverted(DISK, place)


def test_parts_of_a_record_are_dropped_separately(place: Path) -> None:
    disk_records.begin_taking(DISK, place)
    disk_records.record_contents(DISK, LEFT, place)
    disk_records.forget_contents(DISK, place)
    assert disk_records.taking(DISK, place)
    assert not disk_records.left_by_us(DISK, LEFT, place)
    disk_records.end_taking(DISK, place)
    assert not disk_records.taking(DISK, place)


def test_forgetting_a_record_keeps_other_disks(place: Path) -> None:
    other, other_facts = replace(DISK, serial="S2"), replace(LEFT, serial="S2")
    disk_records.forget(DISK, place)
    assert not place.exists()
    disk_records.record_contents(DISK, LEFT, place)
    disk_records.record_contents(other, other_facts, place)
    disk_records.forget(DISK, place)
    assert not disk_records.left_by_us(DISK, LEFT, place)
    assert disk_records.left_by_us(other, other_facts, place)


def test_sampled_places_are_stable_and_cover_the_disk() -> None:
    for size in (2**26, 2**31, 2**31 + 512, 2 * 10**12, 20 * 2**40):
        places = samples.places(size, "S1")
        assert places == samples.places(size, "S1") != samples.places(size, "S2")
        assert all(offset % 4096 == 0 and offset + length <= size for offset, length in places)
        ends = [offset for offset, _ in places]
        gaps = [b - a for a, b in zip([0, *ends], [*ends, size], strict=True)]
        assert max(gaps) < 2 * size / samples.PARTS + 4096
        assert len(places) <= 450


def test_only_zeros_and_ones_are_blank() -> None:
    assert samples.blank(bytes(4096)) and samples.blank(b"\xff" * 4096)
    for data in (b"\0" * 4095 + b"\1", b"\xff" * 4095 + b"\0", b"a" * 4096):
        assert not samples.blank(data)
