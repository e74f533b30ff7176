"""Access control: who may invoke what on which columns (Core 2.01, section 3.4.2).

A BooleanExpr is kept in postfix order, as it stands on the wire: authorities as hexadecimal
UIDs, and the words "and", "or".
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
    """Return the expression that each of `authorities` satisfies."""
    return tuple(who.hex() for who in authorities) + ("or",) * (len(authorities) - 1)


def is_satisfied(expression: Sequence[str], present: AbstractSet[bytes]) -> bool:
    """Whether those `present` (logged in, their classes, and Anybody) satisfy it."""
    stack: list[bool] = []
    for term in expression:
        if term in ("and", "or"):
            right, left = stack.pop(), stack.pop()
            stack.append((left and right) if term == "and" else (left or right))
        else:
            stack.append(bytes.fromhex(term) in present)
    return stack == [True]


def encode_expression(expression: Sequence[str]) -> list[Value]:
    """Return the BooleanExpr column's value."""
    return [
        Named(HALF_BOOLEAN_ACE, int(term == "or"))
        if term in ("and", "or")
        else Named(HALF_AUTHORITY_REF, bytes.fromhex(term))
        for term in expression
    ]


def parse_expression(value: Value, known: AbstractSet[bytes]) -> list[str]:
    """Read a BooleanExpr over `known` authorities; raises INVALID_PARAMETER for any other value."""
    terms: list[str] = []
    depth = 0
    for term in value if isinstance(value, list) else [value]:
        match term:
            case Named(name=n, value=bytes(who)) if n == HALF_AUTHORITY_REF and who in known:
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
