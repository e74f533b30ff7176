"""Locking SP: users, rules, ranges and their keys."""

from __future__ import annotations

from lab.drive.opal import credentials
from lab.drive.opal.core import TRY_LIMIT, Core, Login, check_pin, is_admin
from lab.drive.opal.tokens import Named, Value
from lab.drive.opal.uids import (
    ACE_GEN_KEY,
    ACE_RANGE_GET,
    ACE_READ_LOCKED,
    ACE_USER_PIN,
    ACE_WRITE_LOCKED,
    ADMIN_AUTHORITIES,
    ADMINS_CLASS,
    ANYBODY,
    AUTHORITY_NAMES,
    HALF_AUTHORITY_REF,
    HALF_BOOLEAN_ACE,
    LOCKING_AUTHORITIES,
    LOCKING_INFO,
    LOCKING_ROWS,
    LOCKING_SP,
    RANGES,
    SP_INFO,
    THIS_SP,
    USER_AUTHORITIES,
    USERS_CLASS,
    MethodError,
    Status,
    c_pin,
    key_rows,
)

_ACES = ACE_RANGE_GET + ACE_READ_LOCKED + ACE_WRITE_LOCKED + ACE_USER_PIN + ACE_GEN_KEY
_PIN_ROWS = {c_pin(authority): authority for authority in LOCKING_AUTHORITIES}
_RESET_EVENTS = frozenset({0, 1, 2, 3})
_AES_XTS_MODE = 7
_START, _LENGTH, _RLE, _WLE, _RL, _WL, _LOCK_ON_RESET, _ACTIVE_KEY = range(3, 11)
Row = dict[int, Value]
Logins = dict[bytes, Login]


class LockingSp:
    """Rows and methods; a row is a dict from column number to value.

    Administrators may do everything here; a changed ACE gives others a part of it, as the Opal
    preconfiguration has it (section 4.3).
    """

    authorities = frozenset(LOCKING_AUTHORITIES)

    def __init__(self, core: Core) -> None:
        self._core = core
        self._key_rows = key_rows(core.state.key_bits)
        self.tables = (
            *LOCKING_AUTHORITIES, *_PIN_ROWS, *_ACES, LOCKING_INFO, *LOCKING_ROWS,
            *self._key_rows, SP_INFO,
        )  # fmt: skip

    # Who may.

    def _allowed(self, ace: bytes, logins: Logins) -> bool:
        """An ACE's BooleanExpr, in postfix order, against who has logged in."""
        who = set(logins) | {ANYBODY}
        if is_admin(who):
            return True
        stack: list[bool] = []
        for term in self._core.state.aces.get(ace.hex(), self._default_rule(ace)):
            if term in ("and", "or"):
                right, left = stack.pop(), stack.pop()
                stack.append((left and right) if term == "and" else (left or right))
            else:
                stack.append(self._is_present(bytes.fromhex(term), who))
        return stack == [True]

    @staticmethod
    def _is_present(authority: bytes, who: set[bytes]) -> bool:
        if authority == USERS_CLASS:
            return not who.isdisjoint(USER_AUTHORITIES)
        return authority in who  # the Admins class was dealt with before

    @staticmethod
    def _default_rule(ace: bytes) -> list[str]:
        if ace in ACE_USER_PIN:
            user = USER_AUTHORITIES[ACE_USER_PIN.index(ace)]
            return [ADMINS_CLASS.hex(), user.hex(), "or"]
        return [ADMINS_CLASS.hex()]

    def _require_admin(self, logins: Logins) -> None:
        if not is_admin(set(logins)):
            raise MethodError(Status.NOT_AUTHORIZED)

    def _kek(self, logins: Logins) -> bytes | None:
        return next((kek for login in logins.values() if (kek := self._core.kek(login))), None)

    # Get.

    def get(self, row: bytes, logins: Logins) -> Row:
        """The columns that the session may read; raises NOT_AUTHORIZED if there are none."""
        if row in LOCKING_ROWS:
            return self._get_range(row, logins)
        if row == LOCKING_INFO:
            locking = self._core.locking
            return {
                0: row, 1: b"LockingInfo", 2: 1, 3: 1, 4: RANGES - 1, 5: 0, 6: 0,
                7: int(locking.alignment_blocks > 1), 8: locking.block_bytes,
                9: locking.alignment_blocks, 10: 0,
            }  # fmt: skip
        if row in self._key_rows:
            return {0: row, 4: _AES_XTS_MODE}
        if row == SP_INFO:
            return {0: row, 1: LOCKING_SP, 2: b"Locking", 6: 1}
        self._require_admin(logins)
        return self._get_access_row(row)

    def _get_access_row(self, row: bytes) -> Row:
        if row in _PIN_ROWS:
            tries = self._core.tries.get(_PIN_ROWS[row], 0)
            return {0: row, 5: TRY_LIMIT, 6: tries, 7: 0}
        if row in LOCKING_AUTHORITIES:
            name = AUTHORITY_NAMES[row]
            enabled = self._core.state.authorities[name].enabled
            return {0: row, 1: name.encode(), 3: 0, 5: int(enabled)}
        if row in _ACES:
            rule = self._core.state.aces.get(row.hex(), self._default_rule(row))
            return {0: row, 3: [_expression_term(term) for term in rule]}
        raise MethodError(Status.NOT_AUTHORIZED)

    def _get_range(self, row: bytes, logins: Logins) -> Row:
        index = LOCKING_ROWS.index(row)
        columns: Row = {0: row}
        if self._allowed(ACE_RANGE_GET[index], logins):
            state = self._core.state.ranges[index]
            events: list[Value] = [*state.lock_on_reset]
            columns |= {
                _START: state.start,
                _LENGTH: state.length,
                _RLE: int(state.read_lock_enabled),
                _WLE: int(state.write_lock_enabled),
                _RL: int(state.read_locked),
                _WL: int(state.write_locked),
                _LOCK_ON_RESET: events,
                _ACTIVE_KEY: self._key_rows[index],
            }
        return columns

    # Set.

    def set(self, row: bytes, values: Row, logins: Logins) -> None:
        """Changes columns of one row: all of them, or none (the caller undoes on an exception)."""
        if row in LOCKING_ROWS:
            self._set_range(LOCKING_ROWS.index(row), values, logins)
        elif row in _PIN_ROWS and values.keys() == {3}:
            self._set_pin(_PIN_ROWS[row], values[3], logins)
        elif row in LOCKING_AUTHORITIES and values.keys() == {5}:
            self._require_admin(logins)
            enabled = _flag(values[5])
            if row == ADMIN_AUTHORITIES[0] and not enabled:
                raise MethodError(Status.INVALID_PARAMETER)
            self._core.state.authorities[AUTHORITY_NAMES[row]].enabled = enabled
        elif row in _ACES and values.keys() == {3}:
            self._require_admin(logins)
            self._core.state.aces[row.hex()] = _parse_expression(values[3])
        else:
            raise MethodError(Status.NOT_AUTHORIZED)

    def _set_pin(self, authority: bytes, pin: Value, logins: Logins) -> None:
        kek = self._kek(logins)
        if authority in USER_AUTHORITIES:
            allowed = self._allowed(ACE_USER_PIN[USER_AUTHORITIES.index(authority)], logins)
        else:
            allowed = is_admin(set(logins))
        if not allowed or kek is None:
            raise MethodError(Status.NOT_AUTHORIZED)
        known = self._core.state.authorities[AUTHORITY_NAMES[authority]]
        known.credential = credentials.create(check_pin(pin), kek)
        self._core.tries.pop(authority, None)

    def _set_range(self, index: int, values: Row, logins: Logins) -> None:
        rules = {_RL: ACE_READ_LOCKED[index], _WL: ACE_WRITE_LOCKED[index]}
        for column in values:
            if column in rules:
                if not self._allowed(rules[column], logins):
                    raise MethodError(Status.NOT_AUTHORIZED)
            else:
                self._require_admin(logins)
        row = self._core.state.ranges[index]
        flags = {
            _RLE: "read_lock_enabled", _WLE: "write_lock_enabled",
            _RL: "read_locked", _WL: "write_locked",
        }  # fmt: skip
        for column, value in values.items():
            if column in flags:
                setattr(row, flags[column], _flag(value))
            elif column == _LOCK_ON_RESET:
                row.lock_on_reset = _reset_events(value)
            elif column in (_START, _LENGTH) and index > 0 and isinstance(value, int):
                if value < 0:
                    raise MethodError(Status.INVALID_PARAMETER)
                setattr(row, "start" if column == _START else "length", value)
            else:
                raise MethodError(Status.INVALID_PARAMETER)
        self._core.locking.check_geometry(index)
        self._core.locking.settle(index, self._kek(logins))

    # Other methods.

    def generate_key(self, row: bytes, logins: Logins) -> None:
        """Gives a range a new media key."""
        kek = self._kek(logins)
        if row not in self._key_rows or kek is None:
            raise MethodError(Status.NOT_AUTHORIZED)
        index = self._key_rows.index(row)
        if not self._allowed(ACE_GEN_KEY[index], logins):
            raise MethodError(Status.NOT_AUTHORIZED)
        self._core.locking.generate_key(index, kek)

    def revert_sp(self, row: bytes, keep_global_key: bool, logins: Logins) -> None:
        """Factory state for this SP; the global range's data may stay if it is not locked."""
        self._require_admin(logins)
        if row != THIS_SP:
            raise MethodError(Status.NOT_AUTHORIZED)
        kept = None
        if keep_global_key:
            if not (self._core.state.ranges[0].readable or self._core.state.ranges[0].writable):
                raise MethodError(Status.FAIL)
            kept = self._core.locking.media_key(0, self._kek(logins))
        self._core.revert_locking(kept)

    def activate(self, _row: bytes, _logins: Logins) -> None:
        """SPs are activated from the Admin SP."""
        raise MethodError(Status.NOT_AUTHORIZED)

    def revert(self, _row: bytes, _logins: Logins) -> bool:
        """SP objects are reverted from the Admin SP."""
        raise MethodError(Status.NOT_AUTHORIZED)


def _flag(value: Value) -> bool:
    if not isinstance(value, int) or value not in (0, 1):
        raise MethodError(Status.INVALID_PARAMETER)
    return bool(value)


def _reset_events(value: Value) -> list[int]:
    if not isinstance(value, list):
        raise MethodError(Status.INVALID_PARAMETER)
    events = [event for event in value if isinstance(event, int) and event in _RESET_EVENTS]
    if len(events) != len(value):
        raise MethodError(Status.INVALID_PARAMETER)
    return events


def _expression_term(term: str) -> Value:
    if term in ("and", "or"):
        return Named(HALF_BOOLEAN_ACE, int(term == "or"))
    return Named(HALF_AUTHORITY_REF, bytes.fromhex(term))


def _parse_expression(value: Value) -> list[str]:
    """A BooleanExpr as stored; raises INVALID_PARAMETER unless it evaluates to one truth value."""
    terms: list[str] = []
    depth = 0
    for term in value if isinstance(value, list) else [value]:
        match term:
            case Named(name=n, value=bytes(who)) if n == HALF_AUTHORITY_REF and _known(who):
                terms.append(who.hex())
                depth += 1
            case Named(name=n, value=0 | 1 as kind) if n == HALF_BOOLEAN_ACE and depth > 1:
                terms.append("or" if kind else "and")
                depth -= 1
            case _:
                raise MethodError(Status.INVALID_PARAMETER)
    if depth != 1 or len(terms) > 2 * RANGES + 2 * len(LOCKING_AUTHORITIES):
        raise MethodError(Status.INVALID_PARAMETER)
    return terms


def _known(authority: bytes) -> bool:
    return authority in AUTHORITY_NAMES
