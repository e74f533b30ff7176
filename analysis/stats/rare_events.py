"""Runs that stand out from the others of their workload and configuration, and what they allow for.

A governor, a cache or a garbage collection may put some runs on another level than the rest. A
workload in which none happened to occur does not show them in its scatter: what the configuration
did elsewhere in the suite widens its interval. What occurred nowhere is in no figure, and the page
states how rare that may be.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy import special

from analysis.energy.energy import ALL
from analysis.stats.stats import LEVEL
from analysis.suite.records import SYSTEM, Suite

DISTANCE = 5.0  # robust standard deviations from the median of the cell
LEAST_RUNS = 4  # of a cell; fewer have no median to stand out from
MAD_TO_SD = 1.4826  # of a normal distribution


@dataclass(frozen=True)
class RareEvents:
    """Runs of one configuration that stand out, of `runs`: their workloads and blocks.

    `largest_log` is the largest distance from the median of its cell, as a logarithm of joules.
    """

    configuration: str
    runs: int
    events: frozenset[tuple[str, int]]
    largest_log: float

    @property
    def allowance(self) -> float:
        """Upper 95 % limit of the share of such runs, times their size.

        The limit is exact (C. J. Clopper and E. S. Pearson, Biometrika 26, 1934).
        """
        count = len(self.events)
        if not count:
            return 0.0
        share = special.betaincinv(count + 1, self.runs - count, 1 - LEVEL)
        return float(share) * self.largest_log


def find_rare_events(
    suite: Suite, energy: pl.DataFrame, component: str = SYSTEM
) -> dict[str, RareEvents]:
    """Count by configuration the runs that stand out by more than the suite's margin."""
    rows = energy.filter(pl.col("energy_j") > 0, component=component, phase=ALL)
    cells: dict[str, dict[str, dict[int, float]]] = {}
    means = rows.group_by("workload", "configuration", "block", maintain_order=True).agg(
        pl.col("energy_j").log().mean()
    )
    for workload, name, block, log in means.iter_rows():
        cells.setdefault(workload, {}).setdefault(name, {})[block] = log
    distances = {workload: _distances(table) for workload, table in cells.items()}
    limit = math.log1p(suite.margin)
    events = {}
    for name in suite.configurations:
        off = {
            (workload, block): (distance, scale)
            for workload, table in distances.items()
            for block, distance, scale in table.get(name, ())
        }
        sizes = {
            place: distance
            for place, (distance, scale) in off.items()
            if distance > max(limit, DISTANCE * scale)
        }
        largest_log = max(sizes.values(), default=0.0)
        events[name] = RareEvents(name, len(off), frozenset(sizes), largest_log)
    return events


def _distances(
    table: Mapping[str, Mapping[int, float]],
) -> dict[str, list[tuple[int, float, float]]]:
    """Return by configuration each block, how far its run is from the median, and the scale.

    What a block does to all configurations of three or more is taken off first. The scale is the
    larger of the cell's own and that of all cells of the workload, from medians.
    """
    names = [name for name, runs in table.items() if len(runs) >= LEAST_RUNS]
    if not names:
        return {}
    blocks = sorted({block for name in names for block in table[name]})
    logs = np.array([[table[name].get(block, np.nan) for block in blocks] for name in names])
    logs = logs - np.nanmedian(logs, axis=1, keepdims=True)
    if len(names) > 2:
        logs = logs - np.nanmedian(logs, axis=0, keepdims=True)
        logs = logs - np.nanmedian(logs, axis=1, keepdims=True)
    off = np.abs(logs)
    pooled = float(np.nanmedian(off))
    scales = MAD_TO_SD * np.maximum(pooled, np.nanmedian(off, axis=1))
    return {
        name: [
            (block, distance, scale)
            for block, distance in zip(blocks, row.tolist(), strict=True)
            if math.isfinite(distance)
        ]
        for name, row, scale in zip(names, off, scales.tolist(), strict=True)
    }


def allowance(
    events: Mapping[str, RareEvents], configurations: Iterable[str], workload: str
) -> float:
    """Return what the rare events of configurations may add to a log-ratio in one workload.

    Those that occurred in it are in its scatter already.
    """
    return math.fsum(
        events[name].allowance
        for name in configurations
        if name in events and workload not in dict(events[name].events)
    )
