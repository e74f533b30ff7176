"""Resets of each kind, ComID management, and what firmware may have done to a drive."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from drive.initiator import Initiator
from drive.opal import uids
from drive.opal.packets import COM_ID
from drive.opal.tper import Tper
from drive.opal.uids import Status
from drive.tests.opal_host import (
    OWNER,
    USER2,
    Direct,
    Host,
    OpalSession,
    RefusedError,
    features,
    lock,
    msid,
    own_with_range,
    refused,
    take_ownership,
)
from drive.tests.process import PSID, Drive

ADMIN1 = uids.ADMIN_AUTHORITIES[0]


def lock_on(host: Host, events: list[int]) -> None:
    with OpalSession(host, uids.LOCKING_SP, ADMIN1, OWNER) as session:
        session.set(uids.LOCKING_ROWS[1], {9: [*events]})
        session.set(uids.MBR_CONTROL, {1: 1, 2: 1, 3: [*events]})


# TPER_RESET.


def test_an_enabled_tper_reset_locks_ranges_that_list_it(sed: Drive, ranged: Initiator) -> None:
    lock_on(ranged, [0, 3])
    assert ranged.security_send(2, 4, bytes(512)).status == 0x4002, "it is off by default"
    assert sed.io().read(256, 1).status == 0
    with OpalSession(ranged, uids.ADMIN_SP, uids.SID, OWNER) as session:
        session.set(uids.TPER_INFO, {8: 1})
    session = OpalSession(ranged, uids.ADMIN_SP)
    assert ranged.security_send(2, 4, bytes(512)).status == 0
    assert session.raw(b"\xfa") == b"", "every session has ended"
    status = sed.ask("status")
    assert status["ranges"][1]["read_locked"] and status["ranges"][1]["write_locked"]
    assert status["shadowed"], "it covers all of this small disk"


def test_a_tper_reset_leaves_other_ranges_open(sed: Drive, ranged: Initiator) -> None:
    with OpalSession(ranged, uids.ADMIN_SP, uids.SID, OWNER) as session:
        session.set(uids.TPER_INFO, {8: 1})
    assert ranged.security_send(2, 4, bytes(512)).status == 0
    assert sed.io().read(256, 1).status == 0


# ComIDs.


def test_com_id_management_verifies_and_refuses(ranged: Initiator) -> None:
    def ask(request: bytes) -> int:
        return ranged.security_send(2, COM_ID, request.ljust(512, b"\0")).status

    assert ask(struct.pack(">HHI", COM_ID, 0, 1)) == 0
    answer = ranged.security_receive(2, COM_ID, 512).data
    assert struct.unpack_from(">HHI2xHI", answer) == (COM_ID, 0, 1, 34, 2)
    with OpalSession(ranged, uids.ADMIN_SP):
        ask(struct.pack(">HHI", COM_ID, 0, 1))
        answer = ranged.security_receive(2, COM_ID, 512).data
        assert struct.unpack_from(">HHI2xHI", answer)[4] == 3
    for request in (b"", struct.pack(">HHI", 5, 0, 1), struct.pack(">HHI", COM_ID, 0, 9)):
        assert ask(request) == 0x4002
    for com_id in (0, 2, 4, 5, 0x7FF, COM_ID + 1):
        assert ranged.security_send(2, com_id, bytes(512)).status == 0x4002


def test_protocol_0_lists_the_protocols(ranged: Initiator) -> None:
    assert ranged.security_receive(0, 0).data[6:11] == b"\0\3\0\1\2"
    assert ranged.security_receive(0, 1).data[:4] == bytes(4), "there is no certificate"


# A TPer without a transport, for what needs a switch at its making.


@pytest.fixture
def blockable(tmp_path: Path) -> Tper:
    return Direct.make(tmp_path, block_sid_feature=True)


def test_block_sid_keeps_the_owner_out_until_power_is_lost(blockable: Tper) -> None:
    host = Direct(blockable)
    assert features(host)[0x0402][:2] == b"\0\0"
    pin = msid(host)
    assert blockable.send(1, 2, 5, bytes(512))
    assert features(host)[0x0402][:2] == b"\2\0"
    assert refused(OpalSession, host, uids.ADMIN_SP, uids.SID, pin) == Status.NOT_AUTHORIZED
    with OpalSession(host, uids.ADMIN_SP) as session:
        assert session.get(uids.C_PIN_MSID, 3, 3), "others are not kept out"
    with OpalSession(host, uids.ADMIN_SP, uids.PSID, PSID):
        pass
    blockable.reset()
    assert refused(OpalSession, host, uids.ADMIN_SP, uids.SID, pin) == Status.NOT_AUTHORIZED
    blockable.power_cycle()
    take_ownership(host, OWNER)
    assert features(host)[0x0402][:2] == b"\1\0", "the SID's PIN is no longer the MSID"


def test_block_sid_may_end_with_a_hardware_reset(blockable: Tper) -> None:
    host = Direct(blockable)
    assert blockable.send(1, 2, 5, b"\1".ljust(512, b"\0"))
    assert features(host)[0x0402][:2] == b"\2\1"
    blockable.reset()
    take_ownership(host, OWNER)


def test_block_sid_is_not_there_without_its_switch(tmp_path: Path) -> None:
    tper = Direct.make(tmp_path)
    assert not tper.send(1, 2, 5, bytes(512))
    assert 0x0402 not in features(Direct(tper))


@pytest.mark.parametrize("events", [[0], [0, 1], [1]])
def test_a_hardware_reset_locks_ranges_that_list_it(tmp_path: Path, events: list[int]) -> None:
    tper = Direct.make(tmp_path)
    host = Direct(tper)
    own_with_range(host)
    lock_on(host, events)
    open_session = OpalSession(Direct(tper, owner=2), uids.ADMIN_SP)
    tper.reset()
    ranges = tper.status()["ranges"]
    assert isinstance(ranges, list)
    assert ranges[1]["read_locked"] is (1 in events) and tper.status()["shadowed"] is (1 in events)
    ended = open_session.raw(b"\xfa") == b""
    assert ended is (1 in events), "another host's session continues unless something was locked"
    lock(host, USER2, 1, locked=False)


def test_an_authority_can_be_locked_out_by_name(blockable: Tper) -> None:
    host = Direct(blockable)
    for name in ("Admin1", "nobody", ""):
        with pytest.raises(ValueError, match=r"known: SID, PSID.*once it is active"):
            blockable.lock_out(name)
    with pytest.raises(ValueError, match="once the Locking SP is active"):
        blockable.show_shadow()
    take_ownership(host, OWNER)
    for name, sp, who in (("SID", uids.ADMIN_SP, uids.SID), ("Admin1", uids.LOCKING_SP, ADMIN1)):
        blockable.lock_out(name)
        assert refused(OpalSession, host, sp, who, OWNER) == Status.AUTHORITY_LOCKED_OUT
    blockable.power_cycle()
    with OpalSession(host, uids.ADMIN_SP, uids.SID, OWNER):
        pass


def test_an_idle_session_gives_way_after_the_time_its_host_named(blockable: Tper) -> None:
    OpalSession(Direct(blockable), uids.ADMIN_SP, timeout_ms=1)
    other = Direct(blockable, owner=2)
    while True:  # a millisecond passes between two tries
        try:
            OpalSession(other, uids.ADMIN_SP)
        except RefusedError as error:
            assert error.status == Status.NO_SESSIONS_AVAILABLE
            continue
        break


def test_a_drive_may_use_aes_128(tmp_path: Path) -> None:
    tper = Direct.make(tmp_path, key_bits=128)
    host = Direct(tper)
    own_with_range(host)
    with OpalSession(host, uids.LOCKING_SP, ADMIN1, OWNER) as session:
        key = session.get(uids.LOCKING_ROWS[1], 10, 10)[10]
        assert key == uids.key_rows(128)[1]
        assert session.call(key, uids.GEN_KEY) == []
        assert session.get(key) == {0: key, 4: 7}
