"""A figure with its 95 % interval, as used by analysis, commands and documents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from contract.schema import COUNT

NORMAL = 1.959963984540054  # the quantile of the normal distribution at 0.975


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval; a limit is None if that side is unbounded.

    `n` is the number of blocks or runs averaged; 0 if it follows from other figures.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    n: COUNT = 0

    @property
    def half_width(self) -> float | None:
        """Return half of the interval's length, in the unit of the figure."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    def contains(self, value: float) -> bool:
        """Return whether the interval contains `value`; a missing interval contains all values."""
        return self.low is None or self.high is None or self.low <= value <= self.high

    def changed(self, change: Callable[[float], float]) -> Estimate:
        """Return the figure and its limits under an exact, non-decreasing function."""
        low, high = (None if end is None else change(end) for end in (self.low, self.high))
        return replace(self, mean=change(self.mean), low=low, high=high)

    def scaled(self, factor: float) -> Estimate:
        """Return the figure in another unit; `factor` is exact and not negative."""
        return self.changed(lambda value: value * factor)

    def dividing(self, top: float) -> Estimate:
        """Return top / figure with swapped limits; a limit of 0 or less gives no bound."""
        low, high = (top / end if end and end > 0 else None for end in (self.high, self.low))
        return replace(self, mean=top / self.mean, low=low, high=high)


def ends(figure: Estimate | None) -> tuple[float | None, float | None, float | None]:
    """Return a figure and the limits of its interval; three times None without a figure."""
    return (None, None, None) if figure is None else (figure.mean, figure.low, figure.high)
