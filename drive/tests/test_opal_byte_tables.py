"""The MBR shadow, the DataStore, and transactions over everything."""

from __future__ import annotations

import pytest

from drive.initiator import Initiator
from drive.opal import uids
from drive.opal.packets import Named, Value
from drive.opal.uids import Status
from drive.tests.opal_host import (
    OWNER,
    USER2,
    OpalSession,
    refused,
    session_when_free,
    set_up_range,
    take_ownership,
)
from drive.tests.process import Drive

DENIED = 0x4286
ADMIN1, USER = uids.ADMIN_AUTHORITIES[0], uids.USER_AUTHORITIES[1]
BEGIN, COMMIT, ABORT = b"\xfb\x00", b"\xfc\x00", b"\xfc\x01"
IMAGE = b"pre-boot image ".ljust(4096, b".")


def admin(host: Initiator, write: bool = True) -> OpalSession:
    return OpalSession(host, uids.LOCKING_SP, ADMIN1, OWNER, write=write)


def write_bytes(session: OpalSession, table: bytes, where: int, data: bytes) -> None:
    assert session.call(table, uids.SET, Named(0, where), Named(1, data)) == []


def read_bytes(session: OpalSession, table: bytes, first: int, last: int) -> bytes:
    value = session.call(table, uids.GET, [Named(1, first), Named(2, last)])[0]
    assert isinstance(value, bytes)
    return value


@pytest.mark.conformance("initiator", "Set MBR", "Get MBR", "Set MBRControl", "Get MBRControl")
def test_the_shadow_hides_the_first_blocks_until_it_is_done(sed: Drive, owned: Initiator) -> None:
    queue = sed.io()
    first_block = b"the disk's own first block".ljust(4096)
    assert queue.write(0, first_block).status == 0
    with admin(owned) as session:
        assert session.get(uids.MBR_CONTROL) == {0: uids.MBR_CONTROL, 1: 0, 2: 0, 3: [0]}
        for where in range(0, 4096, 1024):
            write_bytes(session, uids.MBR, where, IMAGE[where : where + 1024])
        assert read_bytes(session, uids.MBR, 0, 1023) == IMAGE[:1024]
        assert queue.read(0, 1).data == first_block, "a table alone hides nothing"
        session.set(uids.MBR_CONTROL, {1: 1})
        assert queue.read(0, 1).data == IMAGE and queue.read(1, 2).data == bytes(8192)
        assert queue.write(0, first_block).status == DENIED
        session.set(uids.MBR_CONTROL, {2: 1})
        assert queue.read(0, 1).data == first_block and queue.write(0, first_block).status == 0


def test_losing_power_brings_the_shadow_back_and_a_restart_keeps_it(
    sed: Drive, owned: Initiator
) -> None:
    with admin(owned) as session:
        write_bytes(session, uids.MBR, 0, IMAGE[:512])
        session.set(uids.MBR_CONTROL, {1: 1, 2: 1})
        session.set(uids.LOCKING_ROWS[0], {5: 1, 6: 1, 7: 1, 8: 1})
    assert sed.io().read(0, 1).status == DENIED
    sed.ask("power-cycle")
    queue = sed.io()
    assert queue.read(0, 1).data.startswith(IMAGE[:512]), "the shadow is read without a PIN"
    assert queue.write(0, IMAGE).status == DENIED
    sed.kill()
    sed.start()
    assert sed.io().read(0, 1).data.startswith(IMAGE[:512])
    with OpalSession(sed.connect(), uids.ADMIN_SP, uids.SID, OWNER) as session:
        session.call(uids.ADMIN_SP, uids.REVERT)
    assert not any(sed.path("state.json.mbr").read_bytes()), "a revert clears the table at once"
    assert not sed.io().read(0, 1).data.startswith(IMAGE[:512])
    take_ownership(sed.connect(), OWNER)
    with admin(sed.connect()) as session:
        assert read_bytes(session, uids.MBR, 0, 511) == bytes(512)


@pytest.mark.conformance("initiator", "Set MBR refused", "Set MBRControl refused", "Set MBRControl")
def test_a_user_may_be_allowed_to_end_the_shadow(owned: Initiator) -> None:
    set_up_range(owned, OWNER, 1, (256, 256), USER2)
    with OpalSession(owned, uids.LOCKING_SP, USER, USER2) as session:
        columns: list[Value] = [Named(2, 1)]
        assert refused(session.call, uids.MBR_CONTROL, uids.SET, Named(1, columns)) == 1
    with admin(owned) as session:
        session.set(uids.ACE_MBR_DONE, {3: [Named(uids.HALF_AUTHORITY_REF, USER)]})
    with OpalSession(owned, uids.LOCKING_SP, USER, USER2) as session:
        session.set(uids.MBR_CONTROL, {2: 1})
        assert refused(session.call, uids.MBR_CONTROL, uids.SET, Named(1, [Named(1, 1)])) == 1
        assert refused(session.call, uids.MBR, uids.SET, Named(0, 0), Named(1, b"x")) == 1


@pytest.mark.conformance(
    "initiator", "Set DataStore", "Get DataStore", "Set DataStore refused", "Get DataStore refused"
)
def test_only_granted_users_access_the_data_store(owned: Initiator) -> None:
    set_up_range(owned, OWNER, 1, (256, 256), USER2)
    end = (10 << 20) - 1
    with admin(owned) as session:
        write_bytes(session, uids.DATA_STORE, end - 3, b"last")
        assert read_bytes(session, uids.DATA_STORE, end - 4, end) == b"\0last"
        for where, data in ((end, b"xx"), (end + 1, b"x")):
            refusal = refused(
                session.call, uids.DATA_STORE, uids.SET, Named(0, where), Named(1, data)
            )
            assert refusal == Status.INSUFFICIENT_SPACE
        for first, last in ((5, 4), (0, end + 1), (-1, 4)):
            refusal = refused(
                session.call, uids.DATA_STORE, uids.GET, [Named(1, first), Named(2, last)]
            )
            assert refusal == Status.INVALID_PARAMETER
        for bounds in ([Named(3, 0)], [Named(1, 0), Named(2, 9), Named(4, 1)]):
            assert refused(session.call, uids.DATA_STORE, uids.GET, [*bounds]) == 12
        session.set(
            uids.ACE_DATA_STORE_GET, {3: [Named(uids.HALF_AUTHORITY_REF, uids.USERS_CLASS)]}
        )
    with OpalSession(owned, uids.LOCKING_SP, USER, USER2) as session:
        assert read_bytes(session, uids.DATA_STORE, end - 3, end) == b"last"
        refusal = refused(session.call, uids.DATA_STORE, uids.SET, Named(0, 0), Named(1, b"x"))
        assert refusal == Status.NOT_AUTHORIZED


def test_an_answer_beyond_the_hosts_limit_is_refused(owned: Initiator) -> None:
    with admin(owned) as session:
        big: list[Value] = [Named(1, 0), Named(2, 9999)]
        refusal = refused(session.call, uids.DATA_STORE, uids.GET, big)
        assert refusal == Status.RESPONSE_OVERFLOW
        session.properties({b"MaxComPacketSize": 16384})
        assert read_bytes(session, uids.DATA_STORE, 0, 9999) == bytes(10_000)
        huge: list[Value] = [Named(1, 0), Named(2, 1 << 20)]
        refusal = refused(session.call, uids.DATA_STORE, uids.GET, huge)
        assert refusal == Status.RESPONSE_OVERFLOW


# Transactions.


def test_an_aborted_transaction_leaves_nothing(sed: Drive, owned: Initiator) -> None:
    before = sed.path("state.json").read_bytes()
    with admin(owned) as session:
        assert session.raw(BEGIN) == BEGIN
        session.set(uids.LOCKING_ROWS[1], {3: 256, 4: 256, 5: 1, 6: 1, 7: 1, 8: 1})
        session.set(uids.c_pin(USER), {3: USER2})
        write_bytes(session, uids.DATA_STORE, 0, b"kept back")
        assert session.get(uids.LOCKING_ROWS[1], 3, 4) == {3: 256, 4: 256}, "visible within"
        assert read_bytes(session, uids.DATA_STORE, 0, 8) == b"kept back"
        assert sed.io().read(256, 1).status == 0, "not in force before its end"
        assert session.raw(ABORT) == ABORT
        assert session.get(uids.LOCKING_ROWS[1], 3, 4) == {3: 0, 4: 0}
        assert read_bytes(session, uids.DATA_STORE, 0, 8) == bytes(9)
    assert sed.path("state.json").read_bytes() == before


def test_a_committed_transaction_takes_effect_at_once(sed: Drive, owned: Initiator) -> None:
    with admin(owned) as session:
        assert session.raw(BEGIN) == BEGIN
        session.set(uids.LOCKING_ROWS[1], {3: 256, 4: 256, 5: 1, 6: 1})
        session.set(uids.LOCKING_ROWS[1], {7: 1, 8: 1})
        assert refused(session.call, uids.LOCKING_ROWS[1], uids.SET, Named(1, [Named(5, 9)])) == 12
        write_bytes(session, uids.DATA_STORE, 4, b"kept")
        assert session.raw(COMMIT) == COMMIT
    assert sed.io().read(256, 1).status == DENIED
    sed.kill()
    sed.start()
    assert sed.io().read(256, 1).status == DENIED
    with admin(sed.connect()) as session:
        assert read_bytes(session, uids.DATA_STORE, 4, 7) == b"kept"


@pytest.mark.parametrize("ending", ["end-session", "disconnect", "power-cycle", "garbage", "kill"])
def test_the_end_of_a_session_undoes_its_transaction(
    sed: Drive, owned: Initiator, ending: str
) -> None:
    session = admin(owned)
    assert session.raw(BEGIN) == BEGIN
    session.set(uids.LOCKING_ROWS[1], {3: 256, 4: 256, 5: 1, 6: 1, 7: 1, 8: 1})
    if ending == "end-session":
        session.raw(b"\xfa")
    elif ending == "garbage":
        session.raw(b"\xf0\xf0")
    elif ending == "power-cycle":
        sed.ask("power-cycle")
    elif ending == "disconnect":
        owned.close()
    else:
        sed.kill()
        sed.start()
    with session_when_free(sed, uids.LOCKING_SP, ADMIN1, OWNER) as later:
        assert later.get(uids.LOCKING_ROWS[1], 3, 5) == {3: 0, 4: 0, 5: 0}


def test_one_transaction_at_a_time_and_no_life_cycle_within(owned: Initiator) -> None:
    with admin(owned) as session:
        assert session.raw(COMMIT) == ABORT, "there is none to end"
        assert session.raw(BEGIN) == BEGIN
        assert session.raw(BEGIN) == b"\xfb\x01"
        assert refused(session.call, uids.THIS_SP, uids.REVERT_SP) == Status.FAIL
        assert session.raw(COMMIT) == COMMIT
    with OpalSession(owned, uids.ADMIN_SP, uids.SID, OWNER) as session:
        session.raw(BEGIN)
        for method, row in ((uids.REVERT, uids.ADMIN_SP), (uids.ACTIVATE, uids.LOCKING_SP)):
            assert refused(session.call, row, method) == Status.FAIL
    with admin(owned, write=False) as session:
        assert session.raw(BEGIN) == b"\xfb\x01", "a read-only session changes nothing"


def test_a_transaction_may_travel_in_one_packet_with_its_call(owned: Initiator) -> None:
    with admin(owned) as session:
        call = session.encode(uids.LOCKING_ROWS[1], uids.SET, Named(1, [Named(3, 8), Named(4, 8)]))
        answer = session.raw(BEGIN + call + COMMIT)
        assert answer == BEGIN + b"\xf0\xf1\xf9\xf0\0\0\0\xf1" + COMMIT
        assert session.get(uids.LOCKING_ROWS[1], 3, 4) == {3: 8, 4: 8}


def test_a_transaction_does_not_grow_without_limit(owned: Initiator) -> None:
    with admin(owned) as session:
        session.raw(BEGIN)
        piece = bytes(32 << 10)
        for number in range(32):
            write_bytes(session, uids.MBR, number << 15, piece)
        refusal = refused(session.call, uids.MBR, uids.SET, Named(0, 0), Named(1, b"x"))
        assert refusal == Status.INSUFFICIENT_SPACE
        session.raw(ABORT)
