"""The canary: one workload on one configuration, first and last, whose power should not move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from analysis.align import TargetClock
from analysis.inference.contrasts import ALL, IDLE
from analysis.inference.steadiness import hours_of
from analysis.records import SYSTEM, Suite
from analysis.summary import rows_of

LIMIT = 0.01


@dataclass(frozen=True)
class Canary:
    """Mean power of the canary's first and last run; `moved` where they differ beyond `limit`.

    `change` and `limit` are shares: 0.01 is 1 %. `hours` lie between the two, where that is known.
    """

    workload: str
    configuration: str
    component: str
    first_w: float
    last_w: float
    change: float
    limit: float
    hours: float | None

    @property
    def moved(self) -> bool:
        return abs(self.change) > self.limit


def canary(
    suite: Suite, energy: pl.DataFrame, clock: TargetClock, component: str = SYSTEM
) -> Canary | None:
    """The suite's canary on the baseline; None where it ran less than twice or has no power.

    The plan's `canary` names its workload and its limit; else it is idling, and 1 %.
    """
    given = suite.plan.get("canary")
    told: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    workload, limit = str(told.get("workload") or IDLE), told.get("limit")
    if not isinstance(limit, int | float) or isinstance(limit, bool) or not limit > 0:
        limit = LIMIT
    if suite.baseline is None:
        return None
    power_w = _power_by_run(energy, workload, suite.baseline, component)
    hours = hours_of(suite.runs, clock)
    order = [run.run_id for run in suite.runs if run.run_id in power_w]
    if hours:
        order.sort(key=lambda run_id: hours[run_id])
    if len(order) < 2:
        return None
    first, last = order[0], order[-1]
    change = power_w[last] / power_w[first] - 1
    apart = hours[last] - hours[first] if hours else None
    return Canary(
        workload, suite.baseline, component, power_w[first], power_w[last], change, limit, apart
    )


def _power_by_run(
    energy: pl.DataFrame, workload: str, configuration: str, component: str
) -> dict[str, float]:
    rows = (
        rows_of(energy, workload, configuration, component, ALL)
        .filter(pl.col("power_w") > 0)
        .group_by("run_id")
        .agg(pl.col("power_w").mean())
    )
    return {str(run_id): float(power_w) for run_id, power_w in rows.iter_rows()}
