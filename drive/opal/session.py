"""One open session on a security provider: its logins, its method calls, its transaction."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from . import schema, uids
from .calls import Call, CallRecord, encode_call, encode_result, method_name, parse_call
from .core import Core, Login
from .packets import MAX_TABLE_READ_BYTES, Control, Named, Token, TokenError, Value, decode, encode
from .provider import Provider, Writer
from .uids import MethodError, Status

_log = logging.getLogger("drive.opal")
_MAX_RANDOM_BYTES = 1024
_MAX_LOGINS = 2
_START_ROW, _END_ROW, _START_COLUMN, _END_COLUMN = 1, 2, 3, 4
_KEEP_GLOBAL_RANGE_KEY = 0x060000
_DONE, _ABORTED = 0, 1  # status of a transaction's tokens
_ENDING = {(uids.REVERT, uids.ADMIN_SP), (uids.REVERT_SP, uids.THIS_SP)}  # they end the session


class Session:
    """A session, with the TPer's and the host's `numbers`; `open` is false once it has ended."""

    def __init__(
        self,
        core: Core,
        provider: Provider,
        numbers: tuple[int, int],
        write: bool,
        record: CallRecord,
    ) -> None:
        self.tper_number, self.host_number = numbers
        self.provider = provider
        self.logins: dict[bytes, Login] = {}
        self.open = True
        self._core = core
        self._write = write
        self._record = record
        self._readers: dict[bytes, Callable[[Call], list[Value]]] = {
            uids.NEXT: self._next,
            uids.GET: self._get,
            uids.GET_ACL: self._get_acl,
            uids.AUTHENTICATE: self._authenticate,
            uids.RANDOM: self._random,
        }
        self._writers: dict[bytes, Callable[[Call], None]] = {
            uids.SET: self._set,
            uids.GEN_KEY: self._generate_key,
            uids.ACTIVATE: self._activate,
            uids.REVERT: self._revert,
            uids.REVERT_SP: self._revert_sp,
        }

    def log_in(self, authority: bytes, pin: bytes) -> None:
        """Add an authority of this SP; raises MethodError if the PIN is wrong."""
        if authority not in self.provider.authorities:
            raise MethodError(Status.NOT_AUTHORIZED)
        login = self._core.log_in(authority, pin)
        self.logins.setdefault(authority, login).wrapping_keys.update(login.wrapping_keys)

    def close(self) -> None:
        """End the session; what a transaction has not committed is undone."""
        self.open = False
        self._core.end_transaction(commit=False)

    def handle(self, payload: bytes) -> bytes:
        """Answer one packet; an unreadable one ends the session."""
        try:
            return self._answer(decode(payload))
        except TokenError as error:
            _log.warning("session ended: %s", error)
            self.close()
            return encode_call(
                uids.SESSION_MANAGER, uids.CLOSE_SESSION, [self.host_number, self.tper_number]
            )

    def _answer(self, tokens: list[Token]) -> bytes:
        """Build the answer: end of session, or a call with a transaction's begin or end."""
        if tokens and tokens[0] is Control.END_OF_SESSION:  # Linux lets more tokens follow
            self.close()
            return encode(Control.END_OF_SESSION)
        answer = b""
        if len(tokens) >= 2 and tokens[0] is Control.START_TRANSACTION:
            answer += bytes([Control.START_TRANSACTION, self._begin(tokens[1])])
            tokens = tokens[2:]
        at_end = len(tokens) >= 2 and tokens[-2] is Control.END_TRANSACTION
        end, tokens = (tokens[-1], tokens[:-2]) if at_end else (None, tokens)
        if tokens or not (answer or at_end):
            answer += self._run(parse_call(tokens))
        if at_end:
            answer += bytes([Control.END_TRANSACTION, self._end(end)])
        return answer

    # Transactions.

    def _begin(self, status: Token) -> int:
        if status != 0 or not self._write or self._core.in_transaction:
            return _ABORTED
        self._core.begin_transaction()
        return _DONE

    def _end(self, status: Token | None) -> int:
        if not self._core.in_transaction:
            return _ABORTED
        try:
            self._core.end_transaction(commit=status == 0)
        except OSError as error:
            _log.error("the drive's state could not be saved: %s", error)
            return _ABORTED
        return _DONE if status == 0 else _ABORTED

    # Method calls.

    def _run(self, call: Call) -> bytes:
        results: list[Value] = []
        status = Status.SUCCESS
        try:
            results = self._invoke(call)
        except MethodError as error:
            _log.info("%s on %s: %s", call.method.hex(), call.invoking.hex(), error)
            status = error.status
        except OSError as error:
            _log.error("the drive's state could not be saved: %s", error)
            status = Status.TPER_MALFUNCTION
        if call.method == uids.REVERT and self._core.locking.vices.revert_unanswered:
            status = Status.FAIL
        self._record.add(method_name(call.method), call.invoking, status)
        return encode_result(results, status)

    def _invoke(self, call: Call) -> list[Value]:
        if call.method in self._writers:
            self.provider.permitted(call.invoking, call.method, self.logins)
            if not self._write:
                raise MethodError(Status.NOT_AUTHORIZED)
            with self._core.change():
                self._writers[call.method](call)
            self.open = (call.method, call.invoking) not in _ENDING
            return []
        secret = call.invoking == uids.C_PIN_MSID and self._core.locking.vices.msid_unreadable
        if secret or call.method not in self._readers:
            raise MethodError(Status.NOT_AUTHORIZED)
        self.provider.permitted(call.invoking, call.method, self.logins)
        return self._readers[call.method](call)

    def _get(self, call: Call) -> list[Value]:
        block = _cell_block(call)
        table = self.provider.byte_tables.get(call.invoking)
        if table is not None:
            if not block.keys() <= {_START_ROW, _END_ROW}:
                raise MethodError(Status.INVALID_PARAMETER)
            first, last = block.get(_START_ROW, 0), block.get(_END_ROW, table.size_bytes - 1)
            if not 0 <= first <= last < table.size_bytes:
                raise MethodError(Status.INVALID_PARAMETER)
            if last + 1 - first > MAX_TABLE_READ_BYTES:
                raise MethodError(Status.RESPONSE_OVERFLOW)
            return [table.read(first, last + 1)]
        if not block.keys() <= {_START_COLUMN, _END_COLUMN}:
            raise MethodError(Status.INVALID_PARAMETER)
        allowed = self.provider.permitted(call.invoking, uids.GET, self.logins)
        columns = self.provider.objects[call.invoking].read()
        first, last = block.get(_START_COLUMN, 0), block.get(_END_COLUMN, max(columns))
        if first > last:
            raise MethodError(Status.INVALID_PARAMETER)
        shown = sorted(c for c in columns if first <= c <= last and c in allowed)
        return [[Named(column, columns[column]) for column in shown]]

    def _set(self, call: Call) -> None:
        if call.positional or not call.named.keys() <= {0, 1}:
            raise MethodError(Status.INVALID_PARAMETER)
        table = self.provider.byte_tables.get(call.invoking)
        match call.named.get(0), call.named.get(1):
            case (None | int() as where, bytes(data)) if table is not None:
                if where is not None and where < 0:
                    raise MethodError(Status.INVALID_PARAMETER)
                table.write(where or 0, data)
            case (None, list(pairs)) if table is None:
                self._set_columns(call.invoking, _columns(pairs))
            case _:
                raise MethodError(Status.INVALID_PARAMETER)

    def _set_columns(self, row: bytes, values: dict[int, Value]) -> None:
        described = schema.table_of(row)
        if described is None or any(c not in range(len(described.columns)) for c in values):
            raise MethodError(Status.INVALID_PARAMETER)
        if not values.keys() <= self.provider.permitted(row, uids.SET, self.logins):
            raise MethodError(Status.NOT_AUTHORIZED)
        write = self.provider.objects[row].write
        if write is None:
            raise MethodError(Status.NOT_AUTHORIZED)
        if values:
            write(values, Writer(self.logins, self._kek()))

    def _next(self, call: Call) -> list[Value]:
        """Return the rows of a table after `Where`, at most `Count`."""
        where, count = call.named.get(0, b""), call.named.get(1, 1 << 16)
        if call.positional or not call.named.keys() <= {0, 1}:
            raise MethodError(Status.INVALID_PARAMETER)
        if not isinstance(where, bytes) or not isinstance(count, int) or count < 0:
            raise MethodError(Status.INVALID_PARAMETER)
        rows: list[Value] = [row for row in self.provider.rows(call.invoking) if row > where]
        return [rows[:count]]

    def _get_acl(self, call: Call) -> list[Value]:
        """Return the ACEs of an object and method; INVALID_PARAMETER for an unknown pair."""
        match call:
            case Call(positional=[bytes(row), bytes(method)], named={}) if not call.named:
                aces = self.provider.acl.get((row, method))
                if aces is not None:
                    return [[*aces]]
        raise MethodError(Status.INVALID_PARAMETER)

    def _authenticate(self, call: Call) -> list[Value]:
        """Log a further authority in; a wrong PIN is an answer, not an error."""
        pin = call.named.get(0, b"")
        match call.positional:
            case [bytes(authority)] if isinstance(pin, bytes) and call.named.keys() <= {0}:
                pass
            case _:
                raise MethodError(Status.INVALID_PARAMETER)
        if authority == uids.ANYBODY:
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

    def _random(self, call: Call) -> list[Value]:
        match call.positional:
            case [int(count)] if 0 <= count <= _MAX_RANDOM_BYTES and not call.named:
                return [os.urandom(count)]
        raise MethodError(Status.INVALID_PARAMETER)

    def _generate_key(self, call: Call) -> None:
        if call.positional or call.named:
            raise MethodError(Status.INVALID_PARAMETER)
        kek = self._kek()
        if kek is None:
            raise MethodError(Status.NOT_AUTHORIZED)
        index = uids.key_rows(self._core.state.key_bits).index(call.invoking)
        self._core.locking.generate_key(index, kek)

    def _kek(self) -> bytes | None:
        """Return the Locking SP's key, if an authority of that SP has logged in."""
        locking = (who for who in self.logins if who in uids.LOCKING_AUTHORITIES)
        return next((kek for who in locking if (kek := self._core.kek(self.logins[who]))), None)

    # Life cycle (Opal 2.01, 5.1). Within a transaction its methods are refused: the specification
    # leaves them open there, and half of a revert must not be undone.

    def _activate(self, call: Call) -> None:
        """Activate the Locking SP unless it is active."""
        self._refuse_in_transaction()
        if call.positional or call.named:  # single user mode is not offered
            raise MethodError(Status.INVALID_PARAMETER)
        if call.invoking == uids.LOCKING_SP and not self._core.state.locking_active:
            self._core.activate(self.logins[uids.SID])

    def _revert(self, call: Call) -> None:
        self._refuse_in_transaction()
        if call.positional or call.named:
            raise MethodError(Status.INVALID_PARAMETER)
        if call.invoking == uids.ADMIN_SP:
            self._core.revert_drive()
        else:
            self._core.revert_locking()

    def _revert_sp(self, call: Call) -> None:
        """Revert the Locking SP; the global range's data may stay if it is not locked."""
        self._refuse_in_transaction()
        names = {_KEEP_GLOBAL_RANGE_KEY, _KEEP_GLOBAL_RANGE_KEY.to_bytes(3, "big")}
        values = list(call.named.values())
        if call.positional or not call.named.keys() <= names or values not in ([], [0], [1]):
            raise MethodError(Status.INVALID_PARAMETER)
        global_key = None
        if values == [1]:
            row = self._core.state.ranges[0]
            if not (row.readable or row.writable):
                raise MethodError(Status.FAIL)
            global_key = self._core.locking.media_key(0, self._kek())
        self._core.revert_locking(global_key)

    def _refuse_in_transaction(self) -> None:
        if self._core.in_transaction:
            raise MethodError(Status.FAIL)


def _cell_block(call: Call) -> dict[int, int]:
    """Return the bounds that a Get names; raises INVALID_PARAMETER for anything else."""
    if len(call.positional) > 1 or (call.named and call.positional):
        raise MethodError(Status.INVALID_PARAMETER)
    bounds = call.positional[0] if call.positional else []
    if not isinstance(bounds, list):
        bounds = [bounds]
    bounds += [Named(name, value) for name, value in call.named.items()]
    block: dict[int, int] = {}
    for bound in bounds:
        match bound:
            case Named(name=int(name), value=int(value)) if name not in block:
                block[name] = value
            case _:
                raise MethodError(Status.INVALID_PARAMETER)
    return block


def _columns(pairs: list[Value]) -> dict[int, Value]:
    """Return columns and values of a Set; raises INVALID_PARAMETER."""
    values: dict[int, Value] = {}
    for pair in pairs:
        match pair:
            case Named(name=int(column), value=value) if column not in values:
                values[column] = value
            case _:
                raise MethodError(Status.INVALID_PARAMETER)
    return values
