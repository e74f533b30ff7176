"""What a suite could have found, and how many more blocks a given precision needs."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from analysis.stats.comparison import Comparison
from analysis.stats.stats import LEVEL, critical

MOST_BLOCKS = 100  # more of them are no advice
# A deviation from fewer blocks says little.
PILOT = 10


def detectable(compared: Comparison, power: float = 0.8) -> float | None:
    """Return the smallest ratio above 1 that these blocks find with this power.

    Two-sided, at the level that decides in its family. From the noncentral t; None where there is
    no interval. Its inverse is the smallest below 1.
    """
    if compared.error is None or compared.df is None:
        return None
    bound = float(critical(np.asarray(compared.df), compared.level))
    log_ratio = compared.error * _noncentrality(compared.df, bound, power)
    return math.exp(log_ratio) if log_ratio < 700 else None


@lru_cache
def _noncentrality(freedom: float, critical: float, power: float) -> float:
    """Distance from 1 in standard errors of the mean at which the test has this power."""
    from scipy import optimize, stats  # slow to import, and seldom needed

    def lacking(distance: float) -> float:
        # The noncentral t squared: both of its tails at once.
        return float(stats.ncf.sf(critical**2, 1, freedom, distance**2)) - power

    return float(optimize.brentq(lacking, 0.0, 4 * critical + 4, xtol=1e-12))


def blocks_if_scatter_stays(sd_log: float, n: int, half_width_log: float, level: float) -> int:
    """Return how many blocks, `n` at least, reach `half_width_log` to either side of the mean.

    At this level; see `critical`.
    """

    def wide(blocks: int) -> bool:
        bound = float(critical(np.asarray(blocks - 1.0), level))
        return not sd_log * bound <= half_width_log * math.sqrt(blocks)

    low, high = n - 1, n
    while wide(high):
        low, high = high, 2 * high
    while high - low > 1:
        mid = (low + high) // 2
        low, high = (mid, high) if wide(mid) else (low, mid)
    return high


def blocks_to_settle(compared: Comparison) -> int | None:
    """Blocks in all, more than there are, that settle a comparison if mean and scatter stay.

    Its interval, at the level that decides in its family, then leaves out 1 or lies within the
    margin, whichever takes fewer. While it holds 1 no change counts that is beyond the margin:
    there may be none at all. None where a single block shows no scatter.
    """
    if compared.sd_log is None:
        return None
    change, margin = abs(math.log(compared.ratio)), math.log1p(compared.margin)
    within = max(change, margin - change)
    if compared.estimate.contains(1.0):
        within = min(within, margin)
    return blocks_if_scatter_stays(compared.sd_log, compared.n + 1, within, compared.level)


WIDTHS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


def within_reach(compared: Comparison) -> tuple[float, int] | None:
    """Return the narrowest of `WIDTHS` that `MOST_BLOCKS` blocks reach, and how many it takes.

    If the scatter stays; None where none does.
    """
    if compared.sd_log is None or compared.n < 2:
        return None
    for width in WIDTHS:
        blocks = blocks_if_scatter_stays(compared.sd_log, compared.n, math.log1p(width), LEVEL)
        if blocks <= MOST_BLOCKS:
            return width, blocks
    return None
