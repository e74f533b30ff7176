"""Locking SP: users, rules, ranges with their keys, MBR shadow, DataStore (Opal 2.01, 4.3)."""

from __future__ import annotations

from . import locking_aces as rules
from . import schema, uids
from .access import parse_expression
from .core import TRY_LIMIT, Core
from .packets import Value
from .provider import (
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
from .uids import MethodError, Status

_METHODS = (
    uids.NEXT,
    uids.GET_ACL,
    uids.GEN_KEY,
    uids.REVERT_SP,
    uids.GET,
    uids.SET,
    uids.AUTHENTICATE,
    uids.RANDOM,
)
_AES_XTS_MODE = 7
_MAX_NAME_BYTES = 32
_GROUPS = {uids.ANYBODY: b"Anybody", uids.ADMINS_CLASS: b"Admins", uids.USERS_CLASS: b"Users"}


def build(core: Core) -> Provider:
    """Return the Locking SP over the drive's state; offer it only while it is active."""
    provider = Provider(
        uid=uids.LOCKING_SP,
        tables=schema.locking_sp_tables(core.state.key_bits),
        admins=frozenset(uids.ADMIN_AUTHORITIES),
        authorities=frozenset(uids.LOCKING_AUTHORITIES),
        changed_rules=lambda: core.state.aces,
        byte_tables=core.byte_tables,
        aces=rules.build(core.state.key_bits),
    )
    valid_authorities = frozenset((*_GROUPS, *uids.LOCKING_AUTHORITIES))

    def set_rule(row: bytes, value: Value) -> None:
        core.state.aces[row.hex()] = parse_expression(value, valid_authorities)

    add_aces(provider, set_rule)
    for who, name in _GROUPS.items():
        provider.objects[who] = static(authority_row(who, name, True, b"", bytes(8)))
    for who in uids.LOCKING_AUTHORITIES:
        provider.objects[who] = _authority(who, core)
        provider.objects[uids.c_pin(who)] = _pin(who, core)
    _add_ranges(provider, core)
    _add_locking_info(provider, core)
    _add_mbr_control(provider, core)
    add_base(provider, b"Locking", (BASE_TEMPLATE, LOCKING_TEMPLATE), _METHODS)
    _grant_access(provider, core.state.key_bits)
    _grant_locking(provider, core.state.key_bits)
    return provider


def _authority(who: bytes, core: Core) -> Object:
    name = uids.AUTHORITY_NAMES[who]
    owner = uids.ADMINS_CLASS if who in uids.ADMIN_AUTHORITIES else uids.USERS_CLASS

    def read() -> Row:
        enabled = core.state.authorities[name].enabled
        common = core.state.names.get(who.hex(), b"")
        return authority_row(who, name.encode(), enabled, common, owner)

    def write(values: Row, _writer: Writer) -> None:
        if 5 in values:
            enabled = flag(values[5])
            if who == uids.ADMIN_AUTHORITIES[0] and not enabled:
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
    name = f"C_PIN_{uids.AUTHORITY_NAMES[who]}".encode()

    def read() -> Row:
        tries = core.tries.get(who, 0)
        return {0: uids.c_pin(who), 1: name, 4: bytes(8), 5: TRY_LIMIT, 6: tries, 7: 0}

    def write(values: Row, writer: Writer) -> None:
        if writer.kek is None:
            raise MethodError(Status.NOT_AUTHORIZED)
        core.set_pin(who, values[3], writer.logins, writer.kek)

    return Object(read, write)


def _add_ranges(provider: Provider, core: Core) -> None:
    keys = uids.key_rows(core.state.key_bits)
    for index, row in enumerate(uids.LOCKING_ROWS):
        provider.objects[row] = _range(index, core)
        label = f"K_AES_{core.state.key_bits}_{rules.range_name(index)}_Key"
        provider.objects[keys[index]] = static(
            {0: keys[index], 1: label.encode(), 4: _AES_XTS_MODE}
        )


def _range(index: int, core: Core) -> Object:
    uid, key = uids.LOCKING_ROWS[index], uids.key_rows(core.state.key_bits)[index]
    fields = {
        3: "start", 4: "length", 5: "read_lock_enabled", 6: "write_lock_enabled",
        7: "read_locked", 8: "write_locked",
    }  # fmt: skip

    def read() -> Row:
        row = core.state.ranges[index]
        columns: Row = {column: int(getattr(row, name)) for column, name in fields.items()}
        events: list[Value] = [*row.lock_on_reset]
        name, common = (f"Locking_{rules.range_name(index)}", core.state.names.get(uid.hex(), b""))
        return {0: uid, 1: name.encode(), 2: common, **columns, 9: events, 10: key}

    def write(values: Row, writer: Writer) -> None:
        row = core.state.ranges[index]
        for column, value in values.items():
            if column in (3, 4):
                if not isinstance(value, int) or value < 0:
                    raise MethodError(Status.INVALID_PARAMETER)
                setattr(row, fields[column], value)
            elif column in fields:
                setattr(row, fields[column], flag(value))
            elif column == 9:
                row.lock_on_reset = reset_events(value)
        _set_common_name(core, uid, values)
        core.locking.check_geometry(index)
        core.locking.settle(index, writer.kek)

    return Object(read, write)


def _add_locking_info(provider: Provider, core: Core) -> None:
    align, block_bytes = core.locking.alignment_blocks, core.locking.block_bytes
    provider.objects[uids.LOCKING_INFO] = static(
        {
            0: uids.LOCKING_INFO, 1: b"LockingInfo", 2: 1, 3: 1, 4: uids.RANGES - 1, 5: 0, 6: 0,
            7: int(align > 1), 8: block_bytes, 9: align, 10: 0,
        }
    )  # fmt: skip


def _add_mbr_control(provider: Provider, core: Core) -> None:
    def read() -> Row:
        mbr = core.state.mbr
        events: list[Value] = [*mbr.done_on_reset]
        return {0: uids.MBR_CONTROL, 1: int(mbr.enabled), 2: int(mbr.done), 3: events}

    def write(values: Row, _writer: Writer) -> None:
        mbr = core.state.mbr
        if 1 in values:
            mbr.enabled = flag(values[1])
        if 2 in values:
            mbr.done = flag(values[2])
        if 3 in values:
            mbr.done_on_reset = reset_events(values[3])

    provider.objects[uids.MBR_CONTROL] = Object(read, write)


# Who may.


def _grant_access(provider: Provider, key_bits: int) -> None:
    provider.grant(uids.REVERT_SP, (uids.ACE_ADMIN,), uids.THIS_SP)
    provider.grant(uids.GET, (rules.ACE_GET_ALL,), *provider.aces)
    provider.grant(uids.SET, (rules.ACE_SET_RULE,), *rules.changeable(key_bits))
    getters = (rules.AUTHORITY_GET_ALL, uids.ACE_ANYBODY_GET_COMMON_NAME)
    provider.grant(uids.GET, getters, *_GROUPS, *uids.LOCKING_AUTHORITIES)
    provider.grant(
        uids.GET, (rules.PIN_GET,), *(uids.c_pin(who) for who in uids.LOCKING_AUTHORITIES)
    )
    for who in uids.ADMIN_AUTHORITIES:
        provider.grant(
            uids.SET, (rules.AUTHORITY_SET_ENABLED, uids.ACE_ADMINS_SET_COMMON_NAME), who
        )
        provider.grant(uids.SET, (rules.ADMINS_SET_PIN,), uids.c_pin(who))
    for index, who in enumerate(uids.USER_AUTHORITIES):
        provider.grant(
            uids.SET, (rules.AUTHORITY_SET_ENABLED, uids.ACE_USER_COMMON_NAME[index]), who
        )
        provider.grant(uids.SET, (uids.ACE_USER_PIN[index],), uids.c_pin(who))


def _grant_locking(provider: Provider, key_bits: int) -> None:
    provider.grant(uids.GET, (uids.ACE_ANYBODY,), uids.LOCKING_INFO, uids.MBR_CONTROL, uids.MBR)
    for index, (row, key) in enumerate(
        zip(uids.LOCKING_ROWS, uids.key_rows(key_bits), strict=True)
    ):
        provider.grant(uids.GET, (uids.ACE_RANGE_GET[index], uids.ACE_ANYBODY_GET_COMMON_NAME), row)
        setters = (
            uids.ACE_READ_LOCKED[index],
            uids.ACE_WRITE_LOCKED[index],
            uids.ACE_ADMINS_SET_COMMON_NAME,
        )
        provider.grant(uids.SET, (rules.RANGE_SET if index else rules.GLOBAL_SET, *setters), row)
        provider.grant(uids.GET, (rules.KEY_MODE,), key)
        provider.grant(uids.GEN_KEY, (uids.ace_gen_key(key_bits)[index],), key)
    provider.grant(uids.SET, (rules.MBR_SET, uids.ACE_MBR_DONE), uids.MBR_CONTROL)
    provider.grant(uids.SET, (uids.ACE_ADMIN,), uids.MBR)
    provider.grant(uids.GET, (uids.ACE_DATA_STORE_GET,), uids.DATA_STORE)
    provider.grant(uids.SET, (uids.ACE_DATA_STORE_SET,), uids.DATA_STORE)
