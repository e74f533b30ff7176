"""Vices of real drives, on request: what a host sees of each, and that none is there unasked."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from drive import vices
from drive.initiator import Initiator
from drive.opal import uids
from drive.opal.uids import Status
from drive.tests.opal_host import (
    OWNER,
    OpalSession,
    RefusedError,
    features,
    refused,
    set_up_range,
    take_ownership,
)
from drive.tests.process import Drive
from drive.vices import ViceError

DENIED = 0x4286
LOCKING, GEOMETRY = 0x0002, 0x0003
ENCRYPTS = 1 << 3


@pytest.mark.parametrize(
    "parameters",
    [{"x": 1}, {"no_session": 2}, {"lowest_lba": -1}, {"discard_ms": "1"}, {"serial_hex": "zz"}],
)
def test_an_invalid_vice_is_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        vices.parse(parameters)


def test_flags_and_numbers_are_read() -> None:
    parsed = vices.parse({"no_session": 1, "discard_ms": 5, "multipath": 0})
    assert parsed.describe() == {"no_session": True, "discard_ms": 5}
    with pytest.raises(ViceError):
        vices.parse({"serial_hex": "ff" * 21})


def revert(host: Initiator) -> int:
    """Return the status that it is answered with."""
    session = OpalSession(host, uids.ADMIN_SP, uids.SID, OWNER)
    try:
        session.call(uids.ADMIN_SP, uids.REVERT)
    except RefusedError as error:
        return error.status
    return 0


def test_a_drive_dies_of_a_revert_until_its_power_cycle(sed: Drive, ranged: Initiator) -> None:
    sed.ask("vices", dead_after_revert=1)
    assert sed.io().read(0, 1).status == 0
    assert revert(ranged) == 0
    queue = sed.io()
    assert queue.read(0, 1).status == queue.write(0, bytes(4096)).status == DENIED
    assert sed.ask("status")["denied_reads"] == sed.ask("status")["denied_writes"] == 1
    sed.ask("vices")
    assert queue.read(0, 1).status == DENIED, "that it is cured comes too late"
    sed.ask("power-cycle")
    assert sed.io().read(0, 1).status == 0


def test_a_revert_is_done_and_answered_with_an_error(sed: Drive, ranged: Initiator) -> None:
    sed.ask("vices", revert_unanswered=1)
    assert revert(ranged) == Status.FAIL
    assert not sed.ask("status")["locking_active"]


def test_discovery_reports_declared_geometry_and_encryption(sed: Drive, host: Initiator) -> None:
    plain = features(host)
    sed.ask("vices", opal_block_bytes=512, alignment_blocks=4, lowest_lba=1)
    assert struct.unpack(">B7xIQQ", features(host)[GEOMETRY]) == (1, 512, 4, 1)
    assert features(host)[LOCKING] == plain[LOCKING]
    take_ownership(host, OWNER)
    for start, length, status in ((256, 64, 0x0C), (257, 62, 0x0C), (257, 64, None)):
        parameters = (host, OWNER, 1, (start, length), b"a user's pin")
        if status:
            assert refused(set_up_range, *parameters) == status
        else:
            set_up_range(*parameters)
    sed.ask("vices", no_media_encryption=1)
    assert not features(host)[LOCKING][0] & ENCRYPTS
    sed.ask("vices")
    assert features(host)[LOCKING][0] & ENCRYPTS
    assert features(host)[GEOMETRY] == plain[GEOMETRY]


def test_no_session_is_free(sed: Drive, host: Initiator) -> None:
    sed.ask("vices", no_session=1)
    assert refused(OpalSession, host, uids.ADMIN_SP) == Status.NO_SESSIONS_AVAILABLE
    assert features(host)[LOCKING], "discovery needs none"


def test_a_discard_is_refused_or_ignored(plain: Drive) -> None:
    queue, data = plain.io(), b"kept".ljust(4096)
    trim = struct.pack("<4xIQ", 1, 9)

    def discarded() -> tuple[int, bool]:
        assert queue.write(9, data).status == 0
        status = queue.run(0x09, 1, trim, cdw11=4).status
        return status, queue.read(9, 1).data != data

    for named, expected in (
        ({"discard_refused": 1}, (0x4006, False)),
        ({"discard_ignored": 1}, (0, False)),
        ({}, (0, True)),
    ):
        plain.ask("vices", **named)
        assert discarded() == expected


def test_identify_reports_declared_vices(plain: Drive) -> None:
    for declared, flags, serial in (
        ({"multipath": 1, "serial_hex": "ff00b1"}, (0b10, 1), b"\xff\x00\xb1"),
        ({}, (0, 0), b"SERIAL0001"),
    ):
        plain.ask("vices", **declared)
        controller, namespace = plain.connect().identify(1), plain.connect().identify(0, 1)
        assert (controller[76], namespace[30]) == flags
        assert controller[4:24] == serial.ljust(20)
