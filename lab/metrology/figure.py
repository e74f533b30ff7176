"""One line of a benchmark's table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """What was measured, against which target; `meets` is None where there is no target."""

    figure: str
    value: float
    unit: str
    target: float | None = None
    meets: bool | None = None


def at_most(figure: str, value: float, unit: str, target: float) -> Figure:
    """A figure that meets its target when it is no larger."""
    return Figure(figure, value, unit, target, value <= target)


def at_least(figure: str, value: float, unit: str, target: float) -> Figure:
    """A figure that meets its target when it is no smaller."""
    return Figure(figure, value, unit, target, value >= target)
