"""One open session on a security provider: its logins and its method calls."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from lab.drive.opal.admin_sp import AdminSp
from lab.drive.opal.core import Core, Login
from lab.drive.opal.locking_sp import LockingSp
from lab.drive.opal.tokens import (
    Control,
    Named,
    TokenError,
    Value,
    decode,
    encode,
    encode_all,
    parse,
)
from lab.drive.opal.uids import (
    ACTIVATE,
    ANYBODY,
    AUTHENTICATE,
    CLOSE_SESSION,
    GEN_KEY,
    GET,
    NEXT,
    RANDOM,
    REVERT,
    REVERT_SP,
    SESSION_MANAGER,
    SET,
    MethodError,
    Status,
)

_log = logging.getLogger("drive.opal")
_KEEP_GLOBAL_RANGE_KEY = 0x060000
_MAX_RANDOM_BYTES = 1024
_MAX_LOGINS = 2


@dataclass(frozen=True)
class Call:
    """A method call: positional parameters first, then those by name."""

    invoking: bytes
    method: bytes
    positional: list[Value]
    named: dict[int | bytes, Value]


def parse_call(payload: bytes) -> Call:
    """Reads CALL, object, method, parameters, end of data, status; raises TokenError."""
    match parse(decode(payload)):
        case [
            Control.CALL, bytes(invoking), bytes(method), list(parameters),
            Control.END_OF_DATA, [0, 0, 0],
        ]:  # fmt: skip
            positional: list[Value] = [
                value for value in parameters if not isinstance(value, Named)
            ]
            named = {p.name: p.value for p in parameters if isinstance(p, Named)}
            return Call(invoking, method, positional, named)
    raise TokenError("not a method call")


def encode_call(invoking: bytes, method: bytes, parameters: list[Value]) -> bytes:
    """A method call as the session manager sends it."""
    items: list[Value | Control] = [
        Control.CALL, invoking, method, parameters, Control.END_OF_DATA, [0, 0, 0],
    ]  # fmt: skip
    return encode_all(items)


def encode_result(results: list[Value], status: Status = Status.SUCCESS) -> bytes:
    """The answer to a method call within a session."""
    return encode_all([results, Control.END_OF_DATA, [int(status), 0, 0]])


class Session:
    """A session; `open` turns false when it has ended."""

    def __init__(
        self, core: Core, provider: AdminSp | LockingSp, numbers: tuple[int, int], write: bool
    ) -> None:
        self.tper_number, self.host_number = numbers
        self.provider = provider
        self.logins: dict[bytes, Login] = {}
        self.open = True
        self._core = core
        self._write = write
        self._methods: dict[bytes, Callable[[Call], list[Value]]] = {
            NEXT: self._next,
            GET: self._get,
            SET: self._set,
            AUTHENTICATE: self._authenticate,
            GEN_KEY: self._generate_key,
            RANDOM: self._random,
            ACTIVATE: self._activate,
            REVERT: self._revert,
            REVERT_SP: self._revert_sp,
        }

    def log_in(self, authority: bytes, pin: bytes) -> None:
        """Adds an authority of this SP; raises MethodError if the PIN is wrong."""
        if authority not in self.provider.authorities:
            raise MethodError(Status.NOT_AUTHORIZED)
        self.logins[authority] = self._core.log_in(authority, pin)

    def handle(self, payload: bytes) -> bytes:
        """Answers one packet; what cannot be read ends the session."""
        if payload[:1] == bytes([Control.END_OF_SESSION]):
            self.open = False
            return encode(Control.END_OF_SESSION)
        if payload[:1] in (b"\xfb", b"\xfc"):  # transactions are not offered
            return payload[:1] + b"\x01"
        try:
            call = parse_call(payload)
        except TokenError as error:
            _log.warning("session ended: %s", error)
            self.open = False
            return encode_call(SESSION_MANAGER, CLOSE_SESSION, [self.host_number, self.tper_number])
        return self._run(call)

    def _run(self, call: Call) -> bytes:
        try:
            handler = self._methods.get(call.method)
            if handler is None:
                raise MethodError(Status.NOT_AUTHORIZED)
            answer = encode_result(handler(call))
        except MethodError as error:
            _log.info("%s on %s: %s", call.method.hex(), call.invoking.hex(), error)
            answer = encode_result([], error.status)
        except OSError as error:
            _log.error("the drive's state could not be saved: %s", error)
            answer = encode_result([], Status.TPER_MALFUNCTION)
        return answer

    def _require_write(self) -> None:
        if not self._write:
            raise MethodError(Status.NOT_AUTHORIZED)

    def _get(self, call: Call) -> list[Value]:
        columns = self.provider.get(call.invoking, self.logins)
        block = call.positional[0] if call.positional else []
        bounds = {3: min(columns), 4: max(columns)}
        for bound in block if isinstance(block, list) else [block]:
            match bound:
                case Named(name=3 | 4 as name, value=int(column)):
                    bounds[name] = column
                case _:
                    raise MethodError(Status.INVALID_PARAMETER)
        if bounds[3] > bounds[4]:
            raise MethodError(Status.INVALID_PARAMETER)
        return [[Named(c, v) for c, v in sorted(columns.items()) if bounds[3] <= c <= bounds[4]]]

    def _set(self, call: Call) -> list[Value]:
        self._require_write()
        pairs = call.named.get(1)
        if not isinstance(pairs, list) or 0 in call.named:
            raise MethodError(Status.INVALID_PARAMETER)
        values: dict[int, Value] = {}
        for pair in pairs:
            match pair:
                case Named(name=int(column), value=value) if column not in values:
                    values[column] = value
                case _:
                    raise MethodError(Status.INVALID_PARAMETER)
        with self._core.change():
            self.provider.set(call.invoking, values, self.logins)
        return []

    def _next(self, call: Call) -> list[Value]:
        """Rows of a table after `Where`, at most `Count` of them."""
        where, count = call.named.get(0, b""), call.named.get(1, len(self.provider.tables))
        if not isinstance(where, bytes) or not isinstance(count, int):
            raise MethodError(Status.INVALID_PARAMETER)
        rows = sorted(row for row in self.provider.tables if row[:4] == call.invoking[:4])
        if call.invoking[4:] != bytes(4) or not rows:
            raise MethodError(Status.NOT_AUTHORIZED)
        found: list[Value] = [row for row in rows if row > where]
        return [found[: max(0, count)]]

    def _authenticate(self, call: Call) -> list[Value]:
        """Logs a further authority in; a wrong PIN is an answer, not an error."""
        pin = call.named.get(0, b"")
        match call.positional:
            case [bytes(authority)] if isinstance(pin, bytes):
                pass
            case _:
                raise MethodError(Status.INVALID_PARAMETER)
        if authority == ANYBODY:
            return [1]
        if authority not in self.logins and len(self.logins) >= _MAX_LOGINS:
            raise MethodError(Status.NOT_AUTHORIZED)
        try:
            self.log_in(authority, pin)
        except MethodError as error:
            if error.status is Status.AUTHORITY_LOCKED_OUT:
                raise
            return [0]
        return [1]

    def _generate_key(self, call: Call) -> list[Value]:
        self._require_write()
        with self._core.change():
            self.provider.generate_key(call.invoking, self.logins)
        return []

    def _random(self, call: Call) -> list[Value]:
        match call.positional:
            case [int(count)] if 0 <= count <= _MAX_RANDOM_BYTES:
                return [os.urandom(count)]
        raise MethodError(Status.INVALID_PARAMETER)

    def _activate(self, call: Call) -> list[Value]:
        self._require_write()
        with self._core.change():
            self.provider.activate(call.invoking, self.logins)
        return []

    def _revert(self, call: Call) -> list[Value]:
        self._require_write()
        with self._core.change():
            ends = self.provider.revert(call.invoking, self.logins)
        self.open = not ends
        return []

    def _revert_sp(self, call: Call) -> list[Value]:
        self._require_write()
        names = (_KEEP_GLOBAL_RANGE_KEY, _KEEP_GLOBAL_RANGE_KEY.to_bytes(3, "big"))
        keep = any(call.named.get(name) == 1 for name in names)
        with self._core.change():
            self.provider.revert_sp(call.invoking, keep, self.logins)
        self.open = False
        return []
