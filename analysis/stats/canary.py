"""The canary: one workload on one configuration, first and last, whose power should not move."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from analysis.stats.contrasts import ALL, IDLE
from analysis.stats.steadiness import hours_of
from analysis.suite.align import TargetClock
from analysis.suite.records import TAIL, Suite

LIMIT = 0.01
HELD, MOVED, CANNOT_TELL = "held", "moved", "cannot tell"
# Memory takes too small a share to tell of the machine; what lies within a package is part of it.
JUDGED = r"^(system|drive|package-[^/]+)$"


@dataclass(frozen=True)
class Reading:
    """Mean power of one phase and component in the canary's first and in its last run, in W.

    `doubt` is the half width of the 95 % interval of `change` that reading and aligning alone give.
    """

    phase: str
    component: str
    source: str
    first_w: float
    last_w: float
    doubt: float

    @property
    def change(self) -> float:
        """As a share: 0.01 is 1 % more."""
        return self.last_w / self.first_w - 1


@dataclass(frozen=True)
class Canary:
    """First against last run; `limit` is the share by which power may move, `hours` lie between
    the two where that is known."""

    workload: str
    configuration: str
    limit: float
    hours: float | None
    readings: tuple[Reading, ...]

    @property
    def verdict(self) -> str:
        """`moved` where any reading is surely beyond the limit; `cannot tell` where one is beyond
        it and the instruments' doubt alone may be why; else `held`."""
        if any(self.has_moved(reading) for reading in self.readings):
            return MOVED
        beyond = any(abs(reading.change) > self.limit for reading in self.readings)
        return CANNOT_TELL if beyond else HELD

    def has_moved(self, reading: Reading) -> bool:
        return abs(reading.change) > max(self.limit, reading.doubt)

    @property
    def worst(self) -> Reading:
        """The reading that changed most."""
        return max(self.readings, key=lambda reading: abs(reading.change))


def given(suite: Suite) -> tuple[str, str | None, float]:
    """Workload, configuration and limit of the suite's canary.

    Older plans name none: then it is idling on the baseline, and 1 %.
    """
    told = suite.plan.get("canary")
    told = told if isinstance(told, Mapping) else {}
    limit = told.get("limit")
    if not isinstance(limit, int | float) or isinstance(limit, bool) or not limit > 0:
        limit = LIMIT
    configuration = str(told.get("configuration") or "") or suite.baseline
    return str(told.get("workload") or IDLE), configuration, float(limit)


def canary(suite: Suite, energy: pl.DataFrame, clock: TargetClock) -> Canary | None:
    """The suite's canary; None where it ran less than twice or no instrument saw it twice."""
    workload, configuration, limit = given(suite)
    if configuration is None:
        return None
    rows = energy.filter(
        (pl.col("workload") == workload)
        & (pl.col("configuration") == configuration)
        & pl.col("component").str.contains(JUDGED)
        & ~pl.col("phase").is_in(["between", TAIL])
        & (pl.col("power_w") > 0)
    )
    if rows.is_empty():
        return None
    order = _order(suite, rows, clock)
    hours = hours_of(suite.runs, clock)
    apart = hours[order[-1]] - hours[order[0]] if {order[0], order[-1]} <= hours.keys() else None
    readings = tuple(_readings(rows, order[0], order[-1])) if len(order) > 1 else ()
    return Canary(workload, configuration, limit, apart, readings) if readings else None


def _order(suite: Suite, rows: pl.DataFrame, clock: TargetClock) -> list[str]:
    """Runs in the order of time; the plan's where boots cannot be set beside each other."""
    there = set(rows["run_id"])
    order = [run.run_id for run in suite.runs if run.run_id in there]
    hours = hours_of(suite.runs, clock)
    if hours:
        order.sort(key=lambda run_id: hours[run_id])
    return order or sorted(there)


def _readings(rows: pl.DataFrame, first: str, last: str) -> Iterator[Reading]:
    """By phase and component, where both runs have a power; whole runs where no phases are told."""
    phases = [name for name in rows["phase"].unique(maintain_order=True) if name != ALL] or [ALL]
    keys = ["phase", "source", "component"]
    of_first, of_last = (
        {tuple(row[key] for key in keys): row for row in part.iter_rows(named=True)}
        for part in (rows.filter(pl.col("run_id") == run_id) for run_id in (first, last))
    )
    for key, row in of_first.items():
        phase, source, component = key
        if phase in phases and key in of_last:
            both = (row, of_last[key])
            powers = [float(one["power_w"]) for one in both]
            yield Reading(phase, component, source, powers[0], powers[1], _doubt(both))


def _doubt(both: Sequence[Mapping[str, Any]]) -> float:
    """Half width of the 95 % interval of the ratio, from the standard uncertainties of both."""
    shares = [(row["energy_statistical_j"] or 0.0) / row["energy_j"] for row in both]
    return 1.96 * math.hypot(*shares) * float(both[1]["power_w"]) / float(both[0]["power_w"])
