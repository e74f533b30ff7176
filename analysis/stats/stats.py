"""Intervals, tests and verdicts, with the block as the unit of replication."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

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

    def _changed(self, change: Callable[[float], float]) -> Span:
        low, high = (None if end is None else change(end) for end in (self.low, self.high))
        return Span(change(self.mid), low, high)


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

    @classmethod
    def alone(cls, n: int, ratio: float, margin: float) -> Comparison:
        """A ratio without interval and tests."""
        return cls(n, ratio, None, None, None, None, None, None, None, margin)

    @property
    def turned(self) -> Comparison:
        """The same comparison the other way round."""

        def inverse(value: float | None) -> float | None:
            return None if not value else 1 / value

        return replace(
            self,
            ratio=1 / self.ratio,
            low=inverse(self.high),
            high=inverse(self.low),
            low90=inverse(self.high90),
            high90=inverse(self.low90),
        )

    @property
    def verdict(self) -> Verdict:
        """By the family's p-values where there is one, else by its own."""
        if self.p_holm is None or self.p_equivalence_holm is None:
            return verdict(self.p_value, self.p_equivalence)
        return verdict(self.p_holm, self.p_equivalence_holm)

    @property
    def columns(self) -> dict[str, float | None]:
        """As columns of a table; data/README.md says what they are."""
        return {
            "ratio": self.ratio,
            "ratio_low": self.low,
            "ratio_high": self.high,
            "p_value": self.p_value,
            "p_holm": self.p_holm,
            "p_equivalence": self.p_equivalence,
            "p_equivalence_holm": self.p_equivalence_holm,
        }

    @property
    def both(self) -> bool:
        """Equivalent, with a significant change: both tests reject."""
        p = self.p_value if self.p_holm is None else self.p_holm
        return self.verdict == "equivalent" and p is not None and p < LEVEL


@dataclass(frozen=True, eq=False)
class LogRatio:
    """A mean log-ratio with its standard error and degrees of freedom; arrays of one shape."""

    mean: Floats
    error: Floats
    df: Floats

    @classmethod
    def of(cls, logs: Floats) -> LogRatio:
        """Student's t over log-ratios along the last axis, two at least."""
        n = logs.shape[-1]
        mean, sd = np.mean(logs, axis=-1), np.std(logs, axis=-1, ddof=1)
        sd = np.where(sd < NO_SCATTER, 0.0, sd)
        mean = np.where((sd == 0) & (np.abs(mean) < NO_SCATTER), 0.0, mean)
        return cls(mean, sd / math.sqrt(n), np.full(np.shape(mean), n - 1.0))

    def interval(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Limits of the mean."""
        half = special.stdtrit(self.df, 0.5 + confidence / 2) * self.error
        return self.mean - half, self.mean + half

    def p_value(self) -> Floats:
        """Two-sided, of a mean of 0."""
        return np.asarray(2 * special.stdtr(self.df, -np.abs(self._t(0.0))))

    def p_equivalence(self, margin: float) -> Floats:
        """TOST: the larger p of the tests against 1/(1 + margin) and 1 + margin (Schuirmann)."""
        limit = math.log1p(margin)
        above = special.stdtr(self.df, -self._t(-limit))
        below = special.stdtr(self.df, self._t(limit))
        return np.asarray(np.maximum(above, below))

    def _t(self, log_ratio: float) -> Floats:
        """Distance from `log_ratio` in standard errors; ±∞ without any scatter."""
        distance = self.mean - log_ratio
        certain = np.where(distance == 0, 0.0, np.copysign(np.inf, distance))
        error = np.where(self.error > 0, self.error, 1.0)
        return np.where(self.error > 0, distance / error, certain)

    def compared(self, n: int, margin: float, sd_log: float | None = None) -> Comparison:
        """A single one as a comparison over `n` blocks."""
        low, high = map(exp, self.interval())
        low90, high90 = map(exp, self.interval(1 - 2 * LEVEL))
        p_value, p_equivalence = float(self.p_value()), float(self.p_equivalence(margin))
        return Comparison(
            n, exp(self.mean), low, high, low90, high90, p_value, p_equivalence, sd_log, margin
        )


def half_width(sd: float | Floats, n: int, confidence: float) -> Floats:
    """Half width of Student's interval of a mean of `n` ≥ 2 values with this deviation."""
    return np.asarray(sd) * (float(special.stdtrit(n - 1, 0.5 + confidence / 2)) / math.sqrt(n))


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
        return Comparison.alone(n, exp(logs[1, 0] - logs[0, 0]), margin)
    paired = LogRatio.of(logs[1] - logs[0])
    return paired.compared(n, margin, float(paired.error) * math.sqrt(n))


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
