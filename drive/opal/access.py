"""Access control: who may invoke which method on which columns (Core 2.01, section 3.4.2).

A BooleanExpr is stored in postfix order, as on the wire: authorities as hexadecimal UIDs, and the
words "and", "or".
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from .packets import Named, Value
from .uids import HALF_AUTHORITY_REF, HALF_BOOLEAN_ACE, MethodError, Status

_MAX_TERMS = 64


@dataclass(frozen=True)
class Ace:
    """An access control element: whoever satisfies `expression` may use `columns` (None: all)."""

    name: str
    expression: tuple[str, ...]
    columns: frozenset[int] | None = None


def any_of(*authorities: bytes) -> tuple[str, ...]:
    """Return the expression that any one of `authorities` satisfies."""
    return tuple(who.hex() for who in authorities) + ("or",) * (len(authorities) - 1)


def is_satisfied(expression: Sequence[str], present: AbstractSet[bytes]) -> bool:
    """Return whether those `present` (logged in, their classes, and Anybody) satisfy it."""
    stack: list[bool] = []
    for term in expression:
        if term in ("and", "or"):
            pair = stack.pop(), stack.pop()
            stack.append(all(pair) if term == "and" else any(pair))
        else:
            stack.append(bytes.fromhex(term) in present)
    return stack == [True]


def encode_expression(expression: Sequence[str]) -> list[Value]:
    """Encode an expression as the value of the BooleanExpr column."""
    return [
        Named(HALF_BOOLEAN_ACE, int(term == "or"))
        if term in ("and", "or")
        else Named(HALF_AUTHORITY_REF, bytes.fromhex(term))
        for term in expression
    ]


def parse_expression(value: Value, valid: AbstractSet[bytes]) -> list[str]:
    """Parse a BooleanExpr over `valid` authorities; raises INVALID_PARAMETER for others."""
    terms: list[str] = []
    depth = 0
    for term in value if isinstance(value, list) else [value]:
        match term:
            case Named(name=n, value=bytes(who)) if n == HALF_AUTHORITY_REF and who in valid:
                terms.append(who.hex())
                depth += 1
            case Named(name=n, value=0 | 1 as kind) if n == HALF_BOOLEAN_ACE and depth > 1:
                terms.append("or" if kind else "and")
                depth -= 1
            case _:
                raise MethodError(Status.INVALID_PARAMETER)
    if depth != 1 or len(terms) > _MAX_TERMS:
        raise MethodError(Status.INVALID_PARAMETER)
    return terms
