"""What a typical block says: a companion to the mean that a rare stall does not move."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from analysis.stats.stats import LEVEL, Floats, Span, exp

LEAST = 6  # fewer blocks have no two-sided interval of 95 %
MOST = 1_000  # the averages of all pairs of more would fill the memory
EXACT = 60


@dataclass(frozen=True)
class Typical:
    """Hodges and Lehmann's ratio with its 95 % interval, and the 90 % one as the second."""

    ratio: Span
    narrow: Span

    @property
    def turned(self) -> Typical:
        """Of the inverse ratio."""
        return Typical(self.ratio.dividing(1.0), self.narrow.dividing(1.0))

    def within(self, margin: float) -> bool:
        """Whether the 90 % interval lies within the margin."""
        low, high = self.narrow.low, self.narrow.high
        return low is not None and high is not None and 1 / (1 + margin) < low and high < 1 + margin


def of(logs: Floats) -> Typical | None:
    """From the log-ratios of blocks; None for fewer than six or far too many."""
    if not LEAST <= len(logs) <= MOST:
        return None
    averages = pair_means(logs)
    mid = exp(np.median(averages))
    spans = (Span(mid, *map(exp, interval(averages, level))) for level in (LEVEL, 2 * LEVEL))
    return Typical(*spans)


def pair_means(values: Floats) -> Floats:
    """Means of all pairs along the last axis, each value with itself too, in rising order.

    Their median is the estimate of J. L. Hodges and E. L. Lehmann (Annals of Mathematical
    Statistics 34, 1963).
    """
    one, other = np.triu_indices(values.shape[-1])
    return np.sort((values[..., one] + values[..., other]) / 2, axis=-1)


def interval(averages: Floats, level: float) -> tuple[Floats, Floats]:
    """Limits from `pair_means`: what Wilcoxon's signed-rank test does not reject at `level`."""
    count = averages.shape[-1]
    outside = _outside(round((math.sqrt(8 * count + 1) - 1) / 2), level)
    return averages[..., outside], averages[..., count - 1 - outside]


@lru_cache
def _outside(n: int, level: float) -> int:
    """How many averages lie beyond either limit: the largest k with P(W ≤ k) ≤ level/2, by the
    exact distribution of the rank sum W of `n` values, or by its normal one."""
    if n > EXACT:
        mean, sd = n * (n + 1) / 4, math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return max(0, math.floor(mean - 0.5 + sd * float(special.ndtri(level / 2))))
    ways = np.ones(1)
    for rank in range(1, n + 1):
        grown = np.zeros(len(ways) + rank)
        grown[: len(ways)] += ways
        grown[rank:] += ways
        ways = grown
    below = np.cumsum(ways) / 2.0**n
    return int(np.searchsorted(below, level / 2, side="right")) - 1
