"""State and keys of the drive that the security providers share, and who may log in."""

from __future__ import annotations

import copy
import os
import secrets
import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lab.drive.opal import credentials
from lab.drive.opal.locking import Locking, new_media_key
from lab.drive.opal.uids import (
    ADMIN_AUTHORITIES,
    AUTHORITY_NAMES,
    LOCKING_AUTHORITIES,
    PSID,
    RANGES,
    SID,
    MethodError,
    Status,
)
from lab.drive.state import Authority, Credential, DriveState, RangeState

TRY_LIMIT = 5
MAX_PIN_BYTES = 32


@dataclass
class Login:
    """Who has shown a PIN, and the key that the PIN gave."""

    authority: bytes
    wrapping_key: bytes


def new_secret(length: int = 32) -> bytes:
    """A PIN as printed on a label: capital letters and digits."""
    letters = string.ascii_uppercase + string.digits
    return "".join(secrets.choice(letters) for _ in range(length)).encode()


def new_state(psid: bytes, key_bits: int = 256) -> DriveState:
    """A drive as it leaves the factory: SID has the MSID as its PIN, every range is open."""
    msid = new_secret()
    return DriveState(
        key_bits=key_bits,
        msid=msid,
        sid=credentials.create(msid),
        psid=credentials.create(psid),
        ranges=[RangeState(open_key=new_media_key(key_bits)) for _ in range(RANGES)],
    )


class Core:
    """The drive's state with its locking; changes are kept, or undone as a whole.

    Failed tries are counted until the next power cycle (the column Persistence is false).
    """

    def __init__(self, locking: Locking, save: Callable[[DriveState], None]) -> None:
        self.locking = locking
        self.state = locking.state
        self.tries: dict[bytes, int] = {}
        self._save = save

    def power_on(self) -> None:
        """Puts the state into force as after a loss of power."""
        self.tries.clear()
        with self.change():
            self.locking.power_on()

    @contextmanager
    def change(self) -> Iterator[None]:
        """A change of state: saved, then in force; on any exception nothing has happened."""
        before = copy.deepcopy(self.state.__dict__)
        keys = dict(self.locking.keys)
        try:
            yield
            self._save(self.state)
        except BaseException:
            self.state.__dict__.update(before)
            self.locking.keys = keys
            raise
        self.locking.publish()

    def credential(self, authority: bytes) -> Credential | None:
        """The credential by which an enabled authority may log in."""
        if authority == SID:
            return self.state.sid
        if authority == PSID:
            return self.state.psid
        known = self.state.authorities.get(AUTHORITY_NAMES.get(authority, ""))
        return known.credential if known is not None and known.enabled else None

    def log_in(self, authority: bytes, pin: bytes) -> Login:
        """Checks a PIN; raises NOT_AUTHORIZED, or AUTHORITY_LOCKED_OUT at the try limit."""
        credential = self.credential(authority)
        if credential is None:
            raise MethodError(Status.NOT_AUTHORIZED)
        if self.tries.get(authority, 0) >= TRY_LIMIT:
            raise MethodError(Status.AUTHORITY_LOCKED_OUT)
        wrapping_key = credentials.check(credential, pin) if pin else None
        if wrapping_key is None:
            self.tries[authority] = self.tries.get(authority, 0) + 1
            raise MethodError(Status.NOT_AUTHORIZED)
        self.tries.pop(authority, None)
        return Login(authority, wrapping_key)

    def kek(self, login: Login) -> bytes | None:
        """The Locking SP's key, which every authority of that SP can unwrap."""
        credential = self.credential(login.authority)
        if credential is None or not credential.wrapped_kek:
            return None
        return credentials.unwrap_kek(credential, login.wrapping_key)

    def activate(self, login: Login) -> None:
        """Brings the Locking SP to life; Admin1 gets the SID's PIN."""
        kek = os.urandom(credentials.KEK_BYTES)
        self.locking.activate(kek)
        self.state.authorities = {AUTHORITY_NAMES[u]: Authority(False) for u in LOCKING_AUTHORITIES}
        admin1 = credentials.adopt(self.state.sid, login.wrapping_key, kek)
        self.state.authorities["Admin1"] = Authority(True, admin1)
        self.state.locking_active = True

    def revert_locking(self, keep_global_key: bytes | None = None) -> None:
        """Takes the Locking SP back to its factory state with new media keys."""
        self.state.locking_active = False
        self.state.authorities = {}
        self.state.aces = {}
        self.locking.reset(keep_global_key)
        for authority in LOCKING_AUTHORITIES:
            self.tries.pop(authority, None)

    def revert_drive(self) -> None:
        """Takes the whole drive back to its factory state; MSID and PSID stay."""
        self.revert_locking()
        self.state.sid = credentials.create(self.state.msid)
        self.tries.clear()


def check_pin(pin: object) -> bytes:
    """A PIN that may be set; raises INVALID_PARAMETER for an empty or overlong one."""
    if not isinstance(pin, bytes) or not 0 < len(pin) <= MAX_PIN_BYTES:
        raise MethodError(Status.INVALID_PARAMETER)
    return pin


def is_admin(authorities: set[bytes]) -> bool:
    """Whether one of the Locking SP's administrators is among them."""
    return not authorities.isdisjoint(ADMIN_AUTHORITIES)
