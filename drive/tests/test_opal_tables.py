"""The tables of both security providers, as anybody, owners and users see them."""

from __future__ import annotations

import pytest

from drive.initiator import Initiator
from drive.opal import schema, uids
from drive.opal.packets import Named, Value
from drive.opal.uids import Status
from drive.tests.opal_host import OWNER, USER2, OpalSession, msid, refused, set_up_range
from drive.tests.process import Drive

ADMIN1, ADMIN2 = uids.ADMIN_AUTHORITIES[:2]
USERS = uids.USER_AUTHORITIES
ACE_SET_RULE, ACE_GET_ALL = uids.ace(0x38001), uids.ace(0x38000)


def rows(session: OpalSession, table: schema.Table) -> list[bytes]:
    uids_listed = session.call(table.uid, uids.NEXT)[0]
    assert isinstance(uids_listed, list)
    return [row for row in uids_listed if isinstance(row, bytes)]


def read_everything(session: OpalSession, tables: tuple[schema.Table, ...], sp: bytes) -> None:
    """Every table by its descriptor, and every row that Next names."""
    assert rows(session, schema.TABLE) == [table.descriptor for table in tables]
    assert session.get(uids.SP_INFO)[1] == sp
    for table in tables:
        assert session.get(table.descriptor)[1] == table.name.encode()
        if not table.columns or table in (schema.ACCESS_CONTROL, schema.SP_INFO):
            continue
        listed = rows(session, table)
        assert listed and session.get(table.descriptor)[7] == len(listed)
        for row in listed:
            columns = session.get(row)
            assert columns[0] == row and columns.keys() <= set(range(len(table.columns)))


@pytest.mark.conformance(
    "initiator", "Next Table", "Get Table", "Next MethodID", "Get MethodID", "Next SPTemplates",
    "Get SPTemplates", "Next ACE", "Get ACE", "Next Authority", "Get Authority", "Next C_PIN",
    "Get C_PIN", "Get SPInfo", "Next TPerInfo", "Get TPerInfo", "Next Template", "Get Template",
    "Next SP", "Get SP",
)  # fmt: skip
def test_the_owner_reads_every_row_of_the_admin_sp(owned: Initiator) -> None:
    with OpalSession(owned, uids.ADMIN_SP, uids.SID, OWNER) as session:
        read_everything(session, schema.ADMIN_SP_TABLES, uids.ADMIN_SP)


@pytest.mark.conformance(
    "initiator", "Next Locking", "Get Locking", "Next LockingInfo", "Get LockingInfo",
    "Next MBRControl", "Get MBRControl", "Next K_AES_256", "Get K_AES_256",
)  # fmt: skip
def test_an_administrator_reads_every_row_of_the_locking_sp(owned: Initiator) -> None:
    with OpalSession(owned, uids.LOCKING_SP, ADMIN1, OWNER) as session:
        read_everything(session, schema.locking_sp_tables(256), uids.LOCKING_SP)


@pytest.mark.conformance("initiator", "GetACL AccessControl", "GetACL AccessControl refused")
def test_get_acl_returns_the_specified_aces(owned: Initiator) -> None:
    with OpalSession(owned, uids.LOCKING_SP) as session:

        def acl(row: bytes, method: bytes) -> Value:
            return session.call(uids.ACCESS_CONTROL, uids.GET_ACL, row, method)[0]

        assert acl(uids.LOCKING_ROWS[2], uids.SET) == [
            uids.ace(0x3F001), uids.ACE_READ_LOCKED[2], uids.ACE_WRITE_LOCKED[2],
            uids.ACE_ADMINS_SET_COMMON_NAME,
        ]  # fmt: skip
        assert acl(uids.LOCKING_ROWS[0], uids.SET)[0] == uids.ace(0x3F000)  # type: ignore[index]
        assert acl(uids.MBR, uids.SET) == [uids.ACE_ADMIN]
        assert acl(uids.THIS_SP, uids.REVERT_SP) == [uids.ACE_ADMIN]
        for row, method in ((uids.MBR, uids.GEN_KEY), (uids.uid(5), uids.GET)):
            refusal = refused(session.call, uids.ACCESS_CONTROL, uids.GET_ACL, row, method)
            assert refusal == Status.INVALID_PARAMETER
    with OpalSession(owned, uids.ADMIN_SP) as session:
        aces = session.call(uids.ACCESS_CONTROL, uids.GET_ACL, uids.ADMIN_SP, uids.REVERT)[0]
        assert aces == [uids.ace(0x30002), uids.ACE_ADMIN, uids.ace(0x1FFE0)]


def test_descriptors_tell_byte_tables_from_object_tables(owned: Initiator) -> None:
    with OpalSession(owned, uids.LOCKING_SP) as session:
        mbr = session.get(schema.MBR.descriptor)
        assert (mbr[4], mbr[7], mbr[13]) == (2, 128 << 20, 1)
        assert session.get(schema.DATA_STORE.descriptor, 7, 7) == {7: 10 << 20}
        assert session.get(schema.LOCKING.descriptor, 4, 7) == {4: 1, 6: 11, 7: 9}


def test_columns_without_a_right_are_left_out_and_rows_without_one_refused(
    owned: Initiator,
) -> None:
    with OpalSession(owned, uids.LOCKING_SP) as session:
        row = uids.LOCKING_ROWS[1]
        assert session.get(row) == {0: row, 2: b""}
        assert session.get(row, 3, 8) == {}
        assert refused(session.call, uids.c_pin(ADMIN1), uids.GET) == Status.NOT_AUTHORIZED
        assert refused(session.call, uids.DATA_STORE, uids.GET) == Status.NOT_AUTHORIZED
        assert refused(session.call, ACE_SET_RULE, uids.GET) == Status.NOT_AUTHORIZED
    with OpalSession(owned, uids.LOCKING_SP, ADMIN1, OWNER) as session:
        pin = session.get(uids.c_pin(ADMIN1))
        assert 3 not in pin and pin[5] == 5, "nobody reads a PIN"


@pytest.mark.parametrize(
    "parameters",
    [
        [[Named(3, 5), Named(4, 3)]],
        [[Named(3, 5), Named(3, 5)]],
        [[Named(1, 0)]],
        [[Named(3, b"x")]],
        [[7]],
        [[], []],
        [[Named(9, 1)]],
    ],
)
def test_a_cell_block_that_means_nothing_is_refused(
    owned: Initiator, parameters: list[Value]
) -> None:
    with OpalSession(owned, uids.LOCKING_SP) as session:
        refusal = refused(session.call, uids.LOCKING_INFO, uids.GET, *parameters)
        assert refusal == Status.INVALID_PARAMETER


@pytest.mark.conformance(
    "initiator", "Set ACE", "Set Authority", "Set C_PIN", "Authenticate ThisSP", "Set Locking"
)
def test_only_specified_rules_can_be_changed(owned: Initiator) -> None:
    set_up_range(owned, OWNER, 1, (256, 256), USER2)
    with OpalSession(owned, uids.LOCKING_SP, ADMIN1, OWNER) as session:
        session.set(USERS[2], {5: 1})
        session.set(uids.c_pin(USERS[2]), {3: b"third"})
        expression: list[Value] = [
            Named(uids.HALF_AUTHORITY_REF, USERS[1]), Named(uids.HALF_AUTHORITY_REF, USERS[2]),
            Named(uids.HALF_BOOLEAN_ACE, 0),
        ]  # fmt: skip
        session.set(uids.ACE_READ_LOCKED[1], {3: expression})
        assert session.get(uids.ACE_READ_LOCKED[1])[3] == expression
        for ace in (uids.ACE_ANYBODY, uids.ACE_ADMIN, ACE_SET_RULE, uids.ace(0x3F001)):
            assert refused(session.call, ace, uids.SET, Named(1, [Named(3, expression)])) == 1
        for column in (0, 1, 4):
            values: Value = [Named(column, b"x")]
            assert refused(session.call, ACE_GET_ALL, uids.SET, Named(1, values)) == 1
    row = uids.LOCKING_ROWS[1]
    with OpalSession(owned, uids.LOCKING_SP, USERS[1], USER2) as session:
        assert refused(session.call, row, uids.SET, Named(1, [Named(7, 1)])) == 1
        called = session.call(uids.THIS_SP, uids.AUTHENTICATE, USERS[2], Named(0, b"third"))
        assert called == [1]
        session.set(row, {7: 1})


def test_administrators_beyond_the_first_must_be_enabled_and_the_first_stays(
    owned: Initiator,
) -> None:
    with OpalSession(owned, uids.LOCKING_SP, ADMIN1, OWNER) as session:
        session.set(uids.c_pin(ADMIN2), {3: b"deputy"})
        refusal = refused(session.call, ADMIN1, uids.SET, Named(1, [Named(5, 0)]))
        assert refusal == Status.INVALID_PARAMETER
    assert refused(OpalSession, owned, uids.LOCKING_SP, ADMIN2, b"deputy") == Status.NOT_AUTHORIZED
    with OpalSession(owned, uids.LOCKING_SP, ADMIN1, OWNER) as session:
        session.set(ADMIN2, {5: 1, 2: b"the deputy"})
        assert session.get(ADMIN2, 2, 5) == {2: b"the deputy", 3: 0, 4: uids.ADMINS_CLASS, 5: 1}
    with OpalSession(owned, uids.LOCKING_SP, ADMIN2, b"deputy") as session:
        session.set(uids.LOCKING_ROWS[3], {3: 512, 4: 256, 5: 1, 6: 1, 7: 1, 8: 1})


def test_an_enabled_user_without_a_pin_cannot_log_in(owned: Initiator) -> None:
    with OpalSession(owned, uids.LOCKING_SP, ADMIN1, OWNER) as session:
        session.set(USERS[4], {5: 1})
    for pin in (b"", bytes(32), None):
        assert refused(OpalSession, owned, uids.LOCKING_SP, USERS[4], pin) == Status.NOT_AUTHORIZED


@pytest.mark.conformance("initiator", "Revert SP", "Set TPerInfo", "Set TPerInfo refused")
def test_the_admin_sp_has_a_separate_administrator(owned: Initiator) -> None:
    who = uids.ADMIN_SP_ADMIN1
    with OpalSession(owned, uids.ADMIN_SP, uids.SID, OWNER) as session:
        session.set(uids.c_pin(who), {3: b"house"})
        assert session.get(who, 5, 5) == {5: 0}
        session.set(who, {5: 1})
    with OpalSession(owned, uids.ADMIN_SP, who, b"house") as session:
        assert refused(session.call, uids.C_PIN_SID, uids.SET, Named(1, [Named(3, b"x")])) == 1
        assert refused(session.call, uids.TPER_INFO, uids.SET, Named(1, [Named(8, 1)])) == 1
        assert refused(session.call, uids.LOCKING_SP, uids.ACTIVATE) == 1
        assert session.call(uids.LOCKING_SP, uids.REVERT) == []
    with OpalSession(owned, uids.ADMIN_SP, uids.SID, OWNER) as session:
        session.set(uids.TPER_INFO, {8: 1})
        assert session.get(uids.TPER_INFO, 7, 8) == {7: [b"Opal"], 8: 1}
        assert session.get(uids.LOCKING_SP, 6, 6) == {6: 8}
        assert session.call(uids.ADMIN_SP, uids.REVERT) == []
    assert refused(OpalSession, owned, uids.ADMIN_SP, who, b"house") == Status.NOT_AUTHORIZED
    with OpalSession(owned, uids.ADMIN_SP, uids.SID, msid(owned)) as session:
        assert session.get(uids.TPER_INFO, 8, 8) == {8: 0}


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        (uids.RANDOM, [b"x"]), (uids.RANDOM, [-1]), (uids.RANDOM, [1025]), (uids.RANDOM, []),
        (uids.RANDOM, [8, Named(0, b"x")]), (uids.AUTHENTICATE, []), (uids.AUTHENTICATE, [5]),
        (uids.REVERT_SP, [Named(7, 1)]), (uids.REVERT_SP, [Named(0x060000, 2)]),
    ],
)  # fmt: skip
def test_parameters_that_a_method_does_not_know_are_refused(
    owned: Initiator, method: bytes, parameters: list[Value]
) -> None:
    with OpalSession(owned, uids.LOCKING_SP, ADMIN1, OWNER) as session:
        refusal = refused(session.call, uids.THIS_SP, method, *parameters)
        assert refusal == Status.INVALID_PARAMETER


def test_single_user_mode_is_not_offered(sed: Drive) -> None:
    host = sed.connect()
    with OpalSession(host, uids.ADMIN_SP, uids.SID, msid(host)) as session:
        session.set(uids.C_PIN_SID, {3: OWNER})
        ranges: list[Value] = [uids.LOCKING_ROWS[1]]
        refusal = refused(session.call, uids.LOCKING_SP, uids.ACTIVATE, Named(0x060000, ranges))
        assert refusal == Status.INVALID_PARAMETER


@pytest.mark.parametrize(
    ("row", "written"),
    [
        (uids.C_PIN_SID, "0000000B 00000001"), (uids.c_pin(uids.SID), "0000000B 00000001"),
        (uids.C_PIN_MSID, "0000000B 00008402"), (uids.c_pin(ADMIN1), "0000000B 00010001"),
        (uids.c_pin(USERS[8]), "0000000B 00030009"), (uids.SID, "00000009 00000006"),
        (uids.PSID, "00000009 0001FF01"), (uids.ADMIN_SP_ADMIN1, "00000009 00000201"),
        (uids.LOCKING_ROWS[0], "00000802 00000001"), (uids.LOCKING_ROWS[8], "00000802 00030008"),
        (uids.key_rows(256)[0], "00000806 00000001"), (uids.key_rows(128)[2], "00000805 00030002"),
        (uids.MBR_CONTROL, "00000803 00000001"), (uids.MBR, "00000804 00000000"),
        (uids.DATA_STORE, "00001001 00000000"), (uids.TPER_INFO, "00000201 00030001"),
        (uids.ACE_RANGE_GET[1], "00000008 0003D001"),
        (uids.ACE_READ_LOCKED[1], "00000008 0003E001"),
        (uids.ACE_WRITE_LOCKED[8], "00000008 0003E808"),
        (uids.ACE_USER_PIN[0], "00000008 0003A801"),
        (uids.ACE_MBR_DONE, "00000008 0003F801"), (uids.ACE_DATA_STORE_GET, "00000008 0003FC00"),
        (uids.ace_gen_key(256)[0], "00000008 0003B800"), (uids.REVERT, "00000006 00000202"),
        (uids.ACTIVATE, "00000006 00000203"), (uids.GET_ACL, "00000006 0000000D"),
    ],
)  # fmt: skip
def test_identifiers_are_those_of_the_specification(row: bytes, written: str) -> None:
    assert row == bytes.fromhex(written)
