"""Ratios of two configurations, the interval that decides on each, and how many blocks it takes.

A comparison rests on log-ratios within blocks: their mean, its standard error and degrees of
freedom. Its verdict follows from its interval, and from nothing else, so that no page can show an
interval that contradicts the word next to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
import scipy  # its parts are loaded when they are used

from analysis.stats.stats import LEVEL, Floats, critical, exp
from contract.estimates import Estimate

Verdict = Literal["differs", "equivalent", "inconclusive", "incomplete"]
Limits = tuple[Floats, Floats]

# Logarithms of the same ratio differ by their rounding; joules never agree as well as this.
NO_SCATTER = 1e-13
LEAST_EQUIVALENT = 6  # blocks; fewer miss what happens in 4 of 10 visits
ANSWER_SHARE = 0.8  # of a page's 5 %, for the contrasts over all workloads


@dataclass(frozen=True, eq=False)
class LogRatio:
    """Mean log-ratios with standard errors and degrees of freedom; arrays of one shape.

    `systematic` is the standard uncertainty of the instrument's error in the logarithm; it is
    combined with the scatter by Welch and Satterthwaite. `allowance` widens the interval on both
    sides by what rare events may add (`analysis.stats.rare_events`).
    """

    mean: Floats
    error: Floats
    df: Floats
    systematic: Floats | float = 0.0
    allowance: Floats | float = 0.0

    @classmethod
    def from_logs(cls, logs: Floats) -> LogRatio:
        """Average log-ratios along the last axis, two at least."""
        n = logs.shape[-1]
        mean, sd = np.mean(logs, axis=-1), np.std(logs, axis=-1, ddof=1)
        sd = np.where(sd < NO_SCATTER, 0.0, sd)
        mean = np.where((sd == 0) & (np.abs(mean) < NO_SCATTER), 0.0, mean)
        return cls(mean, sd / math.sqrt(n), np.full(np.shape(mean), n - 1.0))

    def interval(self, level: float | Floats = LEVEL) -> Limits:
        """Return limits that miss the mean with probability `level`."""
        error, df = self.error, self.df
        if np.any(np.asarray(self.systematic) != 0):
            error = np.hypot(error, self.systematic)
            share = np.divide(self.error, error, out=np.zeros_like(error), where=error > 0)
            df = np.minimum(df / np.maximum(share, 1e-3) ** 4, 1e9)
        bound = critical(df, level)
        half = np.where(error > 0, bound * error, 0.0) + self.allowance
        return np.asarray(self.mean - half), np.asarray(self.mean + half)


def deciding_levels(
    interval: Callable[[Floats], Limits],
    margin: float | Floats,
    weights: Floats,
    may_settle: npt.NDArray[np.bool_] | bool = True,
) -> Floats:
    """Return the level at which each question of a family is decided; questions are the last axis.

    Weighted step-down (S. Holm, Scandinavian Journal of Statistics 6, 1979): each open question has
    a part of the 5 % in proportion to its weight. One that is settled keeps its level and leaves
    the rest to the others: no false word about it is possible any more, as its interval lies beyond
    the margin, or within it without 0. So at most 5 % of pages have any false word. `interval`
    gives the limits of all log-ratios at these levels, `may_settle` is False for those that are
    open whatever their interval.
    """
    limit = np.log1p(margin)
    levels = LEVEL * weights / np.sum(weights, axis=-1, keepdims=True)
    is_open = np.ones(levels.shape, bool)
    for _ in range(levels.shape[-1]):
        low, high = interval(levels)
        beyond = (low > limit) | (high < -limit)
        small = (low > -limit) & (high < limit) & ((low > 0) | (high < 0))
        still_open = is_open & ~((beyond | small) & may_settle)
        if np.array_equal(still_open, is_open):
            break
        is_open = still_open
        open_weight = np.sum(weights * is_open, axis=-1, keepdims=True)
        part = weights / np.where(open_weight > 0, open_weight, 1.0)
        levels = np.where(is_open, LEVEL * part, levels)
    return np.asarray(levels)


@dataclass(frozen=True)
class Comparison:
    """Ratio of one configuration to another within `n` blocks.

    `error` is the standard error of its logarithm with `df` degrees of freedom, both None for
    n < 2: then there is no interval. `systematic` and `allowance`: see `LogRatio`. `first_tries` is
    the same ratio from the first try of every run, void or not; if some were void, the interval
    holds both. Not `complete`
    before all planned runs that it rests on are finished, so that words hold for one look at the
    planned end. `doubts` are codes of `analysis.flags.DOUBTS`. `level` is the probability with
    which the interval may miss; in a family it is the one that decides (`judge_comparisons`).
    """

    n: int
    ratio: float
    margin: float
    error: float | None = None
    df: float | None = None
    systematic: float = 0.0
    allowance: float = 0.0
    first_tries: Comparison | None = None
    complete: bool = True
    doubts: tuple[str, ...] = ()
    level: float = LEVEL

    @property
    def sd_log(self) -> float | None:
        """Standard deviation of a block's log-ratio."""
        return None if self.error is None else self.error * math.sqrt(self.n)

    def limits(self, level: float) -> tuple[float, float] | None:
        """Return the limits of the log-ratio at `level`; None if nothing bounds it."""
        if self.error is None or self.df is None:
            return None
        parts = math.log(self.ratio), self.error, self.df, self.systematic, self.allowance
        low, high = map(float, LogRatio(*map(np.asarray, parts)).interval(level))
        if self.first_tries is not None and (limits := self.first_tries.limits(level)) is not None:
            low, high = min(low, limits[0]), max(high, limits[1])
        return (low, high) if math.isfinite(low) and math.isfinite(high) else None

    def interval(self, level: float) -> Estimate:
        """Return the ratio with its interval; without limits if so few blocks bound nothing."""
        limits = self.limits(level)
        low, high = (None, None) if limits is None else (exp(limits[0]), exp(limits[1]))
        return Estimate(self.ratio, low, high)

    @cached_property
    def estimate(self) -> Estimate:
        """The ratio with the interval that decides."""
        return self.interval(self.level)

    @property
    def low(self) -> float | None:
        return self.estimate.low

    @property
    def high(self) -> float | None:
        return self.estimate.high

    @property
    def inverted(self) -> Comparison:
        """The same comparison the other way round."""
        first_tries = self.first_tries and self.first_tries.inverted
        return replace(self, ratio=1 / self.ratio, first_tries=first_tries)

    @property
    def verdict(self) -> Verdict:
        """The word that the interval allows.

        *equivalent*: it lies within 1/(1 + margin) … 1 + margin, over `LEAST_EQUIVALENT` blocks at
        least; *differs*: it excludes 1. A ratio that is both, significant and too small to matter,
        is called equivalent.
        """
        if not self.complete:
            return "incomplete"
        if self.low is None or self.high is None:
            return "inconclusive"
        if self.n >= LEAST_EQUIVALENT and max(self.high, 1 / self.low) < 1 + self.margin:
            return "equivalent"
        return "inconclusive" if self.estimate.contains(1.0) else "differs"

    @property
    def equivalent_but_changed(self) -> bool:
        """Whether it is equivalent and nevertheless not 1."""
        return self.verdict == "equivalent" and not self.estimate.contains(1.0)

    @property
    def columns(self) -> dict[str, float | None]:
        """Return columns of a table (data/README.md)."""
        limits = {"ratio_low": self.low, "ratio_high": self.high}
        level = None if self.low is None else self.level
        return {"ratio": self.ratio, **limits, "level": level}


FOLLOWING = "blocks-follow"
LEAST_SERIAL = 8  # blocks; fewer have too few neighbours
# The quantile of 0.995: independent blocks are doubted in 1 % of comparisons.
SURE = 2.5758293035489004


def follow_each_other(logs: Floats) -> bool:
    """Return whether log-ratios in the order of time resemble their neighbours.

    By the normal approximation of the correlation of each (one dimension) with the next.
    """
    n = len(logs)
    off = logs - np.mean(logs)
    square = float(np.sum(off**2))
    if n < LEAST_SERIAL or square <= n * NO_SCATTER**2:
        return False
    correlation = float(np.sum(off[1:] * off[:-1])) / square + 1 / n
    return correlation > SURE * math.sqrt((n - 2) / (n * n - 1))


def compare(base: Sequence[float], other: Sequence[float], margin: float) -> Comparison | None:
    """Return the paired ratio other/base; `base[i]` and `other[i]` come from the same block.

    None if there is no pair or a value is not positive: then there is no ratio. The interval is
    that of `scipy.stats.ttest_rel` on the logarithms, exponentiated.
    """
    if len(base) != len(other):
        raise ValueError("paired values must come in equal numbers")
    pairs = np.asarray([base, other], dtype=float)
    if len(base) == 0 or not np.all(np.isfinite(pairs) & (pairs > 0)):
        return None
    logs = np.log(pairs)
    return compare_logs(logs[1] - logs[0], margin)


def compare_logs(logs: Floats, margin: float) -> Comparison:
    """Return the comparison of all blocks' log-ratios, one at least."""
    n = len(logs)
    if n < 2:
        return Comparison(n, exp(logs[0]), margin)
    ratio = LogRatio.from_logs(logs)
    doubts = (FOLLOWING,) * follow_each_other(logs)
    return Comparison(
        n, exp(ratio.mean), margin, float(ratio.error), float(ratio.df), doubts=doubts
    )


Judged = TypeVar("Judged", Comparison, Comparison | None)


def judge_comparisons(comparisons: Sequence[Judged], weights: Sequence[float] = ()) -> list[Judged]:
    """Return the comparisons as one family, in order, each with the level that decides on it.

    At most 5 % for any false verdict in it, whatever is true (`deciding_levels`); without `weights`
    all count the same. One without an interval (n < 2) counts for nothing, as does None.
    """
    shares = weights or [1.0] * len(comparisons)
    tested = [
        (c, share)
        for c, share in zip(comparisons, shares, strict=True)
        if c is not None and c.error is not None
    ]
    if not tested:
        return list(comparisons)

    def limits_at(levels: Floats) -> Limits:
        limits = [
            c.limits(level) or (-math.inf, math.inf)
            for (c, _), level in zip(tested, levels.tolist(), strict=True)
        ]
        low, high = np.array(limits, dtype=float).reshape(-1, 2).T
        return low, high

    margins = np.array([c.margin for c, _ in tested], dtype=float)
    complete = np.array([c.complete for c, _ in tested], dtype=bool)
    parts = np.array([share for _, share in tested], dtype=float)
    levels = iter(deciding_levels(limits_at, margins, parts, complete).tolist())
    return [
        c if c is None or c.error is None else replace(c, level=next(levels)) for c in comparisons
    ]


MOST_BLOCKS = 100  # more of them are no advice
PILOT = 10  # blocks; a deviation from fewer says little


def detectable(compared: Comparison, power: float = 0.8) -> float | None:
    """Return the smallest ratio above 1 that these blocks find with this power.

    Two-sided, at the level that decides in its family. From the noncentral t; None if there is no
    interval. Its inverse is the smallest below 1.
    """
    if compared.error is None or compared.df is None:
        return None
    bound = float(critical(np.asarray(compared.df), compared.level))
    log_ratio = compared.error * _noncentrality(compared.df, bound, power)
    return math.exp(log_ratio) if log_ratio < 700 else None


@lru_cache
def _noncentrality(freedom: float, critical: float, power: float) -> float:
    """Return the distance from 1, in standard errors of the mean, that is found with this power."""
    from scipy import optimize, stats  # slow to import, and seldom needed

    def lacking(distance: float) -> float:
        # The noncentral t squared: both of its tails at once.
        return float(stats.ncf.sf(critical**2, 1, freedom, distance**2)) - power

    return float(optimize.brentq(lacking, 0.0, 4 * critical + 4, xtol=1e-12))


def blocks_for_half_width(
    sd_log: float, n: int, half_width_log: float, level: float, power: float = 0.5
) -> int:
    """Return how many blocks, `n` at least, give an interval of at most `half_width_log` each way.

    With `power` above a half, the half width that a mean may be off by belongs to it.
    """

    def is_wide(blocks: int) -> bool:
        df = np.asarray(blocks - 1.0)
        bound = float(critical(df, level)) + float(scipy.special.stdtrit(df, power))
        return not sd_log * bound <= half_width_log * math.sqrt(blocks)

    low, high = n - 1, n
    while is_wide(high):
        low, high = high, 2 * high
    while high - low > 1:
        mid = (low + high) // 2
        low, high = (mid, high) if is_wide(mid) else (low, mid)
    return high


POWER = 0.8  # with which the upper of two numbers of blocks settles a comparison


def blocks_to_settle(compared: Comparison) -> tuple[int, int] | None:
    """Return the least and the most blocks in all, more than there are, that settle a comparison.

    At the level that decides in its family the interval then excludes 1 or lies within the margin.
    The least: if mean and scatter stay. The most settle it in `POWER` of fresh suites: with the
    upper limit of the scatter (at `POWER`), for the hardest of the ratios that the blocks leave
    open at that confidence. None if a single block shows no scatter.
    """
    if compared.sd_log is None or compared.error is None or compared.df is None:
        return None
    change, margin = abs(math.log(compared.ratio)), math.log1p(compared.margin)
    off = compared.error * float(scipy.special.stdtrit(compared.df, (1 + POWER) / 2))
    hardest = min(max(margin / 2, change - off), change + off)
    within = max(change, margin - change)
    if compared.estimate.contains(1.0):
        within = min(within, margin)
    shrunk = float(scipy.special.chdtri(compared.df, POWER)) / compared.df
    n, level = compared.n + 1, compared.level
    least = blocks_for_half_width(compared.sd_log, n, within, level)
    most = blocks_for_half_width(
        compared.sd_log / math.sqrt(shrunk), n, max(hardest, margin - hardest), level, POWER
    )
    return least, max(least, most)


WIDTHS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


def reachable_width(compared: Comparison) -> tuple[float, int] | None:
    """Return the narrowest of `WIDTHS` that `MOST_BLOCKS` blocks reach, and how many it takes.

    If the scatter stays; None if none does.
    """
    if compared.sd_log is None or compared.n < 2:
        return None
    for width in WIDTHS:
        blocks = blocks_for_half_width(compared.sd_log, compared.n, math.log1p(width), LEVEL)
        if blocks <= MOST_BLOCKS:
            return width, blocks
    return None
