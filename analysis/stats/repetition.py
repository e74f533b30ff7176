"""Whether runs of one command are repetitions: independent draws of one quantity.

Student's interval of their mean holds for those alone. Four tests of their joules in the order of
time, each at `LEVEL`: independent runs get any sign at all with the chance `FALSE_ALARM` at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy import special

from analysis.stats.stats import Floats

FALSE_ALARM = 0.05
LEVEL = 0.01  # of each; together somewhat below FALSE_ALARM whatever the scatter's shape
LEAST = 4  # fewer runs leave these tests no freedom
LEAST_SERIAL = 7  # fewer have too few orders for a p-value below the level
LEAST_OUTLIERS = 6
ORDERS, SEED = 1_999, 20_261_126
MOST_ORDERED = 1_000  # of more runs the statistic's normal limit takes the place of random orders
MOST_STEP = 0.05  # of the median; a source whose steps are coarser is no source for so short a run
SPREADS = 4
SAME = 1e-12
SHARE_OF_OUTLIERS = 5  # one of five runs at most: more of them are a second mode

Code = Literal["first-run", "trend", "serial-correlation", "outliers"]


@dataclass(frozen=True)
class Sign:
    """A sign that runs are no repetitions: which, its p-value, and how large the effect is.

    `share` is how far the first run or the outlier farthest off is from the others, or how much the
    trend adds from first to last, each as a share; of serial correlation, the correlation of a run
    with the one before it. `runs` are the places of those that stand out, from 0.
    """

    code: Code
    p_value: float
    share: float
    runs: tuple[int, ...] = ()


def signs(values: Sequence[float]) -> tuple[Sign, ...]:
    """Return the signs in joules by run, in order of time; none where too few or not above 0.

    A sign must show in the joules and in their logarithms: a scatter that is normal in either
    raises no more false alarms than `FALSE_ALARM`.
    """
    joules = np.asarray(values, float)
    if len(joules) < LEAST or joules.min() <= 0 or np.ptp(joules) < SAME * joules.max():
        return ()
    in_all = set(get_args(Code))
    for spread in _spread_steps(joules):
        for scaled in (spread / spread.mean(), np.log(spread)):
            significant = {sign.code: sign for sign in _signs(scaled) if sign.p_value < LEVEL}
            in_all &= significant.keys()
    return tuple(sign for code, sign in significant.items() if code in in_all)


def _spread_steps(joules: Floats) -> list[Floats]:
    """Spread values that a source gives in steps over these, where some are equal.

    Several times, for what one draw makes of equal values is chance.
    """
    distinct = np.unique(joules)
    if len(distinct) == len(joules):
        return [joules]
    step = min(float(np.diff(distinct).min()), MOST_STEP * float(np.median(joules)))
    drawn = np.random.default_rng(SEED).random((SPREADS, len(joules))) - 0.5
    return list(joules + step * drawn)


def _signs(logs: Floats) -> Iterator[Sign]:
    # The first value against the others, by Student's t of a single value.
    others = logs[1:]
    off = float(logs[0] - others.mean())
    error = float(others.std(ddof=1)) * math.sqrt(1 + 1 / len(others))
    p_value = _two_sided(off, error, len(others) - 1)
    first = Sign("first-run", p_value, math.expm1(off), (0,))
    yield first
    trend = _trend(logs)
    yield trend
    if trend.p_value >= LEVEL and len(logs) >= LEAST_SERIAL:  # a trend correlates them, too
        yield _serial(logs)
    start = int(first.p_value < LEVEL)
    if len(logs) - start >= LEAST_OUTLIERS:
        yield from _outliers(logs[start:], start)


def _trend(logs: Floats) -> Sign:
    """Test the slope of a straight line over the number of the run."""
    at = np.arange(len(logs)) - (len(logs) - 1) / 2
    slope = float(at @ logs / (at @ at))
    left = logs - logs.mean() - slope * at
    freedom = len(logs) - 2
    error = math.sqrt(float(left @ left) / freedom / float(at @ at))
    rise = math.expm1(slope * (len(logs) - 1))
    return Sign("trend", _two_sided(slope, error, freedom), rise)


def _serial(logs: Floats) -> Sign:
    """Test whether neighbours are alike against random orders of the same values.

    The statistic of A. Wald and J. Wolfowitz (Annals of Mathematical Statistics 14, 1943), not
    wrapped round; one-sided, for only likeness makes intervals too narrow.
    """
    off = logs - logs.mean()
    statistic, square, n = float(off[1:] @ off[:-1]), float(off @ off), len(off)
    if n > MOST_ORDERED:
        p_value = float(special.ndtr(-(statistic + square / n) / square * math.sqrt(n)))
        return Sign("serial-correlation", p_value, statistic / square)
    orders = off[_orders(n)]
    beyond = int(((orders[:, 1:] * orders[:, :-1]).sum(axis=1) >= statistic - 1e-15).sum())
    return Sign("serial-correlation", (1 + beyond) / (1 + ORDERS), statistic / square)


@lru_cache(maxsize=4)
def _orders(n: int) -> npt.NDArray[np.intp]:
    """Random orders of n places, one a row."""
    return np.argsort(np.random.default_rng(SEED).random((ORDERS, n)), axis=1)


def _outliers(logs: Floats, start: int) -> Iterator[Sign]:
    """Test for several values that stand out at once: the generalised extreme Studentised deviate.

    B. Rosner, Technometrics 25, 1983. A pair of outliers does not hide itself there.
    """
    order = np.argsort(logs)
    off = (logs - logs.mean())[order]
    low, high, total, square = 0, len(off) - 1, 0.0, float(off @ off)
    removed: list[tuple[int, float]] = []
    for _ in range(max(1, len(logs) // SHARE_OF_OUTLIERS)):
        n, freedom = high - low + 1, high - low - 1
        mean = total / n
        at = high if off[high] - mean >= mean - off[low] else low  # the worst is at either end
        # Grubbs's deviate as Student's t of the worst against all others of its round.
        share = float(off[at] - mean) ** 2 / max(square - n * mean**2, SAME**2) * n / (n - 1)
        t = math.sqrt(freedom * share / max(1 - share, 1e-12))
        removed.append((int(order[at]), min(1.0, n * 2 * float(special.stdtr(freedom, -t)))))
        total, square = total - float(off[at]), square - float(off[at]) ** 2
        low, high = low + (at == low), high - (at == high)
    last = max((at for at, (_, p) in enumerate(removed) if p < LEVEL), default=-1)
    if last >= 0:
        runs = [place for place, _ in removed[: last + 1]]
        others = np.delete(logs, runs).mean()
        farthest = max((float(logs[place] - others) for place in runs), key=abs)
        places = tuple(sorted(start + place for place in runs))
        yield Sign("outliers", removed[last][1], math.expm1(farthest), places)


def _two_sided(value: float, error: float, freedom: int) -> float:
    return 2 * float(special.stdtr(freedom, -abs(value) / max(error, SAME)))
