"""Methods that change keys and life cycles: GenKey, Activate, Revert, RevertSP (Opal 2.01, 5.1).

Within a transaction Activate, Revert and RevertSP are refused with FAIL: the specification leaves
them open there, and half of a revert must not be undone.
"""

from __future__ import annotations

from collections.abc import Mapping

from drive.opal import uids
from drive.opal.calls import Call
from drive.opal.core import Core, Login
from drive.opal.uids import MethodError, Status

_KEEP_GLOBAL_RANGE_KEY = 0x060000


class LifeCycle:
    """The methods for a session with these `logins`; access control was checked before."""

    def __init__(self, core: Core, logins: Mapping[bytes, Login]) -> None:
        self._core = core
        self._logins = logins

    def kek(self) -> bytes | None:
        """The Locking SP's key, if an authority of that SP has logged in."""
        locking = (login for who, login in self._logins.items() if who in uids.LOCKING_AUTHORITIES)
        return next((kek for login in locking if (kek := self._core.kek(login))), None)

    def generate_key(self, row: bytes) -> None:
        """Gives a range a new media key."""
        kek = self.kek()
        if kek is None:
            raise MethodError(Status.NOT_AUTHORIZED)
        index = uids.key_rows(self._core.state.key_bits).index(row)
        self._core.locking.generate_key(index, kek)

    def activate(self, call: Call) -> None:
        """Activates the Locking SP; nothing happens if it is active."""
        self._refuse_in_transaction()
        if call.positional or call.named:  # single user mode is not offered
            raise MethodError(Status.INVALID_PARAMETER)
        if call.invoking == uids.LOCKING_SP and not self._core.state.locking_active:
            self._core.activate(self._logins[uids.SID])

    def revert(self, call: Call) -> None:
        """Factory state for the whole drive or for the Locking SP."""
        self._refuse_in_transaction()
        if call.positional or call.named:
            raise MethodError(Status.INVALID_PARAMETER)
        if call.invoking == uids.ADMIN_SP:
            self._core.revert_drive()
        else:
            self._core.revert_locking()

    def revert_sp(self, call: Call) -> None:
        """Factory state for the Locking SP; the global range's data may stay if it is not locked.

        Only that SP grants the method.
        """
        self._refuse_in_transaction()
        names = {_KEEP_GLOBAL_RANGE_KEY, _KEEP_GLOBAL_RANGE_KEY.to_bytes(3, "big")}
        values = list(call.named.values())
        if call.positional or not call.named.keys() <= names or values not in ([], [0], [1]):
            raise MethodError(Status.INVALID_PARAMETER)
        kept = None
        if values == [1]:
            row = self._core.state.ranges[0]
            if not (row.readable or row.writable):
                raise MethodError(Status.FAIL)
            kept = self._core.locking.media_key(0, self.kek())
        self._core.revert_locking(kept)

    def _refuse_in_transaction(self) -> None:
        if self._core.in_transaction:
            raise MethodError(Status.FAIL)
