"""How steady the machine was: scatter and carry-over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from analysis.energy.energy import ALL
from analysis.stats.stats import Floats
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


def steadiness(
    suite: Suite, energy: pl.DataFrame, clock: TargetClock, component: str = SYSTEM
) -> list[Steadiness]:
    """By workload, in the plan's order; only workloads with joules of this component."""
    places = places_of(suite.runs, clock)
    after = {entry: before for before, entry in pairwise(places)}
    rows = energy.filter(pl.col("energy_j") > 0, component=component, phase=ALL)
    workloads = []
    for workload in suite.workloads:
        logs = (
            rows.filter(workload=workload)
            .group_by("block", "configuration")
            .agg(pl.col("energy_j").log().mean())
            .sort("block", "configuration")
        )
        if len(logs):
            cells = list(zip(logs["block"], logs["configuration"], strict=True))
            at = np.array([float(places.get(cell, 0)) for cell in cells])
            before = [after[cell][1] if cell in after else "" for cell in cells]
            workloads.append(_of_workload(workload, cells, logs["energy_j"].to_numpy(), at, before))
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


def _of_workload(
    workload: str,
    cells: Sequence[tuple[int, str]],
    logs: Floats,
    places: Floats,
    before: Sequence[str],
) -> Steadiness:
    """Of runs by block and configuration: their logarithms, places, and what ran just before."""
    blocks, names = (np.unique(side, return_inverse=True)[1] for side in zip(*cells, strict=True))
    n = int(blocks.max()) + 1
    layout = None
    if n > 1 and names.max() > 0:
        layout = Layout.of(tuple(blocks.tolist()), tuple(names.tolist()))
    if layout is None or layout.freedom < 1:
        return Steadiness(workload, n, None, None, None, None)
    kinds = sorted({*before} - {""})
    after = np.array([kinds.index(name) if name else -1 for name in before])
    p_value, least = map(float, layout.carry_over(logs, after, places))
    testable = np.isfinite(p_value)
    return Steadiness(
        workload=workload,
        n=n,
        between_sd_percent=percent(float(np.std(layout.block_effects(logs), ddof=1))),
        within_sd_percent=percent(float(layout.within_sd(logs))),
        carry_over_p=p_value if testable else None,
        carry_over_least_percent=percent(least) if testable and np.isfinite(least) else None,
    )
