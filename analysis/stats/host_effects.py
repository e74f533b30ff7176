"""The host as a factor: what holds for these hosts, whether they differ, what holds for others.

Each host brings its own log-ratios, one a block; hosts share no block, and nothing says that they
scatter alike. The mean over these hosts weighs each the same, whatever its number of blocks. Its
standard error is made of the hosts' own, with degrees of freedom after Satterthwaite (Biometrics
Bulletin 2, 1946) and Welch (Biometrika 34, 1947). Whether the hosts differ is asked by Welch's
one-way test (Biometrika 38, 1951). A statement about hosts in general has the host as the unit of
replication: Student's t over the hosts' means, which knows nothing of blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from scipy import stats

from analysis.stats.stats import LEVEL, NO_SCATTER, Floats

Alike = Literal["differ", "alike", "inconclusive"]

LEAST_BLOCKS = 2  # of each host: its standard error needs them
LEAST_HOSTS = 3  # two host means say next to nothing of a third


@dataclass(frozen=True, eq=False)
class Stated:
    """A mean log-ratio with its standard error and degrees of freedom; arrays of one shape."""

    mean: Floats
    error: Floats
    df: Floats

    def interval(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Limits of the mean."""
        half = stats.t.ppf(0.5 + confidence / 2, self.df) * self.error
        return self.mean - half, self.mean + half

    def p_value(self) -> Floats:
        """Two-sided, of a mean of 0."""
        return np.asarray(2 * stats.t.sf(np.abs(self._t(0.0)), self.df))

    def p_equivalence(self, margin: float) -> Floats:
        """TOST: the larger p of the tests against 1/(1 + margin) and 1 + margin (Schuirmann)."""
        limit = math.log1p(margin)
        above = stats.t.sf(self._t(-limit), self.df)
        below = stats.t.cdf(self._t(limit), self.df)
        return np.maximum(above, below)

    def _t(self, log_ratio: float) -> Floats:
        """Distance from `log_ratio` in standard errors; ±∞ without any scatter."""
        distance = self.mean - log_ratio
        certain = np.where(distance == 0, 0.0, np.copysign(np.inf, distance))
        error = np.where(self.error > 0, self.error, 1.0)
        return np.where(self.error > 0, distance / error, certain)


def of_one(logs: Floats) -> Stated:
    """A host by itself: Student's t over its blocks, along the last axis, two at least."""
    n = logs.shape[-1]
    sd = np.std(logs, axis=-1, ddof=1)
    error = np.where(sd < NO_SCATTER, 0.0, sd) / math.sqrt(n)
    mean = np.mean(logs, axis=-1)
    return Stated(mean, error, np.full(np.shape(mean), n - 1.0))


def these_hosts(logs: Sequence[Floats]) -> Stated:
    """The mean over hosts, each weighing the same; blocks along the last axis of each."""
    return combined([of_one(host) for host in logs], [1 / len(logs)] * len(logs))


def combined(parts: Sequence[Stated], weights: Sequence[float]) -> Stated:
    """A weighted sum of independent means."""
    mean = sum((w * part.mean for w, part in zip(weights, parts, strict=True)), np.asarray(0.0))
    variances = [(w * part.error) ** 2 for w, part in zip(weights, parts, strict=True)]
    whole = sum(variances, np.asarray(0.0))
    lost = sum((v**2 / part.df for v, part in zip(variances, parts, strict=True)), np.asarray(0.0))
    df = np.where(lost > 0, whole**2 / np.where(lost > 0, lost, 1.0), np.inf)
    return Stated(np.asarray(mean), np.sqrt(whole), df)


def hosts_in_general(means: Floats) -> Stated:
    """The mean over hosts as a sample of others: `means` has the hosts along its last axis.

    It holds as far as these hosts were chosen at random from those that are meant.
    """
    return of_one(means)


def p_differ(logs: Sequence[Floats]) -> Floats:
    """Welch's one-way test: p of all hosts having the same mean; blocks along the last axis.

    NaN where a host has no scatter at all: its weight would be without bound.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        found = stats.f_oneway(*logs, axis=-1, equal_var=False)
    still = np.any([of_one(host).error == 0 for host in logs], axis=0)
    return np.asarray(np.where(still, np.nan, found.pvalue), dtype=float)


def p_alike(logs: Sequence[Floats], margin: float) -> Floats:
    """The largest p of all pairs' tests of a ratio of hosts within the margin (Welch, TOST).

    All pairs must pass, so that no further allowance for their number is needed (Berger,
    Technometrics 24, 1982).
    """
    parts = [of_one(host) for host in logs]
    tests = [
        combined([one, other], [1.0, -1.0]).p_equivalence(margin)
        for one, other in combinations(parts, 2)
    ]
    return np.asarray(np.max(tests, axis=0), dtype=float)


def alike(p_of_differ: float | None, p_of_alike: float | None) -> Alike:
    """*alike*: every two hosts' ratios are significantly within the margin of each other.
    *differ*: they are significantly not all the same. Both is *alike*; else *inconclusive*."""
    if p_of_alike is not None and p_of_alike < LEVEL:
        return "alike"
    if p_of_differ is not None and p_of_differ < LEVEL:
        return "differ"
    return "inconclusive"
