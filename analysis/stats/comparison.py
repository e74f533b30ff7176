"""Ratios of two configurations, their intervals, and the verdicts of a family of them.

A comparison rests on log-ratios within blocks: their mean, its standard error and degrees of
freedom. Everything else follows from these three.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
from scipy import special

from analysis.stats import typical
from analysis.stats.stats import LEVEL, Floats, Span, exp

Verdict = Literal["differs", "equivalent", "inconclusive"]

# Logarithms of the same ratio differ by their rounding; joules never agree as well as this.
NO_SCATTER = 1e-13
# Variance of the prior on effects, in units of the scatter's: about the narrowest for 5 to 20
# blocks.
PRIOR = 4.0


def critical(df: Floats, level: float, any_look: bool = False) -> Floats:
    """Standard errors to either side of an interval that misses with probability `level`; see
    `LogRatio`. Infinite where so few blocks bound nothing."""
    if not any_look:
        return np.asarray(special.stdtrit(df, 1 - level / 2))
    n = df + 1
    spread = 1 + n * PRIOR
    bound = np.exp((np.log(spread) - 2 * math.log(level)) / n)
    within = bound < spread
    square = df * (bound - 1) / np.where(within, 1 - bound / spread, 1.0)
    return np.sqrt(np.where(within, square, np.inf))


@dataclass(frozen=True, eq=False)
class LogRatio:
    """A mean log-ratio with its standard error and degrees of freedom; arrays of one shape.

    With `any_look` intervals and p-values hold at all numbers of blocks at once, so that a suite
    may be looked at, ended or extended at any of them: Student's t gives way to the mixture over
    normal effects relative to the scatter, a martingale where there is none (T. L. Lai, Annals of
    Statistics 4, 1976; H. Wang and A. Ramdas, Anytime-valid t-tests and confidence sequences for
    Gaussian means with unknown variance, 2023).
    """

    mean: Floats
    error: Floats
    df: Floats
    any_look: bool = False

    @classmethod
    def of(cls, logs: Floats, any_look: bool = False) -> LogRatio:
        """Over log-ratios along the last axis, two at least."""
        n = logs.shape[-1]
        mean, sd = np.mean(logs, axis=-1), np.std(logs, axis=-1, ddof=1)
        sd = np.where(sd < NO_SCATTER, 0.0, sd)
        mean = np.where((sd == 0) & (np.abs(mean) < NO_SCATTER), 0.0, mean)
        return cls(mean, sd / math.sqrt(n), np.full(np.shape(mean), n - 1.0), any_look)

    def interval(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Limits of the mean."""
        with np.errstate(invalid="ignore"):
            half = critical(self.df, 1 - confidence, self.any_look) * self.error
        half = np.where(self.error > 0, half, 0.0)
        return self.mean - half, self.mean + half

    def p_value(self) -> Floats:
        """Two-sided, of a mean of 0."""
        return self._two_sided(self._t(0.0))

    def p_equivalence(self, margin: float) -> Floats:
        """TOST: the larger p of the tests against 1/(1 + margin) and 1 + margin (Schuirmann)."""
        limit = math.log1p(margin)
        return np.maximum(self._below(-self._t(-limit)), self._below(self._t(limit)))

    def p_beyond(self, margin: float) -> Floats:
        """Of a ratio within the margin, against one beyond it; never below `p_value`."""
        limit = math.log1p(margin)
        beyond = np.minimum(self._below(-self._t(limit)), self._below(self._t(-limit)))
        return np.maximum(beyond, self.p_value())

    def _two_sided(self, t: Floats) -> Floats:
        if not self.any_look:
            return np.asarray(2 * special.stdtr(self.df, -np.abs(t)))
        n = self.df + 1
        spread = 1 + n * PRIOR
        square = np.minimum(t**2, 1e200) / self.df
        evidence = n / 2 * (np.log1p(square) - np.log1p(square / spread)) - np.log(spread) / 2
        return np.asarray(np.exp(-np.maximum(evidence, 0.0)))

    def _below(self, t: Floats) -> Floats:
        """One-sided, against a mean that is smaller; of any look, the two-sided one."""
        if not self.any_look:
            return np.asarray(special.stdtr(self.df, t))
        return np.where(t < 0, self._two_sided(t), 1.0)

    def _t(self, log_ratio: float) -> Floats:
        """Distance from `log_ratio` in standard errors; ±∞ without any scatter."""
        distance = self.mean - log_ratio
        certain = np.where(distance == 0, 0.0, np.copysign(np.inf, distance))
        error = np.where(self.error > 0, self.error, 1.0)
        return np.where(self.error > 0, distance / error, certain)


@dataclass(frozen=True)
class Comparison:
    """Ratio of one configuration to another within `n` blocks.

    `error` is the standard error of its logarithm with `df` degrees of freedom, both None where
    n < 2: then there is no interval and no test. `any_look`: see `LogRatio`. `typical` is the ratio
    of a typical block (`analysis.stats.typical`), from six blocks on. The adjusted p-values are set
    where the comparison belongs to a family (`judged`), with the `level` at which its tests decide
    there.
    """

    n: int
    ratio: float
    margin: float
    error: float | None = None
    df: float | None = None
    any_look: bool = False
    typical: typical.Typical | None = None
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
        return LogRatio(mean, error, df, self.any_look)

    def interval(self, confidence: float = 0.95) -> Span:
        """Of the ratio; without limits where so few blocks bound nothing."""
        if self._log is None:
            return Span(self.ratio, None, None)
        limits = self._log.interval(confidence)
        if not np.all(np.isfinite(limits)):
            return Span(self.ratio, None, None)
        low, high = map(exp, limits)
        return Span(self.ratio, low, high)

    @cached_property
    def _plain(self) -> Span:
        return self.interval()

    @property
    def low(self) -> float | None:
        """Lower limit of the 95 % interval, which knows of no family."""
        return self._plain.low

    @property
    def high(self) -> float | None:
        return self._plain.high

    def contains(self, ratio: float) -> bool:
        """Whether the 95 % interval holds it; without an interval nothing is excluded."""
        return self.low is None or self.high is None or self.low <= ratio <= self.high

    @cached_property
    def p_value(self) -> float | None:
        """Two-sided, of a ratio of 1."""
        return None if self._log is None else float(self._log.p_value())

    @cached_property
    def p_equivalence(self) -> float | None:
        """Of a ratio beyond the margin (TOST)."""
        return None if self._log is None else float(self._log.p_equivalence(self.margin))

    @cached_property
    def p_beyond(self) -> float | None:
        """Of a ratio within the margin."""
        return None if self._log is None else float(self._log.p_beyond(self.margin))

    @property
    def turned(self) -> Comparison:
        """The same comparison the other way round."""
        turned = None if self.typical is None else self.typical.turned
        return replace(self, ratio=1 / self.ratio, typical=turned)

    @property
    def deciding(self) -> tuple[float | None, float | None]:
        """The p-values that the verdict goes by: the family's where there is one."""
        if self.p_adjusted is None:
            return self.p_value, self.p_equivalence
        return self.p_adjusted, self.p_equivalence_adjusted

    @property
    def verdict(self) -> Verdict:
        """*equivalent* only where a typical block says nothing else."""
        found = verdict(*self.deciding)
        return "inconclusive" if found == "equivalent" and self.atypical else found

    @property
    def atypical(self) -> bool:
        """Whether the typical block is not shown to be within the margin, where there is one."""
        return self.typical is not None and not self.typical.within(self.margin)

    @property
    def contradicted(self) -> bool:
        """Whether the plain interval seems to show what the verdict, for its family, denies."""
        low, high = self.low, self.high
        return (
            self.verdict == "inconclusive"
            and low is not None
            and high is not None
            and not low <= 1 <= high
        )

    @property
    def columns(self) -> dict[str, float | None]:
        """As columns of a table; data/README.md says what they are."""
        return {
            "ratio": self.ratio,
            "ratio_low": self.low,
            "ratio_high": self.high,
            "ratio_typical": None if self.typical is None else self.typical.ratio.mid,
            "p_value": self.p_value,
            "p_adjusted": self.p_adjusted,
            "p_equivalence": self.p_equivalence,
            "p_equivalence_adjusted": self.p_equivalence_adjusted,
        }

    @property
    def both(self) -> bool:
        """Equivalent, with a significant change: both tests reject."""
        p = self.deciding[0]
        return self.verdict == "equivalent" and p is not None and p < LEVEL


def compare(
    base: Sequence[float], other: Sequence[float], margin: float, any_look: bool = False
) -> Comparison | None:
    """Paired ratio other/base with its verdict; `base[i]` and `other[i]` come from the same block.

    None where there is no pair or a value is not positive: then there is no ratio. The interval is
    that of `scipy.stats.ttest_rel` on the logarithms, exponentiated.
    """
    if len(base) != len(other):
        raise ValueError("paired values must come in equal numbers")
    pairs = np.asarray([base, other], dtype=float)
    if len(base) == 0 or not np.all(np.isfinite(pairs) & (pairs > 0)):
        return None
    logs = np.log(pairs)
    return compared(logs[1] - logs[0], margin, any_look)


def compared(logs: Floats, margin: float, any_look: bool = False) -> Comparison:
    """From the log-ratios of all blocks, one at least."""
    n = len(logs)
    if n < 2:
        return Comparison(n, exp(logs[0]), margin)
    mean = LogRatio.of(logs)
    return of_mean(mean, n, margin, any_look, typical.of(logs))


def of_mean(
    mean: LogRatio,
    n: int,
    margin: float,
    any_look: bool = False,
    beside: typical.Typical | None = None,
) -> Comparison:
    """From a single mean over `n` blocks."""
    error, df = float(mean.error), float(mean.df)
    return Comparison(n, exp(mean.mean), margin, error, df, any_look, beside)


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


def holm(p_values: Floats) -> Floats:
    """Holm's adjusted p-values along the last axis (Scandinavian Journal of Statistics 6, 1979).

    The k-th smallest of m is multiplied by m − k + 1, is never below the one before it and never
    above 1. SciPy has no such function.
    """
    p = np.asarray(p_values, dtype=float)
    return np.asarray(closed(p[..., None, :], p)[..., 0, :])


def holm_of_known(p_values: Sequence[float | None]) -> list[float | None]:
    """The same over those that there are."""
    known = iter(holm(np.array([p for p in p_values if p is not None], dtype=float)))
    return [None if p is None else float(next(known)) for p in p_values]


def closed(p_values: Floats, settled: Floats) -> Floats:
    """Adjusted p-values of several tests (last axis but one) of each of m questions (last axis), of
    which at most one claims what is false.

    A step-down procedure: every question still open is tested at 5 % divided by their number. One
    is settled, and no longer counts, where `settled` (p-values of questions) says that none of its
    other tests can go wrong any more. With the tests themselves for `settled` it is Holm's.
    """
    order = np.argsort(settled, axis=-1)
    m = settled.shape[-1]
    factors = np.arange(m, 0, -1.0)
    steps = np.maximum.accumulate(np.take_along_axis(settled, order, axis=-1) * factors, axis=-1)
    # At what level so many of the questions that are settled before it have gone.
    gone = np.concatenate([np.zeros_like(steps[..., :1]), steps], axis=-1)[..., :m]
    place = np.broadcast_to(order[..., None, :], p_values.shape)
    ranked = np.take_along_axis(p_values, place, axis=-1)
    stage = np.maximum(gone[..., None, None, :], ranked[..., :, None] * factors)
    allowed = np.arange(m) <= np.arange(m)[:, None]  # as many as stand before it
    least = np.min(np.where(allowed, stage, np.inf), axis=-1, initial=1.0)
    adjusted = np.empty_like(p_values)
    np.put_along_axis(adjusted, place, least, axis=-1)
    return adjusted


Judged = TypeVar("Judged", Comparison, Comparison | None)


def judged(comparisons: Sequence[Judged]) -> list[Judged]:
    """The comparisons as one family, in the same order, with all p-values adjusted (`closed`).

    At most 5 % for any false verdict in it, whatever is true: a ratio cannot be 1 and beyond the
    margin, so one test of each comparison at most can err. A comparison no longer counts once both
    of its tests reject, or once its ratio is shown to be beyond the margin.

    One without an interval (n < 2) was never tested: it stays as it is and counts for nothing, as
    does None.
    """
    tested = [c for c in comparisons if c is not None and c.error is not None]
    if not tested:
        return list(comparisons)
    p_values = np.array([[c.p_value, c.p_equivalence] for c in tested], dtype=float).T
    settled = settling(p_values, np.array([c.p_beyond for c in tested], dtype=float))
    adjusted = closed(p_values, settled)
    still = np.sum(holm(settled) >= LEVEL)
    level = LEVEL / max(1, int(still))
    found = iter(
        replace(c, p_adjusted=p, p_equivalence_adjusted=p_equivalence, level=level)
        for c, p, p_equivalence in zip(tested, *adjusted.tolist(), strict=True)
    )
    return [c if c is None or c.error is None else next(found) for c in comparisons]


def settling(p_values: Floats, p_beyond: Floats) -> Floats:
    """At what p a question is settled: by both tests (last axis but one), or beyond the margin.

    That at half the level: until then a ratio on the margin may be called equivalent.
    """
    return np.asarray(np.minimum(2 * p_beyond, np.max(p_values, axis=-2)))
