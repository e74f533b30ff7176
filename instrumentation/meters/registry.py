"""Meter drivers by kind."""

from __future__ import annotations

from instrumentation.choose import load_class
from instrumentation.meters.base import Meter

_PLACES = {
    "mcp39f511n": "instrumentation.meters.mcp39f511n:Mcp39f511n",
    "smartpower3": "instrumentation.meters.smartpower3:SmartPower3",
    "wattsup": "instrumentation.meters.wattsup:WattsUp",
    "powersensor3": "instrumentation.meters.powersensor3:PowerSensor3",
    "line": "instrumentation.meters.line:LineMeter",
    "wt210": "instrumentation.meters.wt210:WT210",
    "wt310": "instrumentation.meters.wt310:WT310",
}


def kinds() -> tuple[str, ...]:
    """All kinds of meters that have a driver."""
    return tuple(_PLACES)


def load(kind: str) -> type[Meter]:
    """The driver of a kind of meter. Raises UnknownNameError."""
    driver = load_class("kind of meter", kind, _PLACES)
    assert issubclass(driver, Meter)
    return driver
