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
        """The same in another unit; `factor` is exact and not negative."""
        return self._changed(lambda value: value * factor)

    def shifted(self, by: float) -> Span:
        """The same with something exact added."""
        return self._changed(lambda value: value + by)

    def not_below(self, least: float) -> Span:
        """The same, cut off at what it cannot fall short of."""
        return self._changed(lambda value: max(least, value))

    def dividing(self, top: float) -> Span:
        """top / figure, for a span above 0: its limits are swapped."""
        low, high = (None if end is None else top / end for end in (self.high, self.low))
        return Span(top / self.mid, low, high)

    def _changed(self, change: Callable[[float], float]) -> Span:
        low, high = (None if end is None else change(end) for end in (self.low, self.high))
        return Span(change(self.mid), low, high)


ENDS = {"": "mid", "_low": "low", "_high": "high"}


def columns(name: str, span: Span | None) -> dict[str, float | None]:
    """A figure with its interval as three columns of a table; null where there is none."""
    return {f"{name}{end}": getattr(span, part, None) for end, part in ENDS.items()}


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
        """The same estimate in another unit; `factor` is exact and positive."""
        low = None if self.low is None else self.low * factor
        high = None if self.high is None else self.high * factor
        return Estimate(self.n, self.mean * factor, low, high)


def half_width(sd: float | Floats, n: int, confidence: float) -> Floats:
    """Half width of Student's interval of a mean of `n` ≥ 2 values with this deviation."""
    return np.asarray(sd) * (float(special.stdtrit(n - 1, 0.5 + confidence / 2)) / math.sqrt(n))


def estimate(values: Sequence[float]) -> Estimate:
    """Mean of block values with its 95 % interval by Student's t. Raises ValueError for none."""
    n = len(values)
    if n == 0:
        raise ValueError("no values to estimate from")
    mean = float(np.mean(values))
    if n < 2:
        return Estimate(n, mean, None, None)
    half = float(half_width(float(np.std(values, ddof=1)), n, 0.95))
    return Estimate(n, mean, mean - half, mean + half)


def exp(log: float | Floats) -> float:
    """A ratio from its logarithm; one beyond all numbers is the largest there is."""
    return math.exp(max(-LARGEST_LOG, min(LARGEST_LOG, float(log))))


def ratio_of_means(
    numerator: Sequence[float], denominator: Sequence[float], confidence: float = 0.95
) -> Span:
    """Ratio of the means of paired block values, numerator[i] and denominator[i] of one block.

    Fieller's theorem (E. C. Fieller, Some Problems in Interval Estimation, Journal of the Royal
    Statistical Society B 16, 1954): θ belongs to the set if mean(numerator − θ·denominator) does
    not differ from 0 by Student's t with n − 1 degrees of freedom, a quadratic inequality in θ. For
    normal values it covers exactly, whatever their correlation.

    Where the denominator's own interval holds 0 that set has no bounds (it is the whole line, or
    all of it but a gap): then both limits are None. So they are for fewer than two blocks.
    Raises ValueError for unequal or no values, or where the denominator's mean is 0.
    """
    if len(numerator) != len(denominator):
        raise ValueError("paired values must come in equal numbers")
    if not numerator:
        raise ValueError("no values to make a ratio of")
    n = len(numerator)
    y, x = float(np.mean(numerator)), float(np.mean(denominator))
    if x == 0:
        raise ValueError("a ratio to a mean of 0 is not defined")
    if n < 2:
        return Span(y / x, None, None)
    t2 = float(special.stdtrit(n - 1, 0.5 + confidence / 2)) ** 2
    yy, xy, xx = (
        float(np.cov(a, b, ddof=1)[0, 1]) * t2 / n
        for a, b in ((numerator, numerator), (numerator, denominator), (denominator, denominator))
    )
    # x² − xx is positive just where the denominator's interval does not hold 0.
    square, half = x * x - xx, x * y - xy
    if square <= 0:
        return Span(y / x, None, None)
    root = math.sqrt(max(0.0, half * half - square * (y * y - yy)))
    return Span(y / x, (half - root) / square, (half + root) / square)
