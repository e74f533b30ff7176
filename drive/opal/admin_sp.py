"""Admin SP: ownership of the drive, and the life cycle of the Locking SP (Opal 2.01, section 4.2).

The PSID authority with its rows is that of the feature set "PSID" 1.00.
"""

from __future__ import annotations

from . import schema, uids
from .access import Ace, any_of
from .core import TRY_LIMIT, Core
from .packets import Value
from .provider import (
    ADMIN_TEMPLATE,
    BASE_TEMPLATE,
    LOCKING_TEMPLATE,
    TEMPLATE_NAMES,
    Object,
    Provider,
    Row,
    Writer,
    add_aces,
    add_base,
    authority_row,
    flag,
    static,
)
from .uids import MethodError, Status

_MANUFACTURED_INACTIVE, _MANUFACTURED = 8, 9
_METHODS = (
    uids.NEXT,
    uids.GET_ACL,
    uids.GET,
    uids.SET,
    uids.AUTHENTICATE,
    uids.REVERT,
    uids.ACTIVATE,
    uids.RANDOM,
)
_SET_ENABLED, _SP_SID, _SET_RESET = uids.ace(0x30001), uids.ace(0x30002), uids.ace(0x30003)
_PIN_GET, _SID_SET_PIN, _MSID_GET = uids.ace(0x8C02), uids.ace(0x8C03), uids.ace(0x8C04)
_ADMINS_SET_PIN = uids.ace(0x3A001)
_SP_PSID, _PSID_GET = uids.ace(0x1FFE0), uids.ace(0x1FFE1)
_C_PIN_ADMIN1, _C_PIN_PSID = uids.c_pin(uids.ADMIN_SP_ADMIN1), uids.c_pin(uids.PSID)
_NO_PIN = schema.C_PIN.numbers("UID", "CharSet", "TryLimit", "Tries", "Persistence")


def _aces() -> dict[bytes, Ace]:
    pin = schema.C_PIN.numbers("PIN")
    owners = any_of(uids.ADMINS_CLASS, uids.SID)
    return {
        uids.ACE_ANYBODY: Ace("ACE_Anybody", any_of(uids.ANYBODY)),
        uids.ACE_ADMIN: Ace("ACE_Admin", any_of(uids.ADMINS_CLASS)),
        _SET_ENABLED: Ace("ACE_Set_Enabled", any_of(uids.SID), schema.AUTHORITY.numbers("Enabled")),
        _PIN_GET: Ace("ACE_C_PIN_SID_Get_NOPIN", owners, _NO_PIN),
        _SID_SET_PIN: Ace("ACE_C_PIN_SID_Set_PIN", any_of(uids.SID), pin),
        _MSID_GET: Ace(
            "ACE_C_PIN_MSID_Get_PIN", any_of(uids.ANYBODY), schema.C_PIN.numbers("UID", "PIN")
        ),
        _ADMINS_SET_PIN: Ace("ACE_C_PIN_Admins_Set_PIN", owners, pin),
        _SET_RESET: Ace(
            "ACE_TPerInfo_Set_ProgrammaticResetEnable", any_of(uids.SID),
            schema.TPER_INFO.numbers("ProgrammaticResetEnable"),
        ),
        _SP_SID: Ace("ACE_SP_SID", any_of(uids.SID)),
        _SP_PSID: Ace("ACE_SP_PSID", any_of(uids.PSID)),
        _PSID_GET: Ace("ACE_C_PIN_Get_PSID_NoPIN", any_of(uids.ANYBODY), _NO_PIN),
    }  # fmt: skip


def build(core: Core) -> Provider:
    """Return the Admin SP over the drive's state."""
    provider = Provider(
        uid=uids.ADMIN_SP,
        tables=schema.ADMIN_SP_TABLES,
        admins=frozenset({uids.ADMIN_SP_ADMIN1}),
        authorities=frozenset({uids.SID, uids.PSID, uids.ADMIN_SP_ADMIN1}),
        changed_rules=dict,
        aces=_aces(),
    )
    add_aces(provider, _fixed_rule)
    _add_authorities(provider, core)
    _add_pins(provider, core)
    _add_drive(provider, core)
    add_base(provider, b"Admin", (BASE_TEMPLATE, ADMIN_TEMPLATE), _METHODS)
    _grant(provider)
    return provider


def _fixed_rule(_ace: bytes, _value: Value) -> None:
    raise MethodError(Status.NOT_AUTHORIZED)  # no ACL of this SP lets anybody come here


def _add_authorities(provider: Provider, core: Core) -> None:
    for who, name in (
        (uids.ANYBODY, b"Anybody"),
        (uids.ADMINS_CLASS, b"Admins"),
        (uids.SID, b"SID"),
    ):
        provider.objects[who] = static(authority_row(who, name, True, b"", bytes(8)))
    provider.objects[uids.MAKERS_CLASS] = static(
        authority_row(uids.MAKERS_CLASS, b"Makers", True, b"", bytes(8))
        | {3: 1, 9: 0, 10: bytes(8)}
    )
    provider.objects[uids.PSID] = static(authority_row(uids.PSID, b"PSID", True, b"", bytes(8)))

    def read() -> Row:
        enabled = core.state.admin1.enabled
        return authority_row(uids.ADMIN_SP_ADMIN1, b"Admin1", enabled, b"", uids.ADMINS_CLASS)

    def write(values: Row, _writer: Writer) -> None:
        core.state.admin1.enabled = flag(values[5])

    provider.objects[uids.ADMIN_SP_ADMIN1] = Object(read, write)


def _add_pins(provider: Provider, core: Core) -> None:
    def pin_row(who: bytes, name: bytes) -> Object:
        def read() -> Row:
            tries = core.tries.get(who, 0)
            return {0: uids.c_pin(who), 1: name, 4: bytes(8), 5: TRY_LIMIT, 6: tries, 7: 0}

        return Object(read, lambda values, by: core.set_pin(who, values[3], by.logins, None))

    objects = provider.objects
    objects[uids.C_PIN_SID] = pin_row(uids.SID, b"C_PIN_SID")
    objects[_C_PIN_ADMIN1] = pin_row(uids.ADMIN_SP_ADMIN1, b"C_PIN_Admin1")
    objects[_C_PIN_PSID] = pin_row(uids.PSID, b"C_PIN_PSID")
    objects[uids.C_PIN_MSID] = static({0: uids.C_PIN_MSID, 1: b"C_PIN_MSID", 3: core.state.msid})


def _add_drive(provider: Provider, core: Core) -> None:
    def set_reset(values: Row, _writer: Writer) -> None:
        core.state.programmatic_reset = flag(values[8])

    def tper_info() -> Row:
        enabled = int(core.state.programmatic_reset)
        return {0: uids.TPER_INFO, 5: 1, 7: [b"Opal"], 8: enabled}

    def locking_sp() -> Row:
        life_cycle = _MANUFACTURED if core.state.locking_active else _MANUFACTURED_INACTIVE
        return {0: uids.LOCKING_SP, 1: b"Locking", 6: life_cycle, 7: 0}

    provider.objects[uids.TPER_INFO] = Object(tper_info, set_reset)
    provider.objects[uids.ADMIN_SP] = static(
        {0: uids.ADMIN_SP, 1: b"Admin", 6: _MANUFACTURED, 7: 0}
    )
    provider.objects[uids.LOCKING_SP] = Object(locking_sp)
    for template in (BASE_TEMPLATE, ADMIN_TEMPLATE, LOCKING_TEMPLATE):
        instances = 2 if template == BASE_TEMPLATE else 1
        row: Row = {0: template, 1: TEMPLATE_NAMES[template], 2: 1, 3: instances, 4: instances}
        provider.objects[template] = static(row)


def _grant(provider: Provider) -> None:
    everybody = (uids.ACE_ANYBODY,)
    for table in (schema.ACE, schema.AUTHORITY, schema.TEMPLATE, schema.SP, schema.TPER_INFO):
        provider.grant(uids.GET, everybody, *provider.rows(table.uid))
    provider.grant(uids.SET, (_SET_ENABLED,), uids.ADMIN_SP_ADMIN1)
    provider.grant(uids.SET, (_SET_RESET,), uids.TPER_INFO)
    provider.grant(uids.GET, (_PIN_GET,), uids.C_PIN_SID, _C_PIN_ADMIN1)
    provider.grant(uids.GET, (_MSID_GET,), uids.C_PIN_MSID)
    provider.grant(uids.GET, (_PSID_GET,), _C_PIN_PSID)
    provider.grant(uids.SET, (_SID_SET_PIN,), uids.C_PIN_SID)
    provider.grant(uids.SET, (_ADMINS_SET_PIN,), _C_PIN_ADMIN1)
    provider.grant(uids.REVERT, (_SP_SID, uids.ACE_ADMIN, _SP_PSID), uids.ADMIN_SP)
    provider.grant(uids.REVERT, (_SP_SID, uids.ACE_ADMIN), uids.LOCKING_SP)
    provider.grant(uids.ACTIVATE, (_SP_SID,), uids.ADMIN_SP, uids.LOCKING_SP)
