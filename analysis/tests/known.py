"""What a test needs to be there."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


def known(value: Value | None) -> Value:
    """The value; a test whose figure, picture or interval is missing fails here."""
    assert value is not None
    return value
