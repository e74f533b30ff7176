"""Find workloads whose runs on one configuration have two levels of joules.

A governor, a cache or a power state may put some runs on another level. The mean of few blocks then
gives neither level, and a level that never occurred cannot show in any figure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl
from scipy import special

from analysis.energy.energy import ALL
from analysis.stats.comparison import holm
from analysis.stats.stats import LEVEL, Floats
from analysis.suite.records import SYSTEM, Suite

LEAST = 4  # runs; fewer do not define a level
FALSE_ALARM = 0.05  # over all workloads and configurations together
DRAWS, MOST_DRAWN, SEED = 20_000, 2_000_000, 20_261_126
NO_SCATTER = 1e-13


@dataclass(frozen=True)
class Level:
    """Runs on one level: their mean, their number, and the 95 % limits of their share."""

    mean_j: float
    runs: int
    low: float
    high: float


@dataclass(frozen=True)
class Levels:
    """Levels of one workload on one configuration, the level with most runs first.

    `levels` is empty if one level explains the runs, if the gap between two is within the margin,
    or if there are too few runs (then `p_adjusted` is None). `blocks` are those with a run on the
    smaller level.
    """

    workload: str
    configuration: str
    runs: int
    p_adjusted: float | None
    levels: tuple[Level, ...] = ()
    blocks: frozenset[int] = frozenset()


def find_levels(suite: Suite, energy: pl.DataFrame, component: str = SYSTEM) -> list[Levels]:
    """Find the levels of each workload and configuration, with at most 5 % risk of any false one.

    The test statistic is the largest gap between neighbouring logarithms of joules, in standard
    deviations of the runs on either side of such gaps in all configurations of the workload. It is
    compared with the same statistic of normal scatter.
    """
    rows = energy.filter(pl.col("energy_j") > 0, component=component, phase=ALL)
    cells: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for workload, name, block, joules in rows.select(
        "workload", "configuration", "block", "energy_j"
    ).iter_rows():
        cells.setdefault((workload, name), []).append((joules, block))
    keys = [(w, n) for w in suite.workloads for n in suite.configurations if (w, n) in cells]
    p_values = [
        p_value
        for workload in suite.workloads
        for p_value in _p_values([cells[key] for key in keys if key[0] == workload])
    ]
    adjusted = iter(holm(np.array([p for p in p_values if p is not None], dtype=float)).tolist())
    return [
        _levels(*key, cells[key], None if p is None else next(adjusted), suite.margin)
        for key, p in zip(keys, p_values, strict=True)
    ]


_Runs = Sequence[tuple[float, int]]  # joules and block of each


def _p_values(configurations: Sequence[_Runs]) -> list[float | None]:
    """Return the p-value of each configuration's largest gap; None for too few runs."""
    sizes = tuple(len(runs) for runs in configurations if len(runs) >= LEAST)
    gaps = [_gap(runs)[1:] for runs in configurations]
    within = sum(square for _, square in gaps) / max(1, sum(size - 2 for size in sizes))
    p_values: list[float | None] = []
    for runs, (gap, _) in zip(configurations, gaps, strict=True):
        if len(runs) < LEAST:
            p_values.append(None)
            continue
        scaled_gap = gap / math.sqrt(within) if within > NO_SCATTER**2 else math.inf
        null = gaps_of_one_level(sizes, len(runs))
        above = len(null) - np.searchsorted(null, scaled_gap) if gap > NO_SCATTER else len(null)
        p_values.append(float((1 + above) / (1 + len(null))))
    return p_values


def _gap(runs: _Runs) -> tuple[int, float, float]:
    """Split the runs' logarithms of joules at the largest gap; no gap in too few runs."""
    if len(runs) < LEAST:
        return 0, 0.0, 0.0
    place, gap, square = split(np.sort([math.log(joules) for joules, _ in runs]))
    return int(place), float(gap), float(square)


def split(ordered: Floats) -> tuple[Floats, Floats, Floats]:
    """Split sorted values (last axis) at the largest gap.

    Return the number of values below it, its width, and the sum of squares of the values about the
    means of both sides.
    """
    n = ordered.shape[-1]
    steps = np.diff(ordered, axis=-1)
    place = np.argmax(steps, axis=-1) + 1
    low = np.arange(n) < place[..., None]
    square = np.zeros(place.shape)
    for side in (low, ~low):
        count = np.sum(side, axis=-1, keepdims=True)
        off = np.where(side, ordered - np.sum(ordered * side, -1, keepdims=True) / count, 0.0)
        square = square + np.sum(off**2, axis=-1)
    return place, np.max(steps, axis=-1), square


@lru_cache(maxsize=32)
def gaps_of_one_level(sizes: tuple[int, ...], count: int) -> Floats:
    """Draw the largest gap of `count` normal values; return the sorted draws.

    Their unit is the deviation within configurations of these `sizes` (numbers of runs).
    """
    draws = max(1, min(DRAWS, MOST_DRAWN // sum(sizes)))
    generator = np.random.default_rng(SEED)
    squares = np.zeros(draws)
    gaps = []
    for size in sizes:
        _, gap, square = split(np.sort(generator.normal(size=(draws, size)), axis=-1))
        squares += square
        gaps += [gap] if size == count else []
    within = np.sqrt(squares / sum(size - 2 for size in sizes))
    return np.sort(np.concatenate([gap / within for gap in gaps]))


def _levels(
    workload: str, name: str, runs: _Runs, p_adjusted: float | None, margin: float
) -> Levels:
    ordered = sorted(runs)
    place, gap, _ = _gap(runs)
    if p_adjusted is None or p_adjusted >= FALSE_ALARM or gap <= math.log1p(margin):
        return Levels(workload, name, len(runs), p_adjusted)
    sides = sorted((ordered[:place], ordered[place:]), key=len, reverse=True)
    levels = []
    for side in sides:
        # Limits of C. J. Clopper and E. S. Pearson (Biometrika 26, 1934), never too narrow.
        count, others = len(side), len(runs) - len(side)
        low = float(special.betaincinv(count, others + 1, LEVEL / 2))
        high = float(special.betaincinv(count + 1, others, 1 - LEVEL / 2))
        levels.append(Level(float(np.mean([j for j, _ in side])), count, low, high))
    blocks = frozenset(block for _, block in sides[1])
    return Levels(workload, name, len(runs), p_adjusted, tuple(levels), blocks)


def apart(levels: Sequence[Levels], base: str, other: str) -> bool:
    """Return whether two configurations change their level in different blocks."""
    blocks = {(cell.workload, cell.configuration): cell.blocks for cell in levels}
    return any(
        blocks.get((workload, base), frozenset()) != blocks.get((workload, other), frozenset())
        for workload in {workload for workload, _ in blocks}
    )
