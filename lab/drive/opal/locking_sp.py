"""Locking SP: users, rules, ranges with their keys, MBR shadow, DataStore (Opal 2.01, 4.3)."""

from __future__ import annotations

from lab.drive.opal import schema
from lab.drive.opal.access import Ace, any_of, parse_expression
from lab.drive.opal.core import TRY_LIMIT, Core
from lab.drive.opal.provider import (
    BASE_TEMPLATE,
    LOCKING_TEMPLATE,
    Object,
    Provider,
    Row,
    Writer,
    add_aces,
    add_base,
    authority_row,
    flag,
    reset_events,
    static,
)
from lab.drive.opal.tokens import Value
from lab.drive.opal.uids import (
    ACE_ADMIN,
    ACE_ADMINS_SET_COMMON_NAME,
    ACE_ANYBODY,
    ACE_ANYBODY_GET_COMMON_NAME,
    ACE_DATA_STORE_GET,
    ACE_DATA_STORE_SET,
    ACE_MBR_DONE,
    ACE_RANGE_GET,
    ACE_READ_LOCKED,
    ACE_USER_COMMON_NAME,
    ACE_USER_PIN,
    ACE_WRITE_LOCKED,
    ADMIN_AUTHORITIES,
    ADMINS_CLASS,
    ANYBODY,
    AUTHENTICATE,
    AUTHORITY_NAMES,
    DATA_STORE,
    GEN_KEY,
    GET,
    GET_ACL,
    LOCKING_AUTHORITIES,
    LOCKING_INFO,
    LOCKING_ROWS,
    LOCKING_SP,
    MBR,
    MBR_CONTROL,
    NEXT,
    RANDOM,
    RANGES,
    REVERT_SP,
    SET,
    THIS_SP,
    USER_AUTHORITIES,
    USERS_CLASS,
    MethodError,
    Status,
    ace,
    ace_gen_key,
    c_pin,
    key_rows,
)

_METHODS = (NEXT, GET_ACL, GEN_KEY, REVERT_SP, GET, SET, AUTHENTICATE, RANDOM)
_ACE_GET_ALL, _ACE_SET_RULE = ace(0x38000), ace(0x38001)
_AUTHORITY_GET_ALL, _AUTHORITY_SET_ENABLED = ace(0x39000), ace(0x39001)
_PIN_GET, _ADMINS_SET_PIN = ace(0x3A000), ace(0x3A001)
_KEY_MODE = ace(0x3BFFF)
_GLOBAL_SET, _RANGE_SET = ace(0x3F000), ace(0x3F001)
_MBR_SET = ace(0x3F800)
_AES_XTS_MODE = 7
_MAX_NAME_BYTES = 32
_RULES_TO_CHANGE = (
    _ACE_GET_ALL, _AUTHORITY_GET_ALL, *ACE_USER_PIN, *ACE_USER_COMMON_NAME, *ACE_RANGE_GET,
    *ACE_READ_LOCKED, *ACE_WRITE_LOCKED, ACE_MBR_DONE, ACE_DATA_STORE_GET, ACE_DATA_STORE_SET,
)  # fmt: skip
_GROUPS = {ANYBODY: b"Anybody", ADMINS_CLASS: b"Admins", USERS_CLASS: b"Users"}


def range_name(index: int) -> str:
    """How the specification names a range in its rows and rules."""
    return f"Range{index}" if index else "GlobalRange"


def build(core: Core) -> Provider:
    """The Locking SP over the drive's state; it is to be offered while it is active only."""
    provider = Provider(
        uid=LOCKING_SP,
        tables=schema.locking_sp_tables(core.state.key_bits),
        admins=frozenset(ADMIN_AUTHORITIES),
        authorities=frozenset(LOCKING_AUTHORITIES),
        changed_rules=lambda: core.state.aces,
        byte_tables=core.byte_tables,
        aces=_fixed_aces() | _user_aces() | _range_aces(core.state.key_bits),
    )
    known = frozenset((*_GROUPS, *LOCKING_AUTHORITIES))

    def set_rule(row: bytes, value: Value) -> None:
        core.state.aces[row.hex()] = parse_expression(value, known)

    add_aces(provider, set_rule)
    _add_authorities(provider, core)
    _add_ranges(provider, core)
    _add_locking_info(provider, core)
    _add_mbr_control(provider, core)
    add_base(provider, b"Locking", (BASE_TEMPLATE, LOCKING_TEMPLATE), _METHODS)
    _grant_access(provider)
    _grant_locking(provider, core.state.key_bits)
    return provider


# Rules.


def _fixed_aces() -> dict[bytes, Ace]:
    admins = any_of(ADMINS_CLASS)
    mbr, authority, pin = schema.MBR_CONTROL, schema.AUTHORITY, schema.C_PIN
    named = schema.LOCKING.numbers("UID", "CommonName")
    no_pin = pin.numbers("UID", "CharSet", "TryLimit", "Tries", "Persistence")
    to_lor = schema.LOCKING.numbers(
        "ReadLockEnabled", "WriteLockEnabled", "ReadLocked", "WriteLocked", "LockOnReset"
    )
    extent = schema.LOCKING.numbers("RangeStart", "RangeLength")
    return {
        ACE_ANYBODY: Ace("ACE_Anybody", any_of(ANYBODY)),
        ACE_ADMIN: Ace("ACE_Admin", admins),
        ACE_ANYBODY_GET_COMMON_NAME: Ace("ACE_Anybody_Get_CommonName", any_of(ANYBODY), named),
        ACE_ADMINS_SET_COMMON_NAME: Ace(
            "ACE_Admins_Set_CommonName", admins, authority.numbers("CommonName")
        ),
        _ACE_GET_ALL: Ace("ACE_ACE_Get_All", admins),
        _ACE_SET_RULE: Ace(
            "ACE_ACE_Set_BooleanExpression", admins, schema.ACE.numbers("BooleanExpr")
        ),
        _AUTHORITY_GET_ALL: Ace("ACE_Authority_Get_All", admins),
        _AUTHORITY_SET_ENABLED: Ace(
            "ACE_Authority_Set_Enabled", admins, authority.numbers("Enabled")
        ),
        _PIN_GET: Ace("ACE_C_PIN_Admins_Get_All_NOPIN", admins, no_pin),
        _ADMINS_SET_PIN: Ace("ACE_C_PIN_Admins_Set_PIN", admins, pin.numbers("PIN")),
        _KEY_MODE: Ace("ACE_K_AES_Mode", any_of(ANYBODY), schema.K_AES_256.numbers("UID", "Mode")),
        _GLOBAL_SET: Ace("ACE_Locking_GlblRng_Admins_Set", admins, to_lor),
        _RANGE_SET: Ace("ACE_Locking_Admins_RangeStartToLOR", admins, extent | to_lor),
        _MBR_SET: Ace(
            "ACE_MBRControl_Admins_Set", admins, mbr.numbers("Enable", "Done", "DoneOnReset")
        ),
        ACE_MBR_DONE: Ace(
            "ACE_MBRControl_Set_DoneToDOR", admins, mbr.numbers("Done", "DoneOnReset")
        ),
        ACE_DATA_STORE_GET: Ace("ACE_DataStore_Get_All", admins),
        ACE_DATA_STORE_SET: Ace("ACE_DataStore_Set_All", admins),
    }


def _user_aces() -> dict[bytes, Ace]:
    pin, name = schema.C_PIN.numbers("PIN"), schema.AUTHORITY.numbers("CommonName")
    aces = {}
    for index, user in enumerate(USER_AUTHORITIES):
        who = f"User{index + 1}"
        owners = any_of(ADMINS_CLASS, user)
        aces[ACE_USER_PIN[index]] = Ace(f"ACE_C_PIN_{who}_Set_PIN", owners, pin)
        admins = any_of(ADMINS_CLASS)
        aces[ACE_USER_COMMON_NAME[index]] = Ace(f"ACE_{who}_Set_CommonName", admins, name)
    return aces


def _range_aces(key_bits: int) -> dict[bytes, Ace]:
    admins, locking = any_of(ADMINS_CLASS), schema.LOCKING
    shown = frozenset(range(3, 11))  # RangeStart to ActiveKey
    aces = {}
    for index in range(RANGES):
        name = range_name(index)
        aces[ACE_RANGE_GET[index]] = Ace(
            f"ACE_Locking_{name}_Get_RangeStartToActiveKey", admins, shown
        )
        for rows, word, column in (
            (ACE_READ_LOCKED, "RdLocked", "ReadLocked"),
            (ACE_WRITE_LOCKED, "WrLocked", "WriteLocked"),
        ):
            label = f"ACE_Locking_{name}_Set_{word}"
            aces[rows[index]] = Ace(label, admins, locking.numbers(column))
        aces[ace_gen_key(key_bits)[index]] = Ace(f"ACE_K_AES_{key_bits}_{name}_GenKey", admins)
    return aces


# Rows.


def _add_authorities(provider: Provider, core: Core) -> None:
    for who, name in _GROUPS.items():
        provider.objects[who] = static(authority_row(who, name, True, b"", bytes(8)))
    for who in LOCKING_AUTHORITIES:
        provider.objects[who] = _authority(who, core)
        provider.objects[c_pin(who)] = _pin(who, core)


def _authority(who: bytes, core: Core) -> Object:
    name = AUTHORITY_NAMES[who]
    owner = ADMINS_CLASS if who in ADMIN_AUTHORITIES else USERS_CLASS

    def read() -> Row:
        enabled = core.state.authorities[name].enabled
        common = core.state.names.get(who.hex(), b"")
        return authority_row(who, name.encode(), enabled, common, owner)

    def write(values: Row, _writer: Writer) -> None:
        if 5 in values:
            enabled = flag(values[5])
            if who == ADMIN_AUTHORITIES[0] and not enabled:
                raise MethodError(Status.INVALID_PARAMETER)  # nobody could undo it
            core.state.authorities[name].enabled = enabled
        _set_common_name(core, who, values)

    return Object(read, write)


def _set_common_name(core: Core, row: bytes, values: Row) -> None:
    match values.get(2, b""):
        case bytes(name) if len(name) <= _MAX_NAME_BYTES:
            if 2 in values:
                core.state.names[row.hex()] = name
        case _:
            raise MethodError(Status.INVALID_PARAMETER)


def _pin(who: bytes, core: Core) -> Object:
    name = f"C_PIN_{AUTHORITY_NAMES[who]}".encode()

    def read() -> Row:
        tries = core.tries.get(who, 0)
        return {0: c_pin(who), 1: name, 4: bytes(8), 5: TRY_LIMIT, 6: tries, 7: 0}

    def write(values: Row, writer: Writer) -> None:
        if writer.kek is None:
            raise MethodError(Status.NOT_AUTHORIZED)
        core.set_pin(who, values[3], writer.kek)

    return Object(read, write)


def _add_ranges(provider: Provider, core: Core) -> None:
    keys = key_rows(core.state.key_bits)
    for index, row in enumerate(LOCKING_ROWS):
        provider.objects[row] = _range(index, core)
        label = f"K_AES_{core.state.key_bits}_{range_name(index)}_Key"
        provider.objects[keys[index]] = static(
            {0: keys[index], 1: label.encode(), 4: _AES_XTS_MODE}
        )


def _range(index: int, core: Core) -> Object:
    uid, key = LOCKING_ROWS[index], key_rows(core.state.key_bits)[index]
    fields = {
        3: "start", 4: "length", 5: "read_lock_enabled", 6: "write_lock_enabled",
        7: "read_locked", 8: "write_locked",
    }  # fmt: skip

    def read() -> Row:
        row = core.state.ranges[index]
        columns: Row = {column: int(getattr(row, name)) for column, name in fields.items()}
        events: list[Value] = [*row.lock_on_reset]
        name, common = f"Locking_{range_name(index)}", core.state.names.get(uid.hex(), b"")
        return {0: uid, 1: name.encode(), 2: common, **columns, 9: events, 10: key}

    def write(values: Row, writer: Writer) -> None:
        row = core.state.ranges[index]
        for column, value in values.items():
            if column in (3, 4):
                setattr(row, fields[column], _unsigned(value))
            elif column in fields:
                setattr(row, fields[column], flag(value))
            elif column == 9:
                row.lock_on_reset = reset_events(value)
        _set_common_name(core, uid, values)
        core.locking.check_geometry(index)
        core.locking.settle(index, writer.kek)

    return Object(read, write)


def _unsigned(value: Value) -> int:
    if not isinstance(value, int) or value < 0:
        raise MethodError(Status.INVALID_PARAMETER)
    return value


def _add_locking_info(provider: Provider, core: Core) -> None:
    align, block_bytes = core.locking.alignment_blocks, core.locking.block_bytes
    provider.objects[LOCKING_INFO] = static(
        {
            0: LOCKING_INFO, 1: b"LockingInfo", 2: 1, 3: 1, 4: RANGES - 1, 5: 0, 6: 0,
            7: int(align > 1), 8: block_bytes, 9: align, 10: 0,
        }
    )  # fmt: skip


def _add_mbr_control(provider: Provider, core: Core) -> None:
    def read() -> Row:
        mbr = core.state.mbr
        events: list[Value] = [*mbr.done_on_reset]
        return {0: MBR_CONTROL, 1: int(mbr.enabled), 2: int(mbr.done), 3: events}

    def write(values: Row, _writer: Writer) -> None:
        mbr = core.state.mbr
        if 1 in values:
            mbr.enabled = flag(values[1])
        if 2 in values:
            mbr.done = flag(values[2])
        if 3 in values:
            mbr.done_on_reset = reset_events(values[3])

    provider.objects[MBR_CONTROL] = Object(read, write)


# Who may.


def _grant_access(provider: Provider) -> None:
    provider.grant(REVERT_SP, (ACE_ADMIN,), THIS_SP)
    provider.grant(GET, (_ACE_GET_ALL,), *provider.aces)
    provider.grant(SET, (_ACE_SET_RULE,), *_RULES_TO_CHANGE)
    getters = (_AUTHORITY_GET_ALL, ACE_ANYBODY_GET_COMMON_NAME)
    provider.grant(GET, getters, *_GROUPS, *LOCKING_AUTHORITIES)
    provider.grant(GET, (_PIN_GET,), *(c_pin(who) for who in LOCKING_AUTHORITIES))
    for who in ADMIN_AUTHORITIES:
        provider.grant(SET, (_AUTHORITY_SET_ENABLED, ACE_ADMINS_SET_COMMON_NAME), who)
        provider.grant(SET, (_ADMINS_SET_PIN,), c_pin(who))
    for index, who in enumerate(USER_AUTHORITIES):
        provider.grant(SET, (_AUTHORITY_SET_ENABLED, ACE_USER_COMMON_NAME[index]), who)
        provider.grant(SET, (ACE_USER_PIN[index],), c_pin(who))


def _grant_locking(provider: Provider, key_bits: int) -> None:
    provider.grant(GET, (ACE_ANYBODY,), LOCKING_INFO, MBR_CONTROL, MBR)
    for index, (row, key) in enumerate(zip(LOCKING_ROWS, key_rows(key_bits), strict=True)):
        provider.grant(GET, (ACE_RANGE_GET[index], ACE_ANYBODY_GET_COMMON_NAME), row)
        setters = (ACE_READ_LOCKED[index], ACE_WRITE_LOCKED[index], ACE_ADMINS_SET_COMMON_NAME)
        provider.grant(SET, (_RANGE_SET if index else _GLOBAL_SET, *setters), row)
        provider.grant(GET, (_KEY_MODE,), key)
        provider.grant(GEN_KEY, (ace_gen_key(key_bits)[index],), key)
    provider.grant(SET, (_MBR_SET, ACE_MBR_DONE), MBR_CONTROL)
    provider.grant(SET, (ACE_ADMIN,), MBR)
    provider.grant(GET, (ACE_DATA_STORE_GET,), DATA_STORE)
    provider.grant(SET, (ACE_DATA_STORE_SET,), DATA_STORE)
