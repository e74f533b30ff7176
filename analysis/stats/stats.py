"""Means and ratios of means with their intervals, with the block as the unit of replication."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special


@dataclass(frozen=True)
class Span:
    """A figure with its interval; a limit is None where there is no bound, or no interval at all.

    What rises with a figure carries its limits on as they are (`scaled`, `shifted`); what falls
    with it swaps them.
    """

    mid: float
    low: float | None
    high: float | None

    def scaled(self, factor: float) -> Span:
        """Return the same in another unit; `factor` is exact and not negative."""
        return self._changed(lambda value: value * factor)

    def shifted(self, by: float) -> Span:
        """Return the same with something exact added."""
        return self._changed(lambda value: value + by)

    def not_below(self, least: float) -> Span:
        """Return the same, cut off at what it cannot fall short of."""
        return self._changed(lambda value: max(least, value))

    def dividing(self, top: float) -> Span:
        """Return top / figure for a span above 0: its limits are swapped."""
        low, high = (None if end is None else top / end for end in (self.high, self.low))
        return Span(top / self.mid, low, high)

    def _changed(self, change: Callable[[float], float]) -> Span:
        low, high = (None if end is None else change(end) for end in (self.low, self.high))
        return Span(change(self.mid), low, high)


def ends(span: Span | None) -> tuple[float | None, float | None, float | None]:
    """Return a figure and the limits of its interval; None where there is none."""
    return (None, None, None) if span is None else (span.mid, span.low, span.high)


Floats = npt.NDArray[np.float64]

LEVEL = 0.05
LARGEST_LOG = 700.0  # exp of more is no number


@dataclass(frozen=True)
class Estimate:
    """A mean over `n` blocks with its two-sided interval; `low` and `high` are None where n < 2."""

    n: int
    mean: float
    low: float | None
    high: float | None

    @property
    def half_width(self) -> float | None:
        """Half of the interval's length, in the unit of the mean."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    def contains(self, value: float) -> bool:
        """Whether the interval holds `value`; without an interval nothing is excluded, so True."""
        return self.low is None or self.high is None or self.low <= value <= self.high

    def scaled(self, factor: float) -> Estimate:
        """Return the same estimate in another unit; `factor` is exact and positive."""
        low = None if self.low is None else self.low * factor
        high = None if self.high is None else self.high * factor
        return Estimate(self.n, self.mean * factor, low, high)


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of block values with Student's 95 % interval; raises ValueError for none."""
    n = len(values)
    if n == 0:
        raise ValueError("no values to estimate from")
    mean = float(np.mean(values))
    if n < 2:
        return Estimate(n, mean, None, None)
    error = float(np.std(values, ddof=1)) / math.sqrt(n)
    half = error * float(critical(np.asarray(n - 1.0), LEVEL))
    return Estimate(n, mean, mean - half, mean + half)


def critical(df: Floats, level: float) -> Floats:
    """Return how many standard errors an interval reaches that misses with probability `level`."""
    return np.asarray(special.stdtrit(df, 1 - level / 2))


def exp(log: float | Floats) -> float:
    """Return a ratio from its logarithm; one beyond all numbers is the largest there is."""
    return math.exp(max(-LARGEST_LOG, min(LARGEST_LOG, float(log))))
