"""How often a configuration's runs stall: flagged runs that took more than they should have.

A stall is rare, so that the mean of few blocks is either without any or moved by one: neither tells
what the next hundred runs take. Their frequency is a figure of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scipy import special

from analysis.stats.stats import LEVEL
from analysis.stats.steadiness import Steadiness


@dataclass(frozen=True)
class Stalls:
    """Of one configuration: `stalled` of `runs`; the true share lies within `low` and `high`.

    The largest one took `most_percent` more than its block and configuration lead to expect.
    """

    configuration: str
    runs: int
    stalled: int
    low: float
    high: float
    most_percent: float | None


def stalls(steady: Iterable[Steadiness], configurations: Sequence[str]) -> list[Stalls]:
    """By configuration over all workloads, those with runs that could be judged."""
    runs: Counter[str] = Counter()
    over: dict[str, list[float]] = {name: [] for name in configurations}
    for one in steady:
        runs.update(one.judged)
        for outlier in one.outliers:
            if outlier.off_percent > 0:
                over.setdefault(outlier.configuration, []).append(outlier.off_percent)
    return [
        Stalls(
            name,
            runs[name],
            len(over[name]),
            *share_within(len(over[name]), runs[name]),
            max(over[name], default=None),
        )
        for name in configurations
        if runs[name]
    ]


def share_within(count: int, total: int) -> tuple[float, float]:
    """95 % limits of the probability of what came `count` times of `total`, of `total` ≥ 1.

    C. J. Clopper and E. S. Pearson, Biometrika 26, 1934; never too narrow.
    """
    low = special.betaincinv(count, total - count + 1, LEVEL / 2) if count else 0.0
    high = special.betaincinv(count + 1, total - count, 1 - LEVEL / 2) if count < total else 1.0
    return float(low), float(high)
