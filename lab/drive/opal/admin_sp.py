"""Admin SP: ownership of the drive, and the life cycle of the Locking SP."""

from __future__ import annotations

from lab.drive.opal import credentials
from lab.drive.opal.core import TRY_LIMIT, Core, Login, check_pin
from lab.drive.opal.tokens import Value
from lab.drive.opal.uids import (
    ADMIN_SP,
    ANYBODY,
    AUTHORITY_NAMES,
    C_PIN_MSID,
    C_PIN_SID,
    LOCKING_SP,
    PSID,
    SID,
    SP_INFO,
    THIS_SP,
    MethodError,
    Status,
)

_MANUFACTURED_INACTIVE, _MANUFACTURED = 8, 9
Row = dict[int, Value]


class AdminSp:
    """Rows and methods; a row is a dict from column number to value."""

    authorities = frozenset({SID, PSID})
    tables = (ADMIN_SP, LOCKING_SP, C_PIN_MSID, C_PIN_SID, SID, PSID, ANYBODY, SP_INFO)

    def __init__(self, core: Core) -> None:
        self._core = core

    def get(self, row: bytes, logins: dict[bytes, Login]) -> Row:
        """The columns that the session may read; raises NOT_AUTHORIZED if there are none."""
        state = self._core.state
        if row == ADMIN_SP:
            return {0: row, 1: b"Admin", 6: _MANUFACTURED, 7: 0}
        if row == LOCKING_SP:
            life_cycle = _MANUFACTURED if state.locking_active else _MANUFACTURED_INACTIVE
            return {0: row, 1: b"Locking", 6: life_cycle, 7: 0}
        if row == C_PIN_MSID:
            return {0: row, 1: b"C_PIN_MSID", 3: state.msid}
        if row == C_PIN_SID and SID in logins:
            tries = self._core.tries.get(SID, 0)
            return {0: row, 1: b"C_PIN_SID", 5: TRY_LIMIT, 6: tries, 7: 0}
        if row in (SID, PSID, ANYBODY):
            return {0: row, 1: AUTHORITY_NAMES[row].encode(), 3: 0, 5: 1}
        if row == SP_INFO:
            return {0: row, 1: ADMIN_SP, 2: b"Admin", 6: 1}
        raise MethodError(Status.NOT_AUTHORIZED)

    def set(self, row: bytes, values: Row, logins: dict[bytes, Login]) -> None:
        """Changes the SID's PIN; nothing else can be set."""
        if row != C_PIN_SID or SID not in logins:
            raise MethodError(Status.NOT_AUTHORIZED)
        if values.keys() != {3}:
            raise MethodError(Status.NOT_AUTHORIZED)
        self._core.state.sid = credentials.create(check_pin(values[3]))

    def activate(self, row: bytes, logins: dict[bytes, Login]) -> None:
        """Activates the Locking SP; nothing happens if it is active."""
        if row != LOCKING_SP or SID not in logins:
            raise MethodError(Status.NOT_AUTHORIZED)
        if not self._core.state.locking_active:
            self._core.activate(logins[SID])

    def revert(self, row: bytes, logins: dict[bytes, Login]) -> bool:
        """Factory state for the whole drive (SID or PSID) or for the Locking SP (SID).

        Returns whether the session's own SP was reverted, which ends the session.
        """
        if row == ADMIN_SP and (SID in logins or PSID in logins):
            self._core.revert_drive()
            return True
        if row == LOCKING_SP and SID in logins:
            self._core.revert_locking()
            return False
        raise MethodError(Status.NOT_AUTHORIZED)

    def revert_sp(self, row: bytes, _keep_global_key: bool, logins: dict[bytes, Login]) -> None:
        """Reverts this SP, which is the whole drive."""
        if row != THIS_SP or SID not in logins:
            raise MethodError(Status.NOT_AUTHORIZED)
        self._core.revert_drive()

    def generate_key(self, _row: bytes, _logins: dict[bytes, Login]) -> None:
        """There are no keys in this SP."""
        raise MethodError(Status.NOT_AUTHORIZED)
