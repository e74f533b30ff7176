"""The host as a factor: what holds for these hosts, whether they differ, what holds for others.

Each host brings its own log-ratios, one a block; hosts share no block, and nothing shows that they
scatter alike. The mean over these hosts weighs each the same, whatever its number of blocks. Its
standard error is made of the hosts' own, with degrees of freedom after Satterthwaite (Biometrics
Bulletin 2, 1946) and Welch (Biometrika 34, 1947). Whether the hosts differ is asked by Welch's
one-way test (Biometrika 38, 1951). A statement about hosts in general has the host as the unit of
replication: Student's t over the hosts' means, which knows nothing of blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import numpy as np
from scipy import stats

from analysis.stats.comparison import LogRatio
from analysis.stats.stats import LEVEL, Floats

Alike = Literal["differ", "alike", "inconclusive"]

LEAST_BLOCKS = 2  # of each host: its standard error needs them
LEAST_HOSTS = 3  # two host means say next to nothing of a third


def these_hosts(logs: Sequence[Floats]) -> LogRatio:
    """Return the mean over hosts, each weighing the same; blocks along the last axis of each."""
    return combined([LogRatio.of(host) for host in logs], [1 / len(logs)] * len(logs))


def combined(parts: Sequence[LogRatio], weights: Sequence[float]) -> LogRatio:
    """Return a weighted sum of independent means; their third cumulants add up like variances."""
    mean = sum((w * part.mean for w, part in zip(weights, parts, strict=True)), np.asarray(0.0))
    variances = [(w * part.error) ** 2 for w, part in zip(weights, parts, strict=True)]
    variance = sum(variances, np.asarray(0.0))
    lost = sum((v**2 / part.df for v, part in zip(variances, parts, strict=True)), np.asarray(0.0))
    df = np.where(lost > 0, variance**2 / np.where(lost > 0, lost, 1.0), np.inf)
    cubes = sum(
        (
            (w * part.error) ** 3 * part.skewness / np.sqrt(part.df + 1)
            for w, part in zip(weights, parts, strict=True)
        ),
        np.asarray(0.0),
    )
    known = variance > 0
    skewness = np.where(known, cubes / np.where(known, variance, 1.0) ** 1.5, 0.0)
    skewness *= np.sqrt(np.where(known, df, 0.0) + 1)
    return LogRatio(np.asarray(mean), np.sqrt(variance), df, skewness=skewness)


def p_differ(logs: Sequence[Floats]) -> Floats:
    """Welch's one-way test: p of all hosts having the same mean; blocks along the last axis.

    NaN where a host has no scatter at all: its weight would be without bound.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        test = stats.f_oneway(*logs, axis=-1, equal_var=False)
    still = np.any([LogRatio.of(host).error == 0 for host in logs], axis=0)
    return np.asarray(np.where(still, np.nan, test.pvalue), dtype=float)


def p_alike(logs: Sequence[Floats], margin: float) -> Floats:
    """Return the largest p of all pairs' tests of a ratio of hosts within the margin (Welch, TOST).

    All pairs must pass, so that no further allowance for their number is needed (Berger,
    Technometrics 24, 1982).
    """
    parts = [LogRatio.of(host) for host in logs]
    tests = [
        combined([first, other], [1.0, -1.0]).p_equivalence(margin)
        for first, other in combinations(parts, 2)
    ]
    return np.asarray(np.max(tests, axis=0), dtype=float)


def alike(p_of_differ: float | None, p_of_alike: float | None) -> Alike:
    """*alike*: every two hosts' ratios are significantly within the margin of each other.

    *differ*: they are significantly not all the same. Both is *alike*; else *inconclusive*.
    """
    if p_of_alike is not None and p_of_alike < LEVEL:
        return "alike"
    if p_of_differ is not None and p_of_differ < LEVEL:
        return "differ"
    return "inconclusive"
