"""How steady the machine was: scatter and carry-over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from analysis.energy.energy import ALL
from analysis.stats.two_way import Layout, percent
from analysis.suite.clocks import TargetClock
from analysis.suite.records import DRIFT_CHECK, SYSTEM, Run, Suite

NS_PER_HOUR = 3.6e12


@dataclass(frozen=True)
class Steadiness:
    """Of one workload. What too few blocks leave open is None, never a guess.

    `between_sd_percent` is the scatter of the blocks' means, `within_sd_percent` what is left of
    single runs. `carry_over_p` is the p-value of no configuration mattering for the one that runs
    after it, `carry_over_least_percent` the effect of one configuration on the next that this test
    finds with 80 % power.
    """

    workload: str
    n: int
    between_sd_percent: float | None
    within_sd_percent: float | None
    carry_over_p: float | None
    carry_over_least_percent: float | None


@dataclass(frozen=True)
class _Cell:
    block: int
    configuration: str
    log: float
    place: float
    after: str | None  # the configuration that ran just before


def steadiness(
    suite: Suite, energy: pl.DataFrame, clock: TargetClock, component: str = SYSTEM
) -> list[Steadiness]:
    """By workload, in the plan's order; only workloads with joules of this component."""
    places = places_of(suite.runs, clock)
    after = {entry: before for (_, before), entry in pairwise(places)}
    rows = energy.filter(pl.col("energy_j") > 0, component=component, phase=ALL)
    workloads = []
    for workload in suite.workloads:
        cells: list[_Cell] = []
        of_workload = rows.filter(workload=workload)
        for block, name, log in (
            of_workload.select("block", "configuration", pl.col("energy_j").log())
            .group_by("block", "configuration")
            .mean()
            .sort("block", "configuration")
            .iter_rows()
        ):
            place = float(places.get((block, name), 0))
            cells.append(_Cell(block, name, log, place, after.get((block, name))))
        if cells:
            workloads.append(_of_workload(workload, cells))
    return workloads


def hours_of(runs: Sequence[Run], clock: TargetClock) -> dict[str, float]:
    """Hours from the first run's start to each one's; empty where boots cannot be set beside.

    Within one boot the target's clock is enough; across boots the controller's is needed.
    """
    starts: dict[str, int] = {}
    one_boot = len({run.boot_id for run in runs}) == 1
    for run in runs:
        at = run.t_start_ns if one_boot else clock.to_controller_ns(run.boot_id, run.t_start_ns)
        if at is None:
            return {}
        starts[run.run_id] = at
    first = min(starts.values(), default=0)
    return {run_id: (at - first) / NS_PER_HOUR for run_id, at in starts.items()}


def places_of(runs: Sequence[Run], clock: TargetClock) -> dict[tuple[int, str], int]:
    """Return each configuration's place in its block, from 0, by (block, configuration).

    In order of time. The drift check is none of a block's runs.
    """
    runs = [run for run in runs if run.workload != DRIFT_CHECK]
    hours = hours_of(runs, clock)
    # Without times the order of the plan stands in; `runs` come in it.
    order = sorted(runs, key=lambda run: hours[run.run_id]) if hours else list(runs)
    places: dict[tuple[int, str], int] = {}
    for run in order:
        key = run.block, run.configuration
        if key not in places:
            places[key] = sum(block == run.block for block, _ in places)
    return places


def _of_workload(workload: str, cells: list[_Cell]) -> Steadiness:
    blocks = sorted({cell.block for cell in cells})
    layout = _layout(cells)
    if layout is None or layout.freedom < 1:
        return Steadiness(workload, len(blocks), None, None, None, None)
    logs = np.array([cell.log for cell in cells])
    carry_over_p, least = _carry_over(layout, cells)
    return Steadiness(
        workload=workload,
        n=len(blocks),
        between_sd_percent=percent(float(np.std(layout.block_effects(logs), ddof=1))),
        within_sd_percent=percent(float(layout.within_sd(logs))),
        carry_over_p=carry_over_p,
        carry_over_least_percent=least,
    )


def _layout(cells: Sequence[_Cell]) -> Layout | None:
    blocks = sorted({cell.block for cell in cells})
    names = sorted({cell.configuration for cell in cells})
    if len(blocks) < 2 or len(names) < 2:
        return None
    return Layout.of(
        tuple(blocks.index(cell.block) for cell in cells),
        tuple(names.index(cell.configuration) for cell in cells),
    )


def _carry_over(layout: Layout, cells: Sequence[_Cell]) -> tuple[float | None, float | None]:
    """p-value and what is found, of what ran just before, the last of the block before included."""
    logs, places = (np.array([getattr(cell, key) for cell in cells]) for key in ("log", "place"))
    names = sorted({cell.after for cell in cells if cell.after is not None})
    after = np.array([names.index(cell.after) if cell.after else -1 for cell in cells])
    p_value, least = map(float, layout.carry_over(logs, after, places))
    if not np.isfinite(p_value):
        return None, None
    return p_value, percent(least) if np.isfinite(least) else None
