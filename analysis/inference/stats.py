"""Intervals and verdicts, with the block as the unit of replication.

Student's t throughout: at the few blocks of a suite, bootstrap intervals cover too little.
Configurations are compared by the log-ratio of joules within a block, so that drift from block to
block cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

Verdict = Literal["differs", "equivalent", "inconclusive"]


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

    `low`/`high` are the 95 % interval, `low90`/`high90` the 90 % interval of the equivalence test;
    all None where n < 2. `p_value` is that of the two-sided paired t test of ratio = 1.
    """

    n: int
    ratio: float
    low: float | None
    high: float | None
    low90: float | None
    high90: float | None
    p_value: float | None
    margin: float
    verdict: Verdict


def estimate(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Mean of block values with its Student t interval. Raises ValueError if `values` is empty."""
    n = len(values)
    if n == 0:
        raise ValueError("no values to estimate from")
    mean = float(np.mean(values))
    if n < 2:
        return Estimate(n, mean, None, None)
    error = float(np.std(values, ddof=1)) / math.sqrt(n)
    half = float(stats.t.ppf(0.5 + confidence / 2, n - 1)) * error
    return Estimate(n, mean, mean - half, mean + half)


def compare(base: Sequence[float], other: Sequence[float], margin: float) -> Comparison | None:
    """Paired ratio other/base with its verdict; `base[i]` and `other[i]` come from the same block.

    None where there is no pair or a value is not positive: then there is no ratio. The interval is
    that of `scipy.stats.ttest_rel` on the logarithms, exponentiated.
    """
    if len(base) != len(other):
        raise ValueError("paired values must come in equal numbers")
    if not base or min(*base, *other) <= 0:
        return None
    log_base, log_other = np.log(base), np.log(other)
    n = len(base)
    mean = float(np.mean(log_other - log_base))
    if n < 2:
        return Comparison(
            n, math.exp(mean), None, None, None, None, None, margin, verdict(None, None, margin)
        )
    if np.ptp(log_other - log_base) < 1e-15:  # no scatter at all: ttest_rel would divide by it
        low = high = low90 = high90 = math.exp(mean)
        p_value = 1.0 if mean == 0 else 0.0
    else:
        test = stats.ttest_rel(log_other, log_base)
        low, high = (math.exp(limit) for limit in test.confidence_interval(0.95))
        low90, high90 = (math.exp(limit) for limit in test.confidence_interval(0.90))
        p_value = float(test.pvalue)
    word = verdict((low, high), (low90, high90), margin)
    return Comparison(n, math.exp(mean), low, high, low90, high90, p_value, margin, word)


def verdict(
    interval95: tuple[float, float] | None, interval90: tuple[float, float] | None, margin: float
) -> Verdict:
    """What an interval of a ratio allows to say.

    *equivalent*: the 90 % interval lies within 1/(1 + margin) … 1 + margin (two one-sided tests at
    5 %). *differs*: the 95 % interval excludes 1. A ratio that is both (surely not 1, and surely
    within the margin declared to be of no account) is called equivalent. All else, and n < 2, is
    *inconclusive*.
    """
    if interval95 is None or interval90 is None:
        return "inconclusive"
    if 1 / (1 + margin) < interval90[0] and interval90[1] < 1 + margin:
        return "equivalent"
    if interval95[0] > 1 or interval95[1] < 1:
        return "differs"
    return "inconclusive"
