"""A figure with its 95 % interval, as analysis, commands and documents have it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from contract.schema import COUNT


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval; a limit is None where nothing bounds it on that side.

    `n` counts the blocks or runs that it is a mean over; 0 where it follows from other figures.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    n: COUNT = 0

    @property
    def half_width(self) -> float | None:
        """Half of the interval's length, in the unit of the figure."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    def contains(self, value: float) -> bool:
        """Whether the interval holds `value`; without an interval nothing is excluded."""
        return self.low is None or self.high is None or self.low <= value <= self.high

    def changed(self, change: Callable[[float], float]) -> Estimate:
        """Return what follows from the figure by an exact function that does not fall."""
        low, high = (None if end is None else change(end) for end in (self.low, self.high))
        return replace(self, mean=change(self.mean), low=low, high=high)

    def scaled(self, factor: float) -> Estimate:
        """Return the same in another unit; `factor` is exact and not negative."""
        return self.changed(lambda value: value * factor)

    def dividing(self, top: float) -> Estimate:
        """Return top / figure with the limits swapped; one that is not above 0 bounds nothing."""
        low, high = (top / end if end and end > 0 else None for end in (self.high, self.low))
        return replace(self, mean=top / self.mean, low=low, high=high)


def ends(figure: Estimate | None) -> tuple[float | None, float | None, float | None]:
    """Return a figure and the limits of its interval; None where there is none."""
    return (None, None, None) if figure is None else (figure.mean, figure.low, figure.high)
