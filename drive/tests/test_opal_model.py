"""Random walks through the life of a drive, held against a model that knows no cryptography.

The model says for each step which status the drive must answer with, and after it which blocks can
be read, and whether they hold what was written.
"""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from drive.media import AccessDeniedError, EncryptedMedia
from drive.opal import uids
from drive.opal.core import TRY_LIMIT
from drive.opal.packets import Named
from drive.opal.tper import Tper
from drive.opal.uids import Status
from drive.tests.opal_host import Direct, OpalSession, RefusedError, msid

NAMES = {"SID": uids.SID, "Admin1": uids.ADMIN_AUTHORITIES[0]}
NAMES |= {f"User{n}": uids.USER_AUTHORITIES[n - 1] for n in (1, 2)}
LOCKING_NAMES = ("Admin1", "User1", "User2")
EXTENTS = {1: (256, 256), 2: (512, 256)}
PLACES = (0, 300, 600)  # a block outside of the ranges, and one in each
BLOCK = 4096
RIGHT = (True,) * 5 + (False,)
SELDOM = st.sampled_from((False, False, False, True))


@dataclass
class Range:
    """A locking range of the model; User `n` may lock and unlock range n."""

    set_up: bool = False
    enabled: bool = False
    read_locked: bool = False
    write_locked: bool = False
    granted: bool = False


@dataclass
class Model:
    """What a drive remembers.

    `keys` count the media keys that each range has had, `erasures` how often a place was in a range
    that got a new one: its ciphertext is freed, so that no earlier key of another range opens it.
    """

    sid: bytes
    active: bool = False
    pins: dict[str, bytes] = field(default_factory=dict)
    enabled: set[str] = field(default_factory=set)
    ranges: dict[int, Range] = field(default_factory=lambda: {n: Range() for n in EXTENTS})
    keys: dict[int, int] = field(default_factory=lambda: dict.fromkeys((0, 1, 2), 0))
    erasures: dict[int, int] = field(default_factory=lambda: dict.fromkeys(PLACES, 0))

    def pin_of(self, name: str) -> bytes | None:
        if name == "SID":
            return self.sid
        return self.pins.get(name) if name in self.enabled else None

    def range_at(self, lba: int) -> int:
        for number, (start, length) in EXTENTS.items():
            if self.ranges[number].set_up and start <= lba < start + length:
                return number
        return 0

    def version(self, place: int) -> tuple[int, int, int]:
        """Return the range of a place, its key and how often the place was erased."""
        number = self.range_at(place)
        return number, self.keys[number], self.erasures[place]

    def forget_locking(self, keep_global: bool) -> None:
        for place in PLACES:
            self.erasures[place] += self.range_at(place) > 0 or not keep_global
        self.active, self.pins, self.enabled = False, {}, set()
        self.ranges = {n: Range() for n in EXTENTS}
        self.keys = {n: key + (n > 0 or not keep_global) for n, key in self.keys.items()}


class Drive(RuleBasedStateMachine):
    """One drive without a transport, one host, and the model of both."""

    @initialize(owned=st.sampled_from((True, True, True, False)))
    def make(self, owned: bool) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.tper: Tper
        self.media: EncryptedMedia
        self.tper, self.media = Direct.build(Path(self.folder.name))
        self.host = Direct(self.tper)
        self.msid = msid(self.host)
        self.model = Model(self.msid)
        self.saved: Model | None = None  # as it was before the open transaction
        self.session: OpalSession | None = None
        self.who: set[str] = set()
        self.in_locking_sp = False
        self.tries: dict[str, int] = {}
        self.pin_number = 0
        self.written: dict[int, tuple[bytes, tuple[int, int, int]]] = {}
        if owned:
            self.begin_with_an_owner()

    def begin_with_an_owner(self) -> None:
        """Set up an owner by the same steps as the walk that follows."""
        self.open_session("SID", True)
        self.set_pin("SID")
        self.activate()
        self.end_session(True)
        self.open_session("Admin1", True)
        for number in EXTENTS:
            self.set_up_user(number, True)
            self.set_pin(f"User{number}")
            self.set_up_range(number, True, True)
        self.end_session(True)

    def teardown(self) -> None:
        self.folder.cleanup()

    # The model's side of a session.

    @property
    def in_force(self) -> Model:
        return self.saved or self.model

    @property
    def opened(self) -> OpalSession:
        assert self.session is not None
        return self.session

    def log_in_status(self, name: str, right: bool) -> int:
        if self.model.pin_of(name) is None:
            return Status.NOT_AUTHORIZED
        if self.tries.get(name, 0) >= TRY_LIMIT:
            return Status.AUTHORITY_LOCKED_OUT
        if right:
            self.tries.pop(name, None)
            return Status.SUCCESS
        self.tries[name] = self.tries.get(name, 0) + 1
        return Status.NOT_AUTHORIZED

    def end(self) -> None:
        if self.saved is not None:
            self.model, self.saved = self.saved, None
        self.session, self.who = None, set()

    def is_admin(self) -> bool:
        return self.in_locking_sp and "Admin1" in self.who

    def call(self, row: bytes, method: bytes, *parameters: object) -> int:
        try:
            self.opened.call(row, method, *parameters)  # type: ignore[arg-type]
        except RefusedError as error:
            return error.status
        return Status.SUCCESS

    def set(self, row: bytes, values: dict[int, object]) -> int:
        pairs = [Named(column, value) for column, value in values.items()]  # type: ignore[arg-type]
        return self.call(row, uids.SET, Named(1, pairs))  # type: ignore[arg-type]

    # Steps.

    @rule(
        name=st.sampled_from(("SID", *LOCKING_NAMES, *LOCKING_NAMES)), right=st.sampled_from(RIGHT)
    )
    def open_session(self, name: str, right: bool) -> None:
        locking = name != "SID"
        sp = uids.LOCKING_SP if locking else uids.ADMIN_SP
        pin = (self.model.pin_of(name) or b"none") if right else b"wrong"
        if locking and not self.model.active:
            expected = Status.INVALID_PARAMETER
        elif self.session is not None:
            expected = Status.NO_SESSIONS_AVAILABLE
        else:
            expected = Status(self.log_in_status(name, right))
        try:
            session = OpalSession(self.host, sp, NAMES[name], pin)
        except RefusedError as error:
            assert error.status == expected
        else:
            assert expected == Status.SUCCESS
            self.session, self.in_locking_sp, self.who = session, locking, {name}

    @precondition(lambda self: self.session is not None and self.in_locking_sp)
    @rule(name=st.sampled_from(LOCKING_NAMES))
    def authenticate(self, name: str) -> None:
        full = name not in self.who and len(self.who) >= 2
        expected = Status.NOT_AUTHORIZED if full else Status(self.log_in_status(name, True))
        pin = self.model.pin_of(name) or b"none"
        try:
            answer = self.opened.call(uids.THIS_SP, uids.AUTHENTICATE, NAMES[name], Named(0, pin))
        except RefusedError as error:
            assert error.status == expected and (full or expected == Status.AUTHORITY_LOCKED_OUT)
        else:
            assert answer == [int(expected == Status.SUCCESS)]
            if expected == Status.SUCCESS:
                self.who.add(name)

    @precondition(lambda self: self.session is not None)
    @rule(really=SELDOM)
    def end_session(self, really: bool) -> None:
        if not really:
            return
        assert self.opened.raw(b"\xfa") == b"\xfa"
        self.end()

    @precondition(lambda self: self.session is not None)
    @rule()
    def begin(self) -> None:
        assert self.opened.raw(b"\xfb\0") == b"\xfb" + bytes([self.saved is not None])
        if self.saved is None:
            self.saved = copy.deepcopy(self.model)

    @precondition(lambda self: self.session is not None)
    @rule(commit=st.booleans())
    def finish(self, commit: bool) -> None:
        good = commit and self.saved is not None
        answer = self.opened.raw(b"\xfc" + bytes([not commit]))
        assert answer == b"\xfc" + bytes([not good])
        if self.saved is not None and not commit:
            self.model = self.saved
        self.saved = None

    @precondition(lambda self: self.session is not None)
    @rule(name=st.sampled_from(sorted(NAMES)))
    def set_pin(self, name: str) -> None:
        self.pin_number += 1
        pin = f"pin {self.pin_number}".encode()
        is_same_sp = self.in_locking_sp == (name != "SID")
        allowed = is_same_sp and (name in self.who or self.is_admin())
        status = self.set(uids.c_pin(NAMES[name]), {3: pin})
        assert status == (Status.SUCCESS if allowed else Status.NOT_AUTHORIZED)
        if allowed:
            self.tries.pop(name, None)
            if name == "SID":
                self.model.sid = pin
            else:
                self.model.pins[name] = pin

    @precondition(lambda self: self.session is not None and self.in_locking_sp)
    @rule(number=st.sampled_from((1, 2)), enabled=st.sampled_from((True, True, False)))
    def set_up_user(self, number: int, enabled: bool) -> None:
        status = self.set(NAMES[f"User{number}"], {5: int(enabled)})
        assert status == (Status.SUCCESS if self.is_admin() else Status.NOT_AUTHORIZED)
        if not self.is_admin():
            return
        (self.model.enabled.add if enabled else self.model.enabled.discard)(f"User{number}")
        who = [Named(uids.HALF_AUTHORITY_REF, NAMES[f"User{number}"])]
        for rows in (uids.ACE_READ_LOCKED, uids.ACE_WRITE_LOCKED):
            assert self.set(rows[number], {3: who}) == Status.SUCCESS
        self.model.ranges[number].granted = True

    @precondition(lambda self: self.session is not None and self.in_locking_sp)
    @rule(number=st.sampled_from((1, 2)), in_locking=st.booleans(), enabled=st.booleans())
    def set_up_range(self, number: int, in_locking: bool, enabled: bool) -> None:
        start, length = EXTENTS[number] if in_locking else (0, 0)
        values: dict[int, object] = {3: start, 4: length, 5: int(enabled), 6: int(enabled)}
        status = self.set(uids.LOCKING_ROWS[number], values)
        assert status == (Status.SUCCESS if self.is_admin() else Status.NOT_AUTHORIZED)
        if self.is_admin():
            row = self.model.ranges[number]
            row.set_up, row.enabled = in_locking, enabled

    @precondition(lambda self: self.session is not None and self.in_locking_sp)
    @rule(number=st.sampled_from((1, 2)), read=st.booleans(), write=st.booleans())
    def lock(self, number: int, read: bool, write: bool) -> None:
        row = self.model.ranges[number]
        allowed = self.is_admin() or (row.granted and f"User{number}" in self.who)
        status = self.set(uids.LOCKING_ROWS[number], {7: int(read), 8: int(write)})
        assert status == (Status.SUCCESS if allowed else Status.NOT_AUTHORIZED)
        if allowed:
            row.read_locked, row.write_locked = read, write

    @precondition(lambda self: self.session is not None and self.in_locking_sp)
    @rule(number=st.sampled_from((0, 1, 2)))
    def generate_key(self, number: int) -> None:
        status = self.call(uids.key_rows(256)[number], uids.GEN_KEY)
        assert status == (Status.SUCCESS if self.is_admin() else Status.NOT_AUTHORIZED)
        if self.is_admin():
            self.model.keys[number] += 1
            for place in PLACES:  # where a transaction moved the range, in both its places
                owners = {self.model.range_at(place), self.in_force.range_at(place)}
                self.model.erasures[place] += number in owners

    @precondition(lambda self: self.session is not None and not self.in_locking_sp)
    @rule()
    def activate(self) -> None:
        status = self.call(uids.LOCKING_SP, uids.ACTIVATE)
        assert status == (Status.FAIL if self.saved is not None else Status.SUCCESS)
        if self.saved is None and not self.model.active:
            self.model.active = True
            self.model.pins, self.model.enabled = {"Admin1": self.model.sid}, {"Admin1"}

    @precondition(lambda self: self.session is not None and self.in_locking_sp)
    @rule(keep=st.booleans(), really=SELDOM)
    def revert_sp(self, keep: bool, really: bool) -> None:
        if not really:
            return
        status = self.call(uids.THIS_SP, uids.REVERT_SP, Named(0x060000, int(keep)))
        if not self.is_admin():
            assert status == Status.NOT_AUTHORIZED
        elif self.saved is not None:
            assert status == Status.FAIL
        else:
            assert status == Status.SUCCESS
            self.model.forget_locking(keep)
            for name in LOCKING_NAMES:
                self.tries.pop(name, None)
            self.end()

    @precondition(lambda self: self.session is not None and not self.in_locking_sp)
    @rule(full=st.booleans(), really=SELDOM)
    def revert(self, full: bool, really: bool) -> None:
        if not really:
            return
        status = self.call(uids.ADMIN_SP if full else uids.LOCKING_SP, uids.REVERT)
        assert status == (Status.FAIL if self.saved is not None else Status.SUCCESS)
        if status != Status.SUCCESS:
            return
        if self.model.active:
            self.model.forget_locking(False)
            for name in LOCKING_NAMES:
                self.tries.pop(name, None)
        if full:
            self.model.sid = self.msid
            self.tries.clear()
            self.end()

    @rule(really=SELDOM)
    def power_cycle(self, really: bool) -> None:
        if not really:
            return
        self.tper.power_cycle()
        self.end()
        self.tries.clear()
        for row in self.model.ranges.values():
            if row.enabled:
                row.read_locked = row.write_locked = True

    @precondition(lambda self: self.session is not None and self.is_admin())
    @rule(number=st.sampled_from((1, 2)))
    def look(self, number: int) -> None:
        row = self.model.ranges[number]
        start, length = EXTENTS[number] if row.set_up else (0, 0)
        states = (row.enabled, row.enabled, row.read_locked, row.write_locked)
        columns = (start, length, *map(int, states))
        assert self.opened.get(uids.LOCKING_ROWS[number], 3, 8) == dict(enumerate(columns, 3))

    @rule(place=st.sampled_from(PLACES), mark=st.binary(min_size=4, max_size=4))
    def write(self, place: int, mark: bytes) -> None:
        data = mark * (BLOCK // 4)
        number = self.in_force.range_at(place)
        try:
            self.media.write(place, memoryview(bytearray(data)))
        except AccessDeniedError:
            assert self.locked(number, "write_locked")
            return
        assert not self.locked(number, "write_locked")
        self.written[place] = data, self.in_force.version(place)

    # What must hold after each step.

    def locked(self, number: int, lock: str) -> bool:
        row = self.in_force.ranges.get(number, Range())
        return row.enabled and bool(getattr(row, lock))

    @invariant()
    def blocks_are_as_the_model_says(self) -> None:
        for place in PLACES:
            number = self.in_force.range_at(place)
            view = memoryview(bytearray(BLOCK))
            try:
                self.media.read(place, view)
            except AccessDeniedError:
                assert self.locked(number, "read_locked")
                continue
            assert not self.locked(number, "read_locked")
            if place in self.written:
                data, version = self.written[place]
                assert (view.tobytes() == data) is (version == self.in_force.version(place))


Drive.TestCase.settings = settings(
    stateful_step_count=50,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
test_a_drive_does_what_its_model_does = Drive.TestCase
