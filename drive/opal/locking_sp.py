"""Locking SP: users, rules, ranges with their keys, MBR shadow, DataStore (Opal 2.01, 4.3)."""

from __future__ import annotations

from drive.opal import locking_aces as rules
from drive.opal import schema
from drive.opal.access import parse_expression
from drive.opal.core import TRY_LIMIT, Core
from drive.opal.packets import Value
from drive.opal.provider import (
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
from drive.opal.uids import (
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
    ace_gen_key,
    c_pin,
    key_rows,
)

_METHODS = (NEXT, GET_ACL, GEN_KEY, REVERT_SP, GET, SET, AUTHENTICATE, RANDOM)
_AES_XTS_MODE = 7
_MAX_NAME_BYTES = 32
_GROUPS = {ANYBODY: b"Anybody", ADMINS_CLASS: b"Admins", USERS_CLASS: b"Users"}


def build(core: Core) -> Provider:
    """The Locking SP over the drive's state; it is to be offered while it is active only."""
    provider = Provider(
        uid=LOCKING_SP,
        tables=schema.locking_sp_tables(core.state.key_bits),
        admins=frozenset(ADMIN_AUTHORITIES),
        authorities=frozenset(LOCKING_AUTHORITIES),
        changed_rules=lambda: core.state.aces,
        byte_tables=core.byte_tables,
        aces=rules.build(core.state.key_bits),
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
    _grant_access(provider, core.state.key_bits)
    _grant_locking(provider, core.state.key_bits)
    return provider


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
        core.set_pin(who, values[3], writer.logins, writer.kek)

    return Object(read, write)


def _add_ranges(provider: Provider, core: Core) -> None:
    keys = key_rows(core.state.key_bits)
    for index, row in enumerate(LOCKING_ROWS):
        provider.objects[row] = _range(index, core)
        label = f"K_AES_{core.state.key_bits}_{rules.range_name(index)}_Key"
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
        name, common = (
            f"Locking_{rules.range_name(index)}",
            core.state.names.get(uid.hex(), b""),
        )
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


def _grant_access(provider: Provider, key_bits: int) -> None:
    provider.grant(REVERT_SP, (ACE_ADMIN,), THIS_SP)
    provider.grant(GET, (rules.ACE_GET_ALL,), *provider.aces)
    provider.grant(SET, (rules.ACE_SET_RULE,), *rules.changeable(key_bits))
    getters = (rules.AUTHORITY_GET_ALL, ACE_ANYBODY_GET_COMMON_NAME)
    provider.grant(GET, getters, *_GROUPS, *LOCKING_AUTHORITIES)
    provider.grant(GET, (rules.PIN_GET,), *(c_pin(who) for who in LOCKING_AUTHORITIES))
    for who in ADMIN_AUTHORITIES:
        provider.grant(SET, (rules.AUTHORITY_SET_ENABLED, ACE_ADMINS_SET_COMMON_NAME), who)
        provider.grant(SET, (rules.ADMINS_SET_PIN,), c_pin(who))
    for index, who in enumerate(USER_AUTHORITIES):
        provider.grant(SET, (rules.AUTHORITY_SET_ENABLED, ACE_USER_COMMON_NAME[index]), who)
        provider.grant(SET, (ACE_USER_PIN[index],), c_pin(who))


def _grant_locking(provider: Provider, key_bits: int) -> None:
    provider.grant(GET, (ACE_ANYBODY,), LOCKING_INFO, MBR_CONTROL, MBR)
    for index, (row, key) in enumerate(zip(LOCKING_ROWS, key_rows(key_bits), strict=True)):
        provider.grant(GET, (ACE_RANGE_GET[index], ACE_ANYBODY_GET_COMMON_NAME), row)
        setters = (ACE_READ_LOCKED[index], ACE_WRITE_LOCKED[index], ACE_ADMINS_SET_COMMON_NAME)
        provider.grant(SET, (rules.RANGE_SET if index else rules.GLOBAL_SET, *setters), row)
        provider.grant(GET, (rules.KEY_MODE,), key)
        provider.grant(GEN_KEY, (ace_gen_key(key_bits)[index],), key)
    provider.grant(SET, (rules.MBR_SET, ACE_MBR_DONE), MBR_CONTROL)
    provider.grant(SET, (ACE_ADMIN,), MBR)
    provider.grant(GET, (ACE_DATA_STORE_GET,), DATA_STORE)
    provider.grant(SET, (ACE_DATA_STORE_SET,), DATA_STORE)
