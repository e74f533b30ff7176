"""Detect a disk's steady state (SNIA Solid State Storage Performance Test Specification, 2.0.2).

A disk is written in rounds, each of which gives one figure. Its measurement window is the last five
rounds (section 2.1.13); it is steady (2.1.24) if two quantities are small against the window's
mean: the range of the figures, and the change of the best-fitting straight line over the window. If
25 rounds give no such window, the last five are used (7.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, linear_regression

WINDOW = 5
MOST_ROUNDS = 25
# Shares of the mean; equal values are within the bounds.
RANGE_LIMIT, SLOPE_LIMIT = 0.20, 0.10
# Tolerance for sums of floats, so that a figure on a bound is within it.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Window:
    """The measurement window, in the unit of the figures; rounds are counted from 1.

    `range` is the largest less the smallest figure; `fit_first` and `fit_last` are the straight
    line's (least squares) at the first and the last round.
    """

    first: int
    last: int
    mean: float
    range: float
    fit_first: float
    fit_last: float

    @property
    def range_share(self) -> float:
        """Return the range as a share of the mean."""
        return self.range / self.mean

    @property
    def slope_share(self) -> float:
        """Return the change of the line over the window as a share of the mean."""
        return abs(self.fit_last - self.fit_first) / self.mean

    @property
    def steady(self) -> bool:
        """Return whether both are within their bounds."""
        return (
            self.range_share <= RANGE_LIMIT + _ROUNDING
            and self.slope_share <= SLOPE_LIMIT + _ROUNDING
        )


def window(figures: Sequence[float]) -> Window | None:
    """Return the window that ends with the last of these rounds; None with fewer than five.

    `figures`: one per round, above 0, in order of time. Raises ValueError for others.
    """
    if not all(0 < figure < math.inf for figure in figures):
        raise ValueError("a round has written nothing")
    if len(figures) < WINDOW:
        return None
    last = figures[-WINDOW:]
    slope, intercept = linear_regression(range(WINDOW), last)
    return Window(
        first=len(figures) - WINDOW + 1,
        last=len(figures),
        mean=fmean(last),
        range=max(last) - min(last),
        fit_first=intercept,
        fit_last=intercept + slope * (WINDOW - 1),
    )
