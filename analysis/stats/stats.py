"""Intervals, tests and verdicts, with the block as the unit of replication."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats


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
        return Span(
            self.mid * factor,
            None if self.low is None else self.low * factor,
            None if self.high is None else self.high * factor,
        )

    def shifted(self, by: float) -> Span:
        """The same with something exact added."""
        return Span(
            self.mid + by,
            None if self.low is None else self.low + by,
            None if self.high is None else self.high + by,
        )

    def not_below(self, least: float) -> Span:
        """The same, cut off at what it cannot fall short of."""
        return Span(
            max(least, self.mid),
            None if self.low is None else max(least, self.low),
            None if self.high is None else max(least, self.high),
        )


Verdict = Literal["differs", "equivalent", "inconclusive"]
Floats = npt.NDArray[np.float64]

LEVEL = 0.05
# Logarithms of the same ratio differ by their rounding; joules never agree as well as this.
NO_SCATTER = 1e-13
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


@dataclass(frozen=True)
class Comparison:
    """Ratio of one configuration to another, paired within `n` blocks.

    `low`/`high` are the 95 % interval, `low90`/`high90` the 90 % interval of the equivalence test.
    `p_value` is that of the two-sided paired t test of ratio = 1, `p_equivalence` the larger of the
    two one-sided ones against the margin (TOST); `sd_log` is the standard deviation of the paired
    log-ratios. All these are None where n < 2. `p_holm` and `p_equivalence_holm` are set where the
    comparison belongs to a family (`family.judged`).
    """

    n: int
    ratio: float
    low: float | None
    high: float | None
    low90: float | None
    high90: float | None
    p_value: float | None
    p_equivalence: float | None
    sd_log: float | None
    margin: float
    p_holm: float | None = None
    p_equivalence_holm: float | None = None

    @property
    def verdict(self) -> Verdict:
        """By the family's p-values where there is one, else by its own."""
        if self.p_holm is None or self.p_equivalence_holm is None:
            return verdict(self.p_value, self.p_equivalence)
        return verdict(self.p_holm, self.p_equivalence_holm)

    @property
    def both(self) -> bool:
        """Equivalent, with a significant change: both tests reject."""
        p = self.p_value if self.p_holm is None else self.p_holm
        return self.verdict == "equivalent" and p is not None and p < LEVEL


@dataclass(frozen=True, eq=False)
class Paired:
    """Student's t of paired log-ratios: mean and standard deviation over `n` ≥ 2 blocks.

    `mean` and `sd` are arrays of one shape, an element a comparison.
    """

    mean: Floats
    sd: Floats
    n: int

    @classmethod
    def of(cls, log_base: Floats, log_other: Floats) -> Paired:
        """From logarithms; the blocks lie along the last axis, at least two."""
        difference = log_other - log_base
        mean, sd = np.mean(difference, axis=-1), np.std(difference, axis=-1, ddof=1)
        sd = np.where(sd < NO_SCATTER, 0.0, sd)
        mean = np.where((sd == 0) & (np.abs(mean) < NO_SCATTER), 0.0, mean)
        return cls(mean, sd, difference.shape[-1])

    def interval(self, confidence: float) -> tuple[Floats, Floats]:
        """Limits of the mean log-ratio."""
        half = half_width(self.sd, self.n, confidence)
        return self.mean - half, self.mean + half

    def p_value(self) -> Floats:
        """Two-sided, of a mean log-ratio of 0."""
        return 2 * stats.t.sf(np.abs(self._t(0.0)), self.n - 1)

    def p_equivalence(self, margin: float) -> Floats:
        """TOST: the larger p of the tests against 1/(1 + margin) and 1 + margin (Schuirmann)."""
        limit = math.log1p(margin)
        above = stats.t.sf(self._t(-limit), self.n - 1)
        below = stats.t.cdf(self._t(limit), self.n - 1)
        return np.maximum(above, below)

    def _t(self, log_ratio: float) -> Floats:
        """Distance of the mean from `log_ratio` in standard errors, ±∞ without any scatter."""
        distance = self.mean - log_ratio
        error = self.sd / math.sqrt(self.n)
        certain = np.where(distance == 0, 0.0, np.copysign(np.inf, distance))
        return np.where(error > 0, distance / np.where(error > 0, error, 1.0), certain)


def half_width(sd: float | Floats, n: int, confidence: float) -> Floats:
    """Half width of Student's interval of a mean of `n` ≥ 2 values with this deviation."""
    return np.asarray(sd) * (float(stats.t.ppf(0.5 + confidence / 2, n - 1)) / math.sqrt(n))


def estimate(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Mean of block values with its Student t interval. Raises ValueError if `values` is empty."""
    n = len(values)
    if n == 0:
        raise ValueError("no values to estimate from")
    mean = float(np.mean(values))
    if n < 2:
        return Estimate(n, mean, None, None)
    half = float(half_width(float(np.std(values, ddof=1)), n, confidence))
    return Estimate(n, mean, mean - half, mean + half)


def compare(base: Sequence[float], other: Sequence[float], margin: float) -> Comparison | None:
    """Paired ratio other/base with its verdict; `base[i]` and `other[i]` come from the same block.

    None where there is no pair or a value is not positive: then there is no ratio. The interval is
    that of `scipy.stats.ttest_rel` on the logarithms, exponentiated.
    """
    if len(base) != len(other):
        raise ValueError("paired values must come in equal numbers")
    pairs = np.asarray([base, other], dtype=float)
    n = len(base)
    if n == 0 or not np.all(np.isfinite(pairs) & (pairs > 0)):
        return None
    logs = np.log(pairs)
    if n < 2:
        ratio = exp(logs[1, 0] - logs[0, 0])
        return Comparison(n, ratio, None, None, None, None, None, None, None, margin)
    paired = Paired.of(logs[0], logs[1])
    low, high = (exp(limit) for limit in paired.interval(0.95))
    low90, high90 = (exp(limit) for limit in paired.interval(1 - 2 * LEVEL))
    return Comparison(
        n,
        exp(paired.mean),
        low,
        high,
        low90,
        high90,
        float(paired.p_value()),
        float(paired.p_equivalence(margin)),
        float(paired.sd),
        margin,
    )


def verdict(p_value: float | None, p_equivalence: float | None) -> Verdict:
    """What the two tests allow to say, each at 5 %.

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


def exp(log: float | Floats) -> float:
    """A ratio from its logarithm; one beyond all numbers is the largest there is."""
    return math.exp(max(-LARGEST_LOG, min(LARGEST_LOG, float(log))))


def holm(p_values: Floats) -> Floats:
    """Holm's adjusted p-values along the last axis (Scandinavian Journal of Statistics 6, 1979).

    The k-th smallest of m is multiplied by m − k + 1, is never below the one before it and never
    above 1. SciPy has no such function.
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, axis=-1)
    factors = np.arange(p.shape[-1], 0, -1)
    raised = np.maximum.accumulate(np.take_along_axis(p, order, axis=-1) * factors, axis=-1)
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, np.minimum(raised, 1.0), axis=-1)
    return adjusted


def judged(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons as one family, in the same order, with both tests' p-values adjusted.

    One without an interval (n < 2) was never tested: it stays as it is and counts for nothing.
    """
    tested = [c for c in comparisons if c.p_value is not None and c.p_equivalence is not None]
    different = iter(holm(np.array([c.p_value for c in tested], dtype=float)))
    equivalent = iter(holm(np.array([c.p_equivalence for c in tested], dtype=float)))
    return [
        c
        if c.p_value is None or c.p_equivalence is None
        else replace(c, p_holm=float(next(different)), p_equivalence_holm=float(next(equivalent)))
        for c in comparisons
    ]


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
    t2 = float(stats.t.ppf(0.5 + confidence / 2, n - 1)) ** 2
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
