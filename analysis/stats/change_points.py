"""Where a series of blocks or readings steps from one level to another, and when.

A step is told from chance by the largest of all splits, against what the same values give in random
order; a steady drift is not called a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from analysis.stats.comparison import holm
from analysis.stats.drift_check import DriftCheck, Reading
from analysis.stats.stats import LEVEL, Floats
from analysis.stats.steadiness import Steadiness
from analysis.suite.records import SYSTEM, Suite

LEAST = 8  # fewer values have too few orders for a small p
EDGE = 2  # values on either side of a split, at least
ORDERS = 4_999
SEED = 20_261_124


@dataclass(frozen=True)
class Step:
    """The mean of the values after the first `after` differs from theirs.

    `change_percent` has a 95 % interval by Student's t, which does not know that the place was
    chosen. `p_value` is of any step at all, in this series alone.
    """

    after: int
    change_percent: float
    low_percent: float
    high_percent: float
    p_value: float


@dataclass(frozen=True)
class ChangePoint:
    """A step of the joules of all workloads (`of` is None), or of one of the drift check's powers.

    It lies between what ran last before it and first after it: blocks, or runs of the check (from
    1), and the target's wall time in UTC, empty where it is unknown.
    """

    of: Reading | None
    step: Step
    places: tuple[int, int]
    walls: tuple[str, str]


def change_points(
    suite: Suite, steady: Sequence[Steadiness], check: DriftCheck | None
) -> tuple[list[ChangePoint], int]:
    """Those found, and how many series were long enough to look at: few, so that a step is seen in
    ten blocks."""
    readings = check.readings if check is not None else ()
    whole = [reading for reading in readings if reading.component == SYSTEM]
    blocks = sorted(set.intersection(*(set(one.blocks) for one in steady))) if steady else []
    effects = [[math.log1p(one.blocks[b].mean / 100) for b in blocks] for one in steady]
    of_blocks = np.mean(effects, axis=0).tolist() if effects else []
    series = [of_blocks, *([math.log(w) for w in reading.powers_w] for reading in whole)]
    found = [
        _of_blocks(suite, blocks, step) if of is None else _of_runs(suite, of, step)
        for of, step in zip([None, *whole], steps(series), strict=True)
        if step is not None
    ]
    return found, sum(len(values) >= LEAST for values in series)


def _of_blocks(suite: Suite, blocks: Sequence[int], step: Step) -> ChangePoint:
    ends = blocks[step.after - 1], blocks[step.after]
    before, later = (
        [run.started_wall for run in suite.compared_runs if run.block == block] for block in ends
    )
    walls = max(before, default=""), min(later, default="")
    return ChangePoint(None, step, (ends[0] + 1, ends[1] + 1), walls)


def _of_runs(suite: Suite, of: Reading, step: Step) -> ChangePoint:
    started = {run.run_id: run.started_wall for run in suite.runs}
    before, later = (started.get(of.run_ids[at], "") for at in (step.after - 1, step.after))
    return ChangePoint(of, step, (step.after, step.after + 1), (before, later))


def steps(series: Sequence[Sequence[float]]) -> list[Step | None]:
    """The largest step of each series of logarithms in the order of time, None where there is none.

    At most 5 % for any among all series (Holm) where the values of each come in random order.
    """
    long = [np.array(values) for values in series if len(values) >= LEAST]
    found = [_largest(values) for values in long]
    adjusted = holm(np.array([p_value for _, p_value in found]))
    told = iter(
        _step(values, place, p_value)
        if least < LEVEL and _rather_than_a_line(values, place)
        else None
        for values, (place, p_value), least in zip(long, found, adjusted.tolist(), strict=True)
    )
    return [next(told) if len(values) >= LEAST else None for values in series]


def _largest(values: Floats) -> tuple[int, float]:
    """The split that explains most, and its p-value."""
    generator = np.random.default_rng(SEED)
    orders = generator.permuted(np.tile(values, (ORDERS, 1)), axis=-1)
    place, explained = _splits(values[None])
    as_large = np.sum(_splits(orders)[1] >= explained * (1 - 1e-12))
    return int(place[0]), float(1 + as_large) / (1 + ORDERS)


def _splits(values: Floats) -> tuple[Floats, Floats]:
    """By series (rows): after how many values the best split comes, and the sum of squares that it
    explains."""
    n = values.shape[-1]
    before = np.arange(EDGE, n - EDGE + 1)
    sums = np.cumsum(values - np.mean(values, axis=-1, keepdims=True), axis=-1)
    explained = sums[:, before - 1] ** 2 * n / (before * (n - before))
    best = np.argmax(explained, axis=-1)
    return before[best], np.max(explained, axis=-1)


def _rather_than_a_line(values: Floats, place: int) -> bool:
    """Whether the step explains more than a straight line does."""
    n = len(values)
    off, at = values - np.mean(values), np.arange(n) - (n - 1) / 2
    of_line = np.sum(off * at) ** 2 / np.sum(at**2)
    of_step = np.sum(off[:place]) ** 2 * n / (place * (n - place))
    return bool(of_step > of_line)


def _step(values: Floats, place: int, p_value: float) -> Step:
    before, later = values[:place], values[place:]
    change = float(np.mean(later) - np.mean(before))
    squares = sum(float(np.sum((part - np.mean(part)) ** 2)) for part in (before, later))
    freedom = len(values) - 2
    error = math.sqrt(squares / freedom * (1 / len(before) + 1 / len(later)))
    half = float(special.stdtrit(freedom, 1 - LEVEL / 2)) * error
    change, low, high = (100 * math.expm1(log) for log in (change, change - half, change + half))
    return Step(place, change, low, high, p_value)
