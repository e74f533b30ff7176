"""The Locking SP's access control elements as preconfigured (Opal 2.01, section 4.3.1.7)."""

from __future__ import annotations

from . import schema, uids
from .access import Ace, any_of

ACE_GET_ALL, ACE_SET_RULE = uids.ace(0x38000), uids.ace(0x38001)
AUTHORITY_GET_ALL, AUTHORITY_SET_ENABLED = uids.ace(0x39000), uids.ace(0x39001)
PIN_GET, ADMINS_SET_PIN = uids.ace(0x3A000), uids.ace(0x3A001)
KEY_MODE = uids.ace(0x3BFFF)
GLOBAL_SET, RANGE_SET = uids.ace(0x3F000), uids.ace(0x3F001)
MBR_SET = uids.ace(0x3F800)


def build(key_bits: int) -> dict[bytes, Ace]:
    """Return all elements by UID."""
    return _fixed() | _user_aces() | _range_aces(key_bits)


def changeable(key_bits: int) -> tuple[bytes, ...]:
    """Return the ACEs whose BooleanExpr an administrator may set."""
    return (
        ACE_GET_ALL, AUTHORITY_GET_ALL, *uids.ACE_USER_PIN, *uids.ACE_USER_COMMON_NAME,
        *uids.ACE_RANGE_GET, *uids.ACE_READ_LOCKED, *uids.ACE_WRITE_LOCKED,
        *uids.ace_gen_key(key_bits), uids.ACE_MBR_DONE, uids.ACE_DATA_STORE_GET,
        uids.ACE_DATA_STORE_SET,
    )  # fmt: skip


def range_name(index: int) -> str:
    """Return the specification's name of a range in its rows and rules."""
    return f"Range{index}" if index else "GlobalRange"


def _fixed() -> dict[bytes, Ace]:
    admins = any_of(uids.ADMINS_CLASS)
    mbr, authority, pin = schema.MBR_CONTROL, schema.AUTHORITY, schema.C_PIN
    named = schema.LOCKING.numbers("UID", "CommonName")
    no_pin = pin.numbers("UID", "CharSet", "TryLimit", "Tries", "Persistence")
    to_lor = schema.LOCKING.numbers(
        "ReadLockEnabled", "WriteLockEnabled", "ReadLocked", "WriteLocked", "LockOnReset"
    )
    extent = schema.LOCKING.numbers("RangeStart", "RangeLength")
    return {
        uids.ACE_ANYBODY: Ace("ACE_Anybody", any_of(uids.ANYBODY)),
        uids.ACE_ADMIN: Ace("ACE_Admin", admins),
        uids.ACE_ANYBODY_GET_COMMON_NAME: Ace(
            "ACE_Anybody_Get_CommonName", any_of(uids.ANYBODY), named
        ),
        uids.ACE_ADMINS_SET_COMMON_NAME: Ace(
            "ACE_Admins_Set_CommonName", admins, authority.numbers("CommonName")
        ),
        ACE_GET_ALL: Ace("ACE_ACE_Get_All", admins),
        ACE_SET_RULE: Ace(
            "ACE_ACE_Set_BooleanExpression", admins, schema.ACE.numbers("BooleanExpr")
        ),
        AUTHORITY_GET_ALL: Ace("ACE_Authority_Get_All", admins),
        AUTHORITY_SET_ENABLED: Ace(
            "ACE_Authority_Set_Enabled", admins, authority.numbers("Enabled")
        ),
        PIN_GET: Ace("ACE_C_PIN_Admins_Get_All_NOPIN", admins, no_pin),
        ADMINS_SET_PIN: Ace("ACE_C_PIN_Admins_Set_PIN", admins, pin.numbers("PIN")),
        KEY_MODE: Ace(
            "ACE_K_AES_Mode", any_of(uids.ANYBODY), schema.K_AES_256.numbers("UID", "Mode")
        ),
        GLOBAL_SET: Ace("ACE_Locking_GlblRng_Admins_Set", admins, to_lor),
        RANGE_SET: Ace("ACE_Locking_Admins_RangeStartToLOR", admins, extent | to_lor),
        MBR_SET: Ace(
            "ACE_MBRControl_Admins_Set", admins, mbr.numbers("Enable", "Done", "DoneOnReset")
        ),
        uids.ACE_MBR_DONE: Ace(
            "ACE_MBRControl_Set_DoneToDOR", admins, mbr.numbers("Done", "DoneOnReset")
        ),
        uids.ACE_DATA_STORE_GET: Ace("ACE_DataStore_Get_All", admins),
        uids.ACE_DATA_STORE_SET: Ace("ACE_DataStore_Set_All", admins),
    }


def _user_aces() -> dict[bytes, Ace]:
    pin, name = schema.C_PIN.numbers("PIN"), schema.AUTHORITY.numbers("CommonName")
    aces = {}
    for index, user in enumerate(uids.USER_AUTHORITIES):
        who = f"User{index + 1}"
        owners = any_of(uids.ADMINS_CLASS, user)
        aces[uids.ACE_USER_PIN[index]] = Ace(f"ACE_C_PIN_{who}_Set_PIN", owners, pin)
        admins = any_of(uids.ADMINS_CLASS)
        aces[uids.ACE_USER_COMMON_NAME[index]] = Ace(f"ACE_{who}_Set_CommonName", admins, name)
    return aces


def _range_aces(key_bits: int) -> dict[bytes, Ace]:
    admins, locking = any_of(uids.ADMINS_CLASS), schema.LOCKING
    shown = frozenset(range(3, 11))  # RangeStart to ActiveKey
    aces = {}
    for index in range(uids.RANGES):
        name = range_name(index)
        aces[uids.ACE_RANGE_GET[index]] = Ace(
            f"ACE_Locking_{name}_Get_RangeStartToActiveKey", admins, shown
        )
        for rows, word, column in (
            (uids.ACE_READ_LOCKED, "RdLocked", "ReadLocked"),
            (uids.ACE_WRITE_LOCKED, "WrLocked", "WriteLocked"),
        ):
            label = f"ACE_Locking_{name}_Set_{word}"
            aces[rows[index]] = Ace(label, admins, locking.numbers(column))
        aces[uids.ace_gen_key(key_bits)[index]] = Ace(f"ACE_K_AES_{key_bits}_{name}_GenKey", admins)
    return aces
