"""Method calls in wire format (Core 2.01, section 3.2.4), and a record of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from . import schema
from .packets import Control, Named, Token, TokenError, Value, encode_all, parse
from .uids import METHOD_NAMES, SESSION_MANAGER, Status


@dataclass(frozen=True)
class Call:
    """A method call: positional parameters first, then those by name."""

    invoking: bytes
    method: bytes
    positional: list[Value]
    named: dict[int | bytes, Value]


def parse_call(tokens: list[Token]) -> Call:
    """Parse CALL, object, method, parameters, end of data, status; raises TokenError."""
    match parse(tokens):
        case [
            Control.CALL, bytes(invoking), bytes(method), list(parameters),
            Control.END_OF_DATA, [0, 0, 0],
        ]:  # fmt: skip
            positional: list[Value] = [p for p in parameters if not isinstance(p, Named)]
            named = {p.name: p.value for p in parameters if isinstance(p, Named)}
            if len(positional) + len(named) != len(parameters):
                raise TokenError("a parameter is given twice")
            return Call(invoking, method, positional, named)
    raise TokenError("not a method call")


def encode_call(
    invoking: bytes, method: bytes, parameters: list[Value], status: Status = Status.SUCCESS
) -> bytes:
    """Encode a method call as the session manager sends it."""
    return encode_all(
        [
            Control.CALL, invoking, method, parameters, Control.END_OF_DATA,
            [int(status), 0, 0],
        ]
    )  # fmt: skip


def encode_result(results: list[Value], status: Status) -> bytes:
    """Encode the answer to a method call within a session."""
    return encode_all([results, Control.END_OF_DATA, [int(status), 0, 0]])


class CallRecord:
    """Count of the invocations of each method on each table, by the status it ended with."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, method: str, invoking: bytes, status: Status) -> None:
        """Count one call; method and table are recorded by the specification's names."""
        table = "SessionManager" if invoking == SESSION_MANAGER else schema.name_of(invoking)
        self._counts[method, table, status.name] += 1

    def as_list(self) -> list[dict[str, object]]:
        """Return the record in order of method and table."""
        return [
            {"method": method, "table": table, "status": status, "count": count}
            for (method, table, status), count in sorted(self._counts.items())
        ]


def method_name(method: bytes) -> str:
    """Return the specification's name of a method, else "unknown"."""
    return METHOD_NAMES.get(method, "unknown")
