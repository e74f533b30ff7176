"""Ratios of two configurations, their intervals, and the verdicts of a family of ratios.

A comparison uses log-ratios within blocks: their mean, its standard error and degrees of freedom.
Everything else follows from these three.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, TypeVar

import numpy as np
from scipy import special

from analysis.stats.stats import LEVEL, Floats, critical, exp
from contract.estimates import Estimate

Decision = Literal["differs", "equivalent", "inconclusive"]
Verdict = Decision | Literal["incomplete"]

# Logarithms of one ratio differ by rounding; measured joules never agree this well.
NO_SCATTER = 1e-13
LEAST_EQUIVALENT = 6  # blocks; fewer may miss what happens in 4 of 10 runs
LEAST_SHAPE = 4  # blocks from which on skewness is estimated
# Skewness, in standard errors, from which on the interval follows it: exceeded by 1 % of normal
# samples, or by 5 % where all workloads of a pair of configurations are taken together.
ALONE, TOGETHER = float(special.ndtri(0.995)), float(special.ndtri(0.975))
# A sample that lacks the tail shows too little skewness (`make bench-analysis`).
UNDERSTATED, POOLED_TOO = 1.5, 1.3


def sample_skewness(values: Floats) -> Floats:
    """Return Fisher's unbiased skewness along the last axis; 0 for few values or no scatter."""
    n = values.shape[-1]
    if n < LEAST_SHAPE:
        return np.zeros(values.shape[:-1])
    off = values - np.mean(values, axis=-1, keepdims=True)
    square = np.mean(off**2, axis=-1)
    scattered = square > NO_SCATTER**2
    cubed = np.mean(off**3, axis=-1) / np.where(scattered, square, 1.0) ** 1.5
    return np.where(scattered, cubed * math.sqrt(n * (n - 1)) / (n - 2), 0.0)


def skewness_error(n: Floats) -> Floats:
    """Return the standard deviation of `sample_skewness` of `n` normal values."""
    n = np.maximum(n, LEAST_SHAPE)
    return np.sqrt(6 * n * (n - 1) / ((n - 2) * (n + 1) * (n + 3)))


@dataclass(frozen=True, eq=False)
class LogRatio:
    """A mean log-ratio with its standard error and degrees of freedom; arrays of one shape.

    `skewness` is that of the blocks, 0 if a normal sample would show as much. If it is not 0, an
    interval covers that of Student's t and that of its transformation for skewed values (P. Hall,
    Journal of the Royal Statistical Society B 54, 1992). `systematic` is the standard uncertainty
    of the instrument's error in the logarithm; degrees of freedom by Welch and Satterthwaite.
    """

    mean: Floats
    error: Floats
    df: Floats
    skewness: Floats | float = 0.0
    systematic: Floats | float = 0.0

    @classmethod
    def from_logs(cls, logs: Floats) -> LogRatio:
        """Estimate the mean of log-ratios along the last axis, at least two."""
        n = logs.shape[-1]
        mean, sd = np.mean(logs, axis=-1), np.std(logs, axis=-1, ddof=1)
        sd = np.where(sd < NO_SCATTER, 0.0, sd)
        mean = np.where((sd == 0) & (np.abs(mean) < NO_SCATTER), 0.0, mean)
        skewness = sample_skewness(logs)
        beyond = np.abs(skewness) > ALONE * skewness_error(np.asarray(float(n)))
        followed = np.where(beyond, UNDERSTATED * skewness, 0.0)
        return cls(mean, sd / math.sqrt(n), np.full(np.shape(mean), n - 1.0), followed)

    @property
    def _combined(self) -> tuple[Floats, Floats]:
        """Standard error and degrees of freedom, instrument's error included."""
        if np.all(np.asarray(self.systematic) == 0):
            return self.error, self.df
        combined = np.hypot(self.error, self.systematic)
        share = np.where(self.error > 0, self.error, 0.0) / np.where(combined > 0, combined, 1.0)
        return combined, np.minimum(self.df / np.maximum(share, 1e-3) ** 4, 1e9)

    def interval(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Return the limits of the mean."""
        error, df = self._combined
        bound = critical(df, 1 - confidence)
        low = np.minimum(-bound, self._unskewed(-bound))
        high = np.maximum(bound, self._unskewed(bound))
        low, high = (np.where(error > 0, t * error, 0.0) for t in (low, high))
        return np.asarray(self.mean + low), np.asarray(self.mean + high)

    def p_value(self) -> Floats:
        """Return the two-sided p-value of a mean of 0."""
        t = self._t(0.0)
        return np.asarray(np.minimum(1.0, 2 * np.minimum(self._below(t), self._below(-t, -1))))

    def p_equivalence(self, margin: float) -> Floats:
        """Return the larger p-value of the tests against both margins (TOST, Schuirmann)."""
        limit = math.log1p(margin)
        return np.maximum(self._below(-self._t(-limit), -1), self._below(self._t(limit)))

    def p_beyond(self, margin: float) -> Floats:
        """Return the p-value of a ratio within the margin, against one beyond; ≥ `p_value`."""
        limit = math.log1p(margin)
        beyond = np.minimum(self._below(-self._t(limit), -1), self._below(self._t(-limit)))
        return np.asarray(np.maximum(beyond, self.p_value()))

    @property
    def _curve(self) -> Floats:
        """Coefficient of Hall's transformation: skewness / 3√n."""
        return np.asarray(self.skewness / (3 * np.sqrt(self.df + 1)))

    def _skewed(self, t: Floats) -> Floats:
        """Apply Hall's transformation, whose result nearly follows Student's t."""
        a, limited = self._curve, np.isfinite(t)
        finite = np.where(limited, t, 0.0)
        bent = finite + a * finite**2 + a**2 * finite**3 / 3 + a / 2
        return np.where(limited, bent, t)

    def _unskewed(self, bound: Floats) -> Floats:
        """Return the mean's error, in standard errors, at which `_skewed` is at `bound`."""
        a = self._curve
        safe = np.where(a == 0, 1.0, a)
        t = (np.cbrt(1 + 3 * safe * (-bound - safe / 2)) - 1) / safe
        return np.where(a == 0, bound, -t)

    def _below(self, t: Floats, sign: int = 1) -> Floats:
        """Return the one-sided p-value against a smaller mean (`sign` −1: larger, t negated)."""
        df = self._combined[1]
        plain = np.asarray(special.stdtr(df, t))
        return np.asarray(np.maximum(plain, special.stdtr(df, sign * self._skewed(sign * t))))

    def _t(self, log_ratio: float) -> Floats:
        """Return the mean's distance from `log_ratio` in standard errors; ±∞ without scatter."""
        distance = self.mean - log_ratio
        error = self._combined[0]
        certain = np.where(distance == 0, 0.0, np.copysign(np.inf, distance))
        return np.where(error > 0, distance / np.where(error > 0, error, 1.0), certain)


@dataclass(frozen=True)
class Comparison:
    """Ratio of one configuration to another within `n` blocks.

    `error` is the standard error of its logarithm with `df` degrees of freedom, both None if n < 2:
    then there is no interval and no test. `skewness` and `systematic`: see `LogRatio`;
    `skewness_seen` is the skewness of the blocks. It is `complete` once all planned runs of both
    sides are finished; before that its tests reject nothing, so that there is a single look at the
    planned end. `withheld`: never called equivalent, as runs of either side have more than one
    level or are a selection because of void runs. `doubts` are codes of `analysis.flags.DOUBTS`. A
    comparison that belongs to a family (`judge_comparisons`) has adjusted p-values, and the `level`
    at which its tests decide.
    """

    n: int
    ratio: float
    margin: float
    error: float | None = None
    df: float | None = None
    skewness_seen: float = 0.0
    skewness: float = 0.0
    systematic: float = 0.0
    complete: bool = True
    withheld: bool = False
    doubts: tuple[str, ...] = ()
    p_adjusted: float | None = None
    p_equivalence_adjusted: float | None = None
    level: float = LEVEL

    @property
    def sd_log(self) -> float | None:
        """Standard deviation of a block's log-ratio."""
        return None if self.error is None else self.error * math.sqrt(self.n)

    @cached_property
    def _log(self) -> LogRatio | None:
        if self.error is None or self.df is None:
            return None
        parts = math.log(self.ratio), self.error, self.df
        mean, error, df = (np.asarray(part, dtype=float) for part in parts)
        return LogRatio(mean, error, df, self.skewness, self.systematic)

    def interval(self, confidence: float = 0.95) -> Estimate:
        """Return the interval of the ratio; without limits if there are too few blocks."""
        if self._log is None:
            return Estimate(self.ratio, None, None)
        limits = self._log.interval(confidence)
        if not np.all(np.isfinite(limits)):
            return Estimate(self.ratio, None, None)
        low, high = map(exp, limits)
        return Estimate(self.ratio, low, high)

    @cached_property
    def estimate(self) -> Estimate:
        """The ratio with its 95 % interval, not adjusted for a family."""
        return self.interval()

    @property
    def low(self) -> float | None:
        return self.estimate.low

    @property
    def high(self) -> float | None:
        return self.estimate.high

    @cached_property
    def p_value(self) -> float | None:
        """Two-sided p-value of a ratio of 1."""
        if self._log is None:
            return None
        return float(self._log.p_value()) if self.complete else 1.0

    @cached_property
    def p_equivalence(self) -> float | None:
        """P-value of a ratio beyond the margin (TOST); 1 if equivalence cannot be shown."""
        if self._log is None:
            return None
        if self.n < LEAST_EQUIVALENT or self.withheld or not self.complete:
            return 1.0
        return float(self._log.p_equivalence(self.margin))

    @cached_property
    def p_beyond(self) -> float | None:
        """P-value of a ratio within the margin."""
        if self._log is None:
            return None
        return float(self._log.p_beyond(self.margin)) if self.complete else 1.0

    @property
    def inverted(self) -> Comparison:
        """The comparison with its sides exchanged."""
        return replace(
            self,
            ratio=1 / self.ratio,
            skewness_seen=-self.skewness_seen,
            skewness=-self.skewness,
        )

    @property
    def deciding(self) -> tuple[float | None, float | None]:
        """The p-values behind the verdict: adjusted ones if it belongs to a family."""
        if self.p_adjusted is None:
            return self.p_value, self.p_equivalence
        return self.p_adjusted, self.p_equivalence_adjusted

    @property
    def verdict(self) -> Verdict:
        return verdict(*self.deciding) if self.complete else "incomplete"

    @property
    def contradicted(self) -> bool:
        """Whether the interval leaves out 1 although the family's verdict is inconclusive."""
        return self.verdict == "inconclusive" and not self.estimate.contains(1.0)

    @property
    def columns(self) -> dict[str, float | None]:
        """Columns of a table (data/README.md)."""
        return {
            "ratio": self.ratio,
            "ratio_low": self.low,
            "ratio_high": self.high,
            "p_adjusted": self.p_adjusted,
            "p_equivalence_adjusted": self.p_equivalence_adjusted,
        }

    @property
    def equivalent_but_changed(self) -> bool:
        """Whether it is equivalent with a significant change: both tests reject."""
        p = self.deciding[0]
        return self.verdict == "equivalent" and p is not None and p < LEVEL


SKEWED, FOLLOWING = "skewed", "blocks-follow"
LEAST_SERIAL = 8  # blocks; fewer have too few neighbours


def find_doubts(logs: Floats) -> tuple[str, ...]:
    """Return codes of the assumptions that log-ratios of blocks, in order of time, contradict.

    Assumed are no more skewness than in a normal sample, and no correlation of neighbours (normal
    approximation). Each is doubted in 1 % of the samples that fulfil it.
    """
    n = len(logs)
    off = logs - np.mean(logs)
    square = float(np.sum(off**2))
    if n < LEAST_SHAPE or square <= n * NO_SCATTER**2:
        return ()
    skewed = abs(float(sample_skewness(logs))) > ALONE * float(skewness_error(np.asarray(n)))
    following = float(np.sum(off[1:] * off[:-1])) / square + 1 / n
    serial = n >= LEAST_SERIAL and following > ALONE * math.sqrt((n - 2) / (n * n - 1))
    return (SKEWED,) * skewed + (FOLLOWING,) * serial


def pooled_skewness(comparisons: Sequence[Comparison]) -> float:
    """Return the mean skewness of a pair of configurations over its workloads.

    It replaces a smaller one of a workload; 0 if normal blocks may show as much.
    """
    estimated = [c for c in comparisons if c.error is not None and c.n >= LEAST_SHAPE]
    if len(estimated) < 2:
        return 0.0
    n = np.array([c.n for c in estimated], dtype=float)
    observed = float(np.mean([c.skewness_seen for c in estimated]))
    limit = TOGETHER * float(np.sqrt(np.sum(skewness_error(n) ** 2))) / len(estimated)
    return UNDERSTATED * POOLED_TOO * observed if abs(observed) > limit else 0.0


def compare(base: Sequence[float], other: Sequence[float], margin: float) -> Comparison | None:
    """Compare values of the same blocks: the ratio other/base of `base[i]` and `other[i]`.

    None if there is no pair or a value is not positive. The interval is that of
    `scipy.stats.ttest_rel` on the logarithms, exponentiated.
    """
    if len(base) != len(other):
        raise ValueError("paired values must come in equal numbers")
    pairs = np.asarray([base, other], dtype=float)
    if len(base) == 0 or not np.all(np.isfinite(pairs) & (pairs > 0)):
        return None
    logs = np.log(pairs)
    return compare_logs(logs[1] - logs[0], margin)


def compare_logs(logs: Floats, margin: float) -> Comparison:
    """Compare by the log-ratios of all blocks, at least one."""
    n = len(logs)
    if n < 2:
        return Comparison(n, exp(logs[0]), margin)
    mean, observed = LogRatio.from_logs(logs), float(sample_skewness(logs))
    figures = float(mean.error), float(mean.df), observed, float(mean.skewness)
    return Comparison(n, exp(mean.mean), margin, *figures, doubts=find_doubts(logs))


def verdict(p_value: float | None, p_equivalence: float | None) -> Decision:
    """Return the verdict of the two tests, each at 5 %.

    *equivalent*: both one-sided tests reject a ratio beyond the margin, i.e. the 90 % interval lies
    within 1/(1 + margin) … 1 + margin. *differs*: the two-sided test rejects a ratio of 1. A ratio
    that is both (significantly not 1, and within the margin declared too small to matter) is called
    equivalent. All else, and n < 2, is *inconclusive*.
    """
    if p_value is None or p_equivalence is None:
        return "inconclusive"
    if p_equivalence < LEVEL:
        return "equivalent"
    return "differs" if p_value < LEVEL else "inconclusive"


def holm(p_values: Floats) -> Floats:
    """Adjust p-values along the last axis by Holm (Scandinavian Journal of Statistics 6, 1979).

    The k-th smallest of m is multiplied by m − k + 1, is never below the one before it and never
    above 1. SciPy has no such function.
    """
    p = np.asarray(p_values, dtype=float)
    return np.asarray(step_down(p[..., None, :], p)[..., 0, :])


def step_down(p_values: Floats, settled: Floats) -> Floats:
    """Adjust p-values of several tests of each of m questions, of which at most one can err.

    Tests are the last axis but one, questions the last. All open questions are tested at 5 %
    divided by their number. A question is settled, and no longer counts, once its p-value in
    `settled` shows that none of its other tests can err. With `settled` = `p_values` it is Holm's
    procedure.
    """
    order = np.argsort(settled, axis=-1)
    m = settled.shape[-1]
    factors = np.arange(m, 0, -1.0)
    steps = np.maximum.accumulate(np.take_along_axis(settled, order, axis=-1) * factors, axis=-1)
    # The level from which on the first k questions are settled.
    passed = np.concatenate([np.zeros_like(steps[..., :1]), steps], axis=-1)[..., :m]
    place = np.broadcast_to(order[..., None, :], p_values.shape)
    ranked = np.take_along_axis(p_values, place, axis=-1)
    stage = np.maximum(passed[..., None, None, :], ranked[..., :, None] * factors)
    allowed = np.arange(m) <= np.arange(m)[:, None]  # no more than are ranked before it
    least = np.min(np.where(allowed, stage, np.inf), axis=-1, initial=1.0)
    adjusted = np.empty_like(p_values)
    np.put_along_axis(adjusted, place, least, axis=-1)
    return adjusted


Judged = TypeVar("Judged", Comparison, Comparison | None)


def judge_comparisons(comparisons: Sequence[Judged]) -> list[Judged]:
    """Return the comparisons as one family, in order, with adjusted p-values (`step_down`).

    The probability of any false verdict is at most 5 %: a ratio cannot be both 1 and beyond the
    margin, so at most one test of each comparison can err. A comparison no longer counts once both
    of its tests reject, or once its ratio is shown to be beyond the margin.

    None and comparisons without an interval (n < 2) stay unchanged and do not count.
    """
    tested = [c for c in comparisons if c is not None and c.error is not None]
    if not tested:
        return list(comparisons)
    p_values = np.array([[c.p_value, c.p_equivalence] for c in tested], dtype=float).T
    settled = settled_p_values(p_values, np.array([c.p_beyond for c in tested], dtype=float))
    adjusted = step_down(p_values, settled)
    still = np.sum(holm(settled) >= LEVEL)
    level = LEVEL / max(1, int(still))
    decided = iter(
        replace(c, p_adjusted=p, p_equivalence_adjusted=p_equivalence, level=level)
        for c, p, p_equivalence in zip(tested, *adjusted.tolist(), strict=True)
    )
    return [c if c is None or c.error is None else next(decided) for c in comparisons]


def settled_p_values(p_values: Floats, p_beyond: Floats) -> Floats:
    """Return the p-value at which each question is settled.

    It is settled by both tests (last axis but one), or by a ratio beyond the margin at half the
    level: until then a ratio on the margin may be called equivalent.
    """
    return np.asarray(np.minimum(2 * p_beyond, np.max(p_values, axis=-2)))


MOST_BLOCKS = 100  # largest number of blocks that is recommended
PILOT = 10  # blocks from which on their deviation is a usable estimate


def detectable(compared: Comparison, power: float = 0.8) -> float | None:
    """Return the smallest ratio above 1 that these blocks can detect with this power.

    Two-sided, by the noncentral t, at the level that decides in its family; None without an
    interval. Its inverse is the detectable ratio below 1.
    """
    if compared.error is None or compared.df is None:
        return None
    bound = float(critical(np.asarray(compared.df), compared.level))
    log_ratio = compared.error * _noncentrality(compared.df, bound, power)
    return math.exp(log_ratio) if log_ratio < 700 else None


@lru_cache
def _noncentrality(freedom: float, critical: float, power: float) -> float:
    """Return the distance from 1, in standard errors, at which the test has this power."""
    from scipy import optimize, stats  # slow to import, and seldom needed

    def lacking(distance: float) -> float:
        # The noncentral t squared: both of its tails at once.
        return float(stats.ncf.sf(critical**2, 1, freedom, distance**2)) - power

    return float(optimize.brentq(lacking, 0.0, 4 * critical + 4, xtol=1e-12))


def blocks_if_scatter_stays(sd_log: float, n: int, half_width_log: float, level: float) -> int:
    """Return the number of blocks, at least `n`, whose interval is within ± `half_width_log`.

    `level` is the probability that the interval misses (`critical`).
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
    """Return the total number of blocks that settle a comparison if mean and scatter stay.

    The interval, at the level that decides in its family, then excludes 1 or is within the margin,
    whichever takes fewer blocks. While it includes 1, a change beyond the margin is not aimed at,
    as there may be none. None for a single block, which shows no scatter.
    """
    if compared.sd_log is None:
        return None
    change, margin = abs(math.log(compared.ratio)), math.log1p(compared.margin)
    within = max(change, margin - change)
    if compared.estimate.contains(1.0):
        within = min(within, margin)
    return blocks_if_scatter_stays(compared.sd_log, compared.n + 1, within, compared.level)


WIDTHS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


def reachable_width(compared: Comparison) -> tuple[float, int] | None:
    """Return the narrowest of `WIDTHS` within `MOST_BLOCKS` blocks, and its number of blocks.

    The scatter is taken to stay the same. None if no width can be reached.
    """
    if compared.sd_log is None or compared.n < 2:
        return None
    for width in WIDTHS:
        blocks = blocks_if_scatter_stays(compared.sd_log, compared.n, math.log1p(width), LEVEL)
        if blocks <= MOST_BLOCKS:
            return width, blocks
    return None
