"""Opal over Security Send and Receive, against the running process."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from drive.initiator import Initiator
from drive.opal import uids
from drive.opal.packets import Named, Value
from drive.opal.uids import Status
from drive.tests.opal_host import (
    OWNER,
    USER2,
    OpalSession,
    lock,
    msid,
    refused,
    set_up_range,
    take_ownership,
)
from drive.tests.process import PSID, Drive

ADMIN1 = uids.ADMIN_AUTHORITIES[0]
DENIED = 0x4286
USER3 = b"third user's pin"
USERS = uids.USER_AUTHORITIES


@pytest.fixture
def owned(ranged: Initiator) -> Initiator:
    """User 2 has the first, user 3 the second; both are unlocked."""
    set_up_range(ranged, OWNER, 2, (512, 256), USER3)
    return ranged


@pytest.mark.conformance("initiator", "Set Locking")
def test_a_locked_range_is_neither_read_nor_written(sed: Drive, owned: Initiator) -> None:
    queue = sed.io()
    data = bytes(range(256)) * 16
    assert queue.write(300, data).status == 0
    lock(owned, USER2, 1)
    assert queue.read(300, 1).status == queue.write(300, data).status == DENIED
    assert queue.read(255, 2).status == DENIED, "a command that touches it fails whole"
    assert queue.write(511, data * 2).status == DENIED
    assert queue.run(0x08, 1, cdw10=300).status == DENIED
    assert queue.run(0x09, 1, struct.pack("<IIQ", 0, 1, 300), cdw11=4).status == DENIED
    assert queue.read(255, 1).status == queue.read(512, 1).status == 0
    lock(owned, USER2, 1, locked=False)
    assert queue.read(300, 1).data == data


@pytest.mark.conformance("initiator", "StartSession SessionManager refused")
def test_no_wrong_pin_opens_a_session(owned: Initiator) -> None:
    factory_pin = msid(owned)
    for pin in (b"wrong", b"", USER2 + b"\0", None):
        status = refused(OpalSession, owned, uids.LOCKING_SP, USERS[1], pin)
        assert status == Status.NOT_AUTHORIZED
    for sp, who in ((uids.ADMIN_SP, uids.SID), (uids.LOCKING_SP, ADMIN1)):
        for pin in (factory_pin, b"", bytes(32)):
            assert refused(OpalSession, owned, sp, who, pin) == Status.NOT_AUTHORIZED
    assert refused(OpalSession, owned, uids.LOCKING_SP, USERS[1], USER3) == 1
    assert refused(OpalSession, owned, uids.LOCKING_SP, USERS[5], b"x") == 1
    assert refused(OpalSession, owned, uids.LOCKING_SP, uids.SID, OWNER) == 1


def test_the_try_limit_locks_an_authority_out_until_power_is_lost(
    sed: Drive, owned: Initiator
) -> None:
    def start(pin: bytes) -> OpalSession:
        return OpalSession(sed.connect(), uids.LOCKING_SP, USERS[1], pin)

    for _ in range(5):
        assert refused(start, b"guess") == Status.NOT_AUTHORIZED
    assert refused(start, USER2) == Status.AUTHORITY_LOCKED_OUT
    with OpalSession(owned, uids.LOCKING_SP, USERS[2], USER3):
        pass
    assert sed.ask("power-cycle")["ok"]
    with start(USER2):
        pass


@pytest.mark.conformance(
    "initiator", "Get Locking", "Set Locking refused", "GenKey K_AES_256 refused",
    "Set C_PIN refused", "Get C_PIN refused",
)  # fmt: skip
def test_users_reach_their_own_range_only(owned: Initiator) -> None:
    with OpalSession(owned, uids.LOCKING_SP, USERS[1], USER2) as session:
        mine, other = uids.LOCKING_ROWS[1:3]
        row = session.get(mine, 3, 8)
        assert row == {3: 256, 4: 256, 5: 1, 6: 1, 7: 0, 8: 0}
        assert session.get(other) == {0: other, 2: b""}, "only the common name is for all"
        for column in (3, 5, 7, 8):
            assert refused(session.set, other, {column: 1}) == Status.NOT_AUTHORIZED
        forbidden: list[dict[int, Value]] = [{3: 0}, {5: 0}, {7: 0, 5: 0}, {9: []}]
        for values in forbidden:
            assert refused(session.set, mine, values) == Status.NOT_AUTHORIZED
        key = uids.key_rows(256)[1]
        assert refused(session.call, key, uids.GEN_KEY) == Status.NOT_AUTHORIZED
        pin_of_other = uids.c_pin(USERS[2])
        assert refused(session.set, pin_of_other, {3: b"x"}) == Status.NOT_AUTHORIZED
        assert refused(session.get, uids.c_pin(ADMIN1)) == Status.NOT_AUTHORIZED


@pytest.mark.conformance(
    "initiator", "Set Locking refused", "Set C_PIN refused", "Set Authority refused",
    "Set ACE refused", "GenKey K_AES_256 refused", "RevertSP ThisSP refused", "Revert SP refused",
    "Activate SP refused", "Erase Locking refused", "Get C_PIN refused",
)  # fmt: skip
def test_anybody_changes_nothing(owned: Initiator) -> None:
    key = uids.key_rows(256)[1]
    with OpalSession(owned, uids.LOCKING_SP) as session:
        for row in (uids.LOCKING_ROWS[1], uids.c_pin(USERS[1]), USERS[1], uids.ACE_READ_LOCKED[1]):
            for column in (3, 5, 7):
                assert refused(session.set, row, {column: 0}) in (1, 12)
        assert refused(session.call, key, uids.GEN_KEY) == 1
        assert refused(session.call, uids.THIS_SP, uids.REVERT_SP) == 1
        assert refused(session.call, uids.LOCKING_ROWS[1], uids.ERASE) == 1
    with OpalSession(owned, uids.ADMIN_SP) as session:
        assert refused(session.call, uids.ADMIN_SP, uids.REVERT) == 1
        assert refused(session.call, uids.LOCKING_SP, uids.ACTIVATE) == 1
        assert refused(session.set, uids.C_PIN_SID, {3: b"x"}) == 1
        assert refused(session.get, uids.C_PIN_SID) == 1
    with OpalSession(owned, uids.LOCKING_SP, ADMIN1, OWNER, write=False) as session:
        assert refused(session.set, uids.LOCKING_ROWS[1], {7: 1}) == 1


@pytest.mark.conformance("initiator", "GenKey K_AES_256")
def test_a_new_key_makes_old_data_unreadable_and_leaves_the_neighbours(
    sed: Drive, owned: Initiator
) -> None:
    queue = sed.io()
    data = b"secret".ljust(4096)
    places = (255, 256, 511, 512, 768)
    for lba in places:
        queue.write(lba, data)
    row = uids.LOCKING_ROWS[1]
    with OpalSession(owned, uids.LOCKING_SP, ADMIN1, OWNER) as session:
        key = session.get(row, 10, 10)[10]
        assert isinstance(key, bytes)
        assert session.call(key, uids.GEN_KEY) == []
    assert [queue.read(lba, 1).data == data for lba in places] == [True, False, False, True, True]
    queue.write(256, data)
    sed.ask("power-cycle")
    host = sed.connect()
    lock(host, USER2, 1, locked=False)
    queue = sed.io()
    assert queue.read(256, 1).data == data, "the new key is the one that was kept"
    assert queue.read(511, 1).data != data


def test_losing_power_locks_and_reconnecting_does_not(sed: Drive, owned: Initiator) -> None:
    sed.io().write(256, b"data".ljust(4096))
    owned.close()
    assert sed.io().read(256, 1).status == 0
    sed.ask("power-cycle")
    assert sed.io().read(256, 1).status == DENIED
    assert sed.io().read(0, 1).status == 0
    with OpalSession(sed.connect(), uids.LOCKING_SP, USERS[1], USER2) as session:
        assert session.get(uids.LOCKING_ROWS[1], 7, 8) == {7: 1, 8: 1}
    sed.kill()
    sed.start()
    assert sed.io().read(256, 1).status == DENIED
    lock(sed.connect(), USER2, 1, locked=False)
    assert sed.io().read(256, 1).data == b"data".ljust(4096)


def test_a_range_that_no_reset_locks_stays_open_through_a_power_cycle(
    sed: Drive, owned: Initiator
) -> None:
    with OpalSession(owned, uids.LOCKING_SP, ADMIN1, OWNER) as session:
        session.set(uids.LOCKING_ROWS[1], {9: []})
    sed.io().write(256, b"data".ljust(4096))
    sed.ask("power-cycle")
    assert sed.io().read(256, 1).data == b"data".ljust(4096)
    lock(sed.connect(), USER2, 1)
    sed.ask("power-cycle")
    assert sed.io().read(256, 1).status == DENIED


@pytest.mark.conformance("initiator", "Revert SP")
@pytest.mark.parametrize(("who", "pin"), [(uids.PSID, PSID), (uids.SID, OWNER)])
def test_a_revert_erases_everything_and_gives_the_drive_back(
    sed: Drive, owned: Initiator, who: bytes, pin: bytes
) -> None:
    queue = sed.io()
    data = b"secret".ljust(4096)
    for lba in (0, 256, 512):
        queue.write(lba, data)
    lock(owned, USER2, 1)
    session = OpalSession(owned, uids.ADMIN_SP, who, pin)
    assert session.call(uids.ADMIN_SP, uids.REVERT) == []
    assert session.raw(b"\xfa") == b"", "the drive has ended the session"
    for lba in (0, 256, 512):
        answer = queue.read(lba, 1)
        assert answer.status == 0 and answer.data != data
    assert refused(OpalSession, owned, uids.ADMIN_SP, uids.SID, OWNER) == 1
    assert refused(OpalSession, owned, uids.LOCKING_SP) == Status.INVALID_PARAMETER
    take_ownership(owned, b"next owner")


@pytest.mark.conformance("initiator", "RevertSP ThisSP")
def test_revert_sp_can_keep_the_global_ranges_data(sed: Drive, owned: Initiator) -> None:
    queue = sed.io()
    data = b"secret".ljust(4096)
    queue.write(0, data)
    queue.write(256, data)
    with OpalSession(owned, uids.LOCKING_SP, ADMIN1, OWNER) as session:
        session.call(uids.THIS_SP, uids.REVERT_SP, Named(0x060000, 1))
    assert queue.read(0, 1).data == data and queue.read(256, 1).data != data
    with OpalSession(owned, uids.ADMIN_SP, uids.SID, OWNER) as session:
        assert session.get(uids.LOCKING_SP, 6, 6) == {6: 8}


@pytest.mark.parametrize(
    "values",
    [
        {3: 400, 4: 10},
        {3: 16000, 4: 1000},
        {3: -1},
        {5: 2},
        {9: [7]},
        {3: b"x"},
        {2: bytes(33)},
        {99: 0},
    ],
)  # fmt: skip
def test_a_refused_change_changes_nothing(owned: Initiator, values: dict[int, Value]) -> None:
    row = uids.LOCKING_ROWS[3]
    with OpalSession(owned, uids.LOCKING_SP, ADMIN1, OWNER) as session:
        before = session.get(row)
        changed: dict[int, Value] = {6: 1} | values
        assert refused(session.set, row, changed) == Status.INVALID_PARAMETER
        assert session.get(row) == before


def test_ranges_keep_to_4096_bytes(make_drive: Callable[..., Drive]) -> None:
    host = make_drive(opal=True, block_bytes=512).connect()
    take_ownership(host, OWNER)
    assert refused(set_up_range, host, OWNER, 1, (4, 8), USER2) == Status.INVALID_PARAMETER
    set_up_range(host, OWNER, 1, (8, 8), USER2)


@pytest.mark.parametrize("pin", [b"", bytes(33), 5, [b"x"]])
def test_unfit_pins_cannot_be_set(owned: Initiator, pin: Value) -> None:
    with OpalSession(owned, uids.LOCKING_SP, ADMIN1, OWNER) as session:
        row = uids.c_pin(USERS[1])
        assert refused(session.set, row, {3: pin}) == Status.INVALID_PARAMETER


@pytest.mark.parametrize(
    "terms",
    [
        [],
        [Named(uids.HALF_AUTHORITY_REF, USERS[1]), Named(uids.HALF_AUTHORITY_REF, USERS[1])],
        [Named(uids.HALF_AUTHORITY_REF, USERS[1]), Named(uids.HALF_BOOLEAN_ACE, 1)],
        [Named(uids.HALF_BOOLEAN_ACE, 1)],
        [Named(uids.HALF_AUTHORITY_REF, b"nobody  ")],
        [Named(uids.HALF_AUTHORITY_REF, USERS[1])] * 33 + [Named(uids.HALF_BOOLEAN_ACE, 1)] * 32,
        [7],
    ],
)
def test_rules_that_mean_nothing_are_refused(owned: Initiator, terms: list[Value]) -> None:
    with OpalSession(owned, uids.LOCKING_SP, ADMIN1, OWNER) as session:
        row = uids.ACE_READ_LOCKED[1]
        assert refused(session.set, row, {3: terms}) == Status.INVALID_PARAMETER


@pytest.mark.conformance("initiator", "Random ThisSP", "Next Locking")
def test_random_and_next(owned: Initiator) -> None:
    with OpalSession(owned, uids.LOCKING_SP) as session:
        first = session.call(uids.THIS_SP, uids.RANDOM, 32)[0]
        assert isinstance(first, bytes) and len(first) == 32
        assert session.call(uids.THIS_SP, uids.RANDOM, 32)[0] != first
        table = uids.uid(0x0000080200000000)
        rows = list(uids.LOCKING_ROWS)
        assert session.call(table, uids.NEXT) == [rows]
        assert session.call(table, uids.NEXT, Named(0, rows[2]), Named(1, 2)) == [rows[3:5]]


def test_a_user_with_a_new_pin_goes_on_in_the_same_session(owned: Initiator) -> None:
    lock(owned, USER2, 1)
    row, pin = uids.LOCKING_ROWS[1], uids.c_pin(USERS[1])
    with OpalSession(owned, uids.LOCKING_SP, USERS[1], USER2) as session:
        session.set(pin, {3: b"new"})
        session.set(row, {7: 0, 8: 0})
        session.set(row, {7: 1, 8: 1})
        assert session.raw(b"\xfb\x00") == b"\xfb\x00"
        session.set(pin, {3: b"newer"})
        called = session.call(uids.THIS_SP, uids.AUTHENTICATE, USERS[1], Named(0, b"newer"))
        assert called == [1]
        session.set(row, {7: 0, 8: 0})
        assert session.raw(b"\xfc\x01") == b"\xfc\x01"
        session.set(row, {7: 0, 8: 0})
    lock(owned, b"new", 1)
    for pin in (USER2, b"newer"):
        assert refused(lock, owned, pin, 1, False) == Status.NOT_AUTHORIZED
