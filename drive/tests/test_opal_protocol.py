"""Discovery, properties, packets, sessions and ComIDs, against the running process."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from drive.initiator import Initiator
from drive.opal import uids
from drive.opal.calls import encode_call
from drive.opal.packets import COM_ID, Control, Message, Named, Value, decode, pack, parse
from drive.opal.uids import Status
from drive.tests.opal_host import (
    OWNER,
    USER2,
    OpalSession,
    exchange,
    features,
    lock,
    own_with_range,
    refused,
)
from drive.tests.process import Drive

ADMIN1 = uids.ADMIN_AUTHORITIES[0]


@pytest.mark.conformance(
    "initiator", "Activate SP", "StartSession SessionManager", "Set ACE", "Set Authority"
)
def test_discovery_follows_activation_and_locking(host: Initiator) -> None:
    assert set(features(host)) == {0x0001, 0x0002, 0x0003, 0x0203}
    assert features(host)[1][0] == 0x11, "TPer.Sync, which the kernel needs, and Streaming"
    assert host.security_receive(2, 0).status == 0x4002, "no ComID is handed out, nor claimed"
    assert features(host)[2][0] & 0b111 == 0b001
    own_with_range(host)
    assert features(host)[2][0] & 0b111 == 0b011
    lock(host, USER2, 1)
    assert features(host)[2][0] & 0b111 == 0b111
    assert struct.unpack_from(">H", features(host)[0x0203])[0] == COM_ID


@pytest.mark.parametrize(("block_bytes", "granularity"), [(512, 8), (4096, 1)])
def test_geometry_is_the_disk_s(
    make_drive: Callable[..., Drive], block_bytes: int, granularity: int
) -> None:
    data = features(make_drive(opal=True, block_bytes=block_bytes).connect())[3]
    assert struct.unpack_from(">B7xIQQ", data) == (block_bytes == 512, block_bytes, granularity, 0)


@pytest.mark.conformance("initiator", "Properties SessionManager")
def test_properties_fit_the_kernels_buffer(host: Initiator) -> None:
    mine: list[Value] = [Named(b"MaxComPacketSize", 2048)]
    call = encode_call(uids.SESSION_MANAGER, uids.PROPERTIES, [Named(0, mine)])
    answer = parse(decode(exchange(host, Message(0, 0, call))))
    assert isinstance(answer[3], list) and isinstance(answer[3][0], list)
    limits = {pair.name: pair.value for pair in answer[3][0] if isinstance(pair, Named)}
    assert limits[b"MaxComPacketSize"] == 65536 and limits[b"MaxSessions"] == 1
    assert answer[3][1] == Named(0, mine)


def test_one_session_at_a_time_and_it_ends_with_its_host(sed: Drive, owned: Initiator) -> None:
    first = OpalSession(owned, uids.ADMIN_SP)
    other = sed.connect()
    assert refused(OpalSession, other, uids.ADMIN_SP) == Status.NO_SESSIONS_AVAILABLE
    assert first.get(uids.C_PIN_MSID, 3, 3)
    other.close()
    assert first.get(uids.C_PIN_MSID, 3, 3), "another host's leaving does not end it"
    first.raw(b"\xfa")
    with OpalSession(sed.connect(), uids.ADMIN_SP):
        pass


def test_garbage_ends_the_session_and_a_wrong_number_gets_no_answer(owned: Initiator) -> None:
    session = OpalSession(owned, uids.LOCKING_SP, ADMIN1, OWNER)
    stranger = Message(session.tper_number, session.host_number + 1, b"\xfa")
    assert exchange(owned, stranger) == b""
    assert session.get(uids.LOCKING_INFO, 4, 4) == {4: 8}
    answer = parse(decode(session.raw(b"\xf0\xf0\xf0")))
    assert answer[:3] == [Control.CALL, uids.SESSION_MANAGER, uids.CLOSE_SESSION]
    assert session.raw(b"\xfa") == b""


def test_a_payload_that_is_no_com_packet_is_refused(owned: Initiator) -> None:
    good = pack(Message(0, 0, b""))
    for protocol, com_id, data in (
        (1, COM_ID, b"short"), (1, COM_ID + 1, good), (3, COM_ID, good), (1, COM_ID, b"\xff" * 512),
    ):  # fmt: skip
        assert owned.security_send(protocol, com_id, data).status == 0x4002
    assert owned.security_receive(1, COM_ID + 1).status == 0x4002


def test_an_answer_that_does_not_fit_waits_for_a_larger_buffer(owned: Initiator) -> None:
    call = encode_call(uids.SESSION_MANAGER, uids.PROPERTIES, [])
    owned.security_send(1, COM_ID, pack(Message(0, 0, call)))
    small = owned.security_receive(1, COM_ID, 64).data
    outstanding, minimum, length = struct.unpack_from(">III", small, 8)
    assert outstanding == minimum > 64 and length == 0
    assert struct.unpack_from(">I", owned.security_receive(1, COM_ID, 2048).data, 16)[0] > 0


def test_com_id_management_resets_the_stack(sed: Drive, owned: Initiator) -> None:
    session = OpalSession(owned, uids.ADMIN_SP)
    owned.security_send(2, COM_ID, struct.pack(">HHI", COM_ID, 0, 2).ljust(512, b"\0"))
    answer = owned.security_receive(2, COM_ID, 512).data
    assert struct.unpack_from(">HHI2xHI", answer) == (COM_ID, 0, 2, 4, 0)
    assert session.raw(b"\xfa") == b""
    session = OpalSession(owned, uids.ADMIN_SP)
    sed.connect().security_send(2, COM_ID, struct.pack(">HHI", COM_ID, 0, 2).ljust(512, b"\0"))
    assert session.raw(b"\xfa") == b"\xfa", "another controller's session continues"
