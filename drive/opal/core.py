"""State and keys of the drive that the security providers share, and the check of PINs."""

from __future__ import annotations

import copy
import logging
import os
import secrets
import string
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from ..identify import DriveConfig
from ..state import Authority, DriveState, RangeState
from . import credentials, uids
from .byte_table import ByteTable
from .locking import Locking, new_media_key
from .uids import MethodError, Status

TRY_LIMIT = 5
MAX_PIN_BYTES = 32


@dataclass
class Login:
    """An authority that has shown a PIN, with its PINs' wrapping keys in this session by salt.

    A change of PIN adds a key, because the end of a transaction may undo the change.
    """

    authority: bytes
    wrapping_keys: dict[bytes, bytes]


Logins = Mapping[bytes, Login]
_Snapshot = tuple[dict[str, Any], dict[int, bytes], list[tuple[int, int]]]
_log = logging.getLogger("drive.opal")


def new_secret() -> bytes:
    """Create a PIN as printed on a label: 32 capital letters and digits."""
    letters = string.ascii_uppercase + string.digits
    return "".join(secrets.choice(letters) for _ in range(32)).encode()


def new_state(psid: bytes, config: DriveConfig, key_bits: int) -> DriveState:
    """Create a drive in factory state: SID has the MSID as its PIN, every range is open."""
    msid = new_secret()
    return DriveState(
        blocks=config.blocks,
        block_bytes=config.block_bytes,
        key_bits=key_bits,
        msid=msid,
        sid=credentials.create(msid),
        psid=credentials.create(psid),
        ranges=[RangeState(open_key=new_media_key(key_bits)) for _ in range(uids.RANGES)],
    )


class Core:
    """The drive's state with its locking; a change is saved, or undone as a whole.

    Failed tries are counted until the next power cycle (the column Persistence is false).
    """

    def __init__(
        self,
        locking: Locking,
        byte_tables: dict[bytes, ByteTable],
        save: Callable[[DriveState], None],
    ) -> None:
        self.locking = locking
        self.state = locking.state
        self.byte_tables = byte_tables
        self.tries: dict[bytes, int] = {}
        self.sid_blocked = False
        self.sid_is_msid = credentials.check(self.state.sid, self.state.msid) is not None
        self._save = save
        self._transaction: _Snapshot | None = None

    def reset(self, event: int) -> None:
        """Apply a TCG reset of this type; an open transaction is undone."""
        self.end_transaction(commit=False)
        self.locking.reset_event(event)
        self._lock_then_save()

    def power_on(self) -> None:
        """Apply the state as after a loss of power."""
        self.end_transaction(commit=False)
        self.tries.clear()
        self.sid_blocked = False
        self.locking.power_on()
        self._lock_then_save()

    def _lock_then_save(self) -> None:
        """Lock the ranges even if the state cannot be saved; the next change saves it."""
        self.locking.publish()
        try:
            self._save(self.state)
        except OSError as error:
            _log.error("the drive has locked, but its state could not be saved: %s", error)

    # Changes of the state.

    def _snapshot(self) -> _Snapshot:
        locking = self.locking
        return copy.deepcopy(self.state.__dict__), dict(locking.keys), list(locking.erased)

    def _restore(self, snapshot: _Snapshot) -> None:
        state, self.locking.keys, self.locking.erased = snapshot
        self.state.__dict__.update(state)

    def _keep(self) -> None:
        """Discard erased data, then save: a crash cannot leave data whose key is gone."""
        self.locking.discard_erased()
        self._save(self.state)

    @contextmanager
    def change(self) -> Iterator[None]:
        """Save a change of state, then apply it; within a transaction, at its end.

        An exception undoes it, except that data that was to be erased may be lost.
        """
        before = self._snapshot()
        try:
            yield
            if self._transaction is None:
                self._keep()
        except BaseException:
            self._restore(before)
            raise
        if self._transaction is None:
            self.locking.publish()

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    def begin_transaction(self) -> None:
        """Start collecting changes that can be undone together."""
        self._transaction = self._snapshot()
        for table in self.byte_tables.values():
            table.begin()

    def end_transaction(self, commit: bool) -> None:
        """Save or undo all changes since its begin; raises OSError after undoing them."""
        if self._transaction is None:
            return
        before, self._transaction = self._transaction, None
        try:
            if commit:
                self._keep()
            else:
                self._restore(before)
        except OSError:
            commit = False
            self._restore(before)
            raise
        finally:
            self.locking.publish()
            with ExitStack() as ends:  # of all tables, though one of them fails
                for table in self.byte_tables.values():
                    ends.callback(table.end, commit)

    # Who may log in.

    def authority(self, authority: bytes) -> Authority:
        """Return an authority's enabled flag and credential; raises NOT_AUTHORIZED if unknown."""
        if authority == uids.SID:
            return Authority(True, self.state.sid)
        if authority == uids.PSID:
            return Authority(True, self.state.psid)
        if authority == uids.ADMIN_SP_ADMIN1:
            return self.state.admin1
        record = self.state.authorities.get(uids.AUTHORITY_NAMES.get(authority, ""))
        if record is None:
            raise MethodError(Status.NOT_AUTHORIZED)
        return record

    def log_in(self, authority: bytes, pin: bytes) -> Login:
        """Check a PIN; raises NOT_AUTHORIZED, or AUTHORITY_LOCKED_OUT at the try limit."""
        record = self.authority(authority)
        blocked = authority == uids.SID and self.sid_blocked
        if record.credential is None or not record.enabled or blocked:
            raise MethodError(Status.NOT_AUTHORIZED)
        if self.tries.get(authority, 0) >= TRY_LIMIT:
            raise MethodError(Status.AUTHORITY_LOCKED_OUT)
        wrapping_key = credentials.check(record.credential, pin) if pin else None
        if wrapping_key is None:
            self.tries[authority] = self.tries.get(authority, 0) + 1
            raise MethodError(Status.NOT_AUTHORIZED)
        self.tries.pop(authority, None)
        return Login(authority, {record.credential.salt: wrapping_key})

    def lock_out(self, name: str) -> None:
        """Bring an authority to its try limit; raises ValueError for an unknown name."""
        by_name = {name: who for who, name in uids.AUTHORITY_NAMES.items()}
        try:
            self.authority(by_name.get(name, b""))
        except MethodError:
            active = self.state.locking_active
            valid_names = ["SID", "PSID", "AdminSP.Admin1", *self.state.authorities]
            hint = "" if active else "; the Locking SP's are there once it is active"
            raise ValueError(
                f"no authority {name!r}; known: {', '.join(valid_names)}{hint}"
            ) from None
        self.tries[by_name[name]] = TRY_LIMIT

    def set_pin(self, authority: bytes, pin: object, logins: Logins, kek: bytes | None) -> None:
        """Set an authority's PIN; an authority of the Locking SP also gets its `kek`.

        If it is among the session's `logins`, it continues with the new one.
        """
        credential, wrapping_key = credentials.create_with_key(check_pin(pin), kek)
        if authority in logins:
            logins[authority].wrapping_keys[credential.salt] = wrapping_key
        if authority == uids.SID:
            self.state.sid = credential
            self.sid_is_msid = pin == self.state.msid
        else:
            self.authority(authority).credential = credential
        self.tries.pop(authority, None)

    def kek(self, login: Login) -> bytes | None:
        """Return the Locking SP's key, which every authority of that SP can unwrap."""
        credential = self.authority(login.authority).credential
        if credential is None or not credential.wrapped_kek:
            return None
        return credentials.unwrap_kek(credential, login.wrapping_keys[credential.salt])

    # Life cycle.

    def activate(self, login: Login) -> None:
        """Activate the Locking SP; Admin1 gets the SID's PIN."""
        self._clear_byte_tables()
        kek = os.urandom(credentials.KEK_BYTES)
        self.locking.activate(kek)
        self.state.authorities = {
            uids.AUTHORITY_NAMES[u]: Authority() for u in uids.LOCKING_AUTHORITIES
        }
        sid = self.state.sid
        admin1 = credentials.adopt(sid, login.wrapping_keys[sid.salt], kek)
        self.state.authorities["Admin1"] = Authority(True, admin1)
        self.state.locking_active = True

    def revert_locking(self, keep_global_key: bytes | None = None) -> None:
        """Revert the Locking SP to its factory state with new media keys."""
        if not self.state.locking_active:
            return
        self._clear_byte_tables()
        self.state.locking_active = False
        self.state.authorities = {}
        self.state.aces = {}
        self.state.names = {}
        self.locking.factory_reset(keep_global_key)
        for authority in uids.LOCKING_AUTHORITIES:
            self.tries.pop(authority, None)

    def revert_drive(self) -> None:
        """Revert the whole drive to its factory state; MSID and PSID stay."""
        self.revert_locking()
        self.state.sid = credentials.create(self.state.msid)
        self.sid_is_msid = True
        self.state.admin1 = Authority()
        self.state.programmatic_reset = False
        self.tries.clear()
        self.locking.dead = self.locking.vices.dead_after_revert

    def _clear_byte_tables(self) -> None:
        for table in self.byte_tables.values():
            table.clear()


def check_pin(pin: object) -> bytes:
    """Return a valid new PIN; raises INVALID_PARAMETER for an empty or overlong one."""
    if not isinstance(pin, bytes) or not 0 < len(pin) <= MAX_PIN_BYTES:
        raise MethodError(Status.INVALID_PARAMETER)
    return pin
