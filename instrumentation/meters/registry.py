"""Meter drivers by kind."""

from __future__ import annotations

from contract.extensions import Group
from instrumentation.meters.base import Meter

_GROUP = Group("kind of meter", "fde.meters", "instrumentation.meters", "kind", Meter)


def kinds() -> tuple[str, ...]:
    """All kinds of meters that have a driver."""
    return _GROUP.names()


def load(kind: str) -> type[Meter]:
    """Return the driver of a kind of meter.

    Raises ExtensionError.
    """
    return _GROUP.load(kind)
