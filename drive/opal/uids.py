"""Identifiers of the Core 2.01 and Opal 2.01 specifications that this drive knows, status codes.

The authorities' names are those of the Locking SP; the Admin SP's own administrator is written
`AdminSP.Admin1`.
"""

from __future__ import annotations

from enum import IntEnum


def uid(number: int) -> bytes:
    """Encode a number as eight bytes, big-endian."""
    return number.to_bytes(8, "big")


class Status(IntEnum):
    """Method status codes (Core 2.01, table 166)."""

    SUCCESS = 0x00
    NOT_AUTHORIZED = 0x01
    NO_SESSIONS_AVAILABLE = 0x07
    INSUFFICIENT_SPACE = 0x09
    INVALID_PARAMETER = 0x0C
    TPER_MALFUNCTION = 0x0F
    RESPONSE_OVERFLOW = 0x11
    AUTHORITY_LOCKED_OUT = 0x12
    FAIL = 0x3F


class MethodError(Exception):
    """A method ends with this status and without results."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.name)
        self.status = status


ADMINS = 4
USERS = 9
RANGES = 9  # the global range and eight more

SESSION_MANAGER = uid(0xFF)
THIS_SP = uid(0x01)
PROPERTIES = uid(0xFF01)
START_SESSION = uid(0xFF02)
SYNC_SESSION = uid(0xFF03)
CLOSE_SESSION = uid(0xFF06)

NEXT = uid(0x0000000600000008)
GET_ACL = uid(0x000000060000000D)
GEN_KEY = uid(0x0000000600000010)
REVERT_SP = uid(0x0000000600000011)
GET = uid(0x0000000600000016)
SET = uid(0x0000000600000017)
AUTHENTICATE = uid(0x000000060000001C)
REVERT = uid(0x0000000600000202)
ACTIVATE = uid(0x0000000600000203)
RANDOM = uid(0x0000000600000601)
ERASE = uid(0x0000000600000803)  # of single user mode; known by name only
METHOD_NAMES = {
    NEXT: "Next", GET_ACL: "GetACL", GEN_KEY: "GenKey", REVERT_SP: "RevertSP", GET: "Get",
    SET: "Set", AUTHENTICATE: "Authenticate", REVERT: "Revert", ACTIVATE: "Activate",
    RANDOM: "Random", ERASE: "Erase",
}  # fmt: skip

ADMIN_SP = uid(0x0000020500000001)
LOCKING_SP = uid(0x0000020500000002)
SP_INFO = uid(0x0000000200000001)
TPER_INFO = uid(0x0000020100030001)
LOCKING_INFO = uid(0x0000080100000001)
MBR_CONTROL = uid(0x0000080300000001)
MBR = uid(0x0000080400000000)
DATA_STORE = uid(0x0000100100000000)
ACCESS_CONTROL = uid(0x0000000700000000)

ANYBODY = uid(0x0000000900000001)
ADMINS_CLASS = uid(0x0000000900000002)
MAKERS_CLASS = uid(0x0000000900000003)
SID = uid(0x0000000900000006)
ADMIN_SP_ADMIN1 = uid(0x0000000900000201)
PSID = uid(0x000000090001FF01)
USERS_CLASS = uid(0x0000000900030000)
ADMIN_AUTHORITIES = tuple(uid(0x0000000900010000 + n) for n in range(1, ADMINS + 1))
USER_AUTHORITIES = tuple(uid(0x0000000900030000 + n) for n in range(1, USERS + 1))
LOCKING_AUTHORITIES = ADMIN_AUTHORITIES + USER_AUTHORITIES

AUTHORITY_NAMES = {
    ANYBODY: "Anybody", ADMINS_CLASS: "Admins", MAKERS_CLASS: "Makers", SID: "SID",
    ADMIN_SP_ADMIN1: "AdminSP.Admin1", PSID: "PSID", USERS_CLASS: "Users",
    **{u: f"Admin{n}" for n, u in enumerate(ADMIN_AUTHORITIES, 1)},
    **{u: f"User{n}" for n, u in enumerate(USER_AUTHORITIES, 1)},
}  # fmt: skip


C_PIN_SID = uid(0x0000000B00000001)


def c_pin(authority: bytes) -> bytes:
    """Return an authority's C_PIN row: the same lower half, except for the SID's."""
    return C_PIN_SID if authority == SID else b"\x00\x00\x00\x0b" + authority[4:]


C_PIN_MSID = uid(0x0000000B00008402)

LOCKING_ROWS = (uid(0x0000080200000001), *(uid(0x0000080200030000 + n) for n in range(1, RANGES)))


def key_rows(key_bits: int) -> tuple[bytes, ...]:
    """Return the rows of K_AES_128 or K_AES_256, one a range."""
    table = 0x0000080500000000 if key_bits == 128 else 0x0000080600000000
    return (uid(table + 1), *(uid(table + 0x30000 + n) for n in range(1, RANGES)))


def ace(number: int) -> bytes:
    """Return the ACE row with this lower half."""
    return uid(0x0000000800000000 + number)


def _aces(first: int, count: int) -> tuple[bytes, ...]:
    return tuple(ace(first + n) for n in range(count))


ACE_ANYBODY = ace(0x01)
ACE_ADMIN = ace(0x02)
ACE_ANYBODY_GET_COMMON_NAME = ace(0x03)
ACE_ADMINS_SET_COMMON_NAME = ace(0x04)
ACE_RANGE_GET = _aces(0x3D000, RANGES)
ACE_READ_LOCKED = _aces(0x3E000, RANGES)
ACE_WRITE_LOCKED = _aces(0x3E800, RANGES)
ACE_USER_PIN = _aces(0x3A801, USERS)
ACE_USER_COMMON_NAME = _aces(0x44001, USERS)
ACE_MBR_DONE = ace(0x3F801)
ACE_DATA_STORE_GET = ace(0x3FC00)
ACE_DATA_STORE_SET = ace(0x3FC01)


def ace_gen_key(key_bits: int) -> tuple[bytes, ...]:
    """Return the ACEs of GenKey on K_AES_128 or K_AES_256, one a range."""
    return _aces(0x3B000 if key_bits == 128 else 0x3B800, RANGES)


HALF_AUTHORITY_REF = b"\x00\x00\x0c\x05"
HALF_BOOLEAN_ACE = b"\x00\x00\x04\x0e"
