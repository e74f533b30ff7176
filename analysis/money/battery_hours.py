"""How long a battery lasts at a declared hour of work, and the minutes that encryption takes.

An hour on the battery is so much video, SQL, reading and writing; in what is left of it the machine
is idle. Each of these costs what its phase cost a unit in the same block; delayed writes that come
after a phase are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean

import polars as pl

from analysis.money.payback import SECONDS_PER_HOUR
from analysis.stats.budget import Mean, instrument_error
from analysis.stats.family import terms_of
from analysis.stats.stats import estimate
from analysis.stats.summary import BlockValues, block_means, compare_pairs, joint_origin
from analysis.suite.records import SYSTEM, Suite
from contract.assumptions import HourlyWork
from contract.estimates import Estimate


@dataclass(frozen=True)
class Activity:
    """The phase that stands for some work, its unit in the energy table, and one in that unit.

    Each of `phases` is a name of that one phase: older suites have another.
    """

    workload: str
    phases: tuple[str, ...]
    unit: str
    size: float


IDLE = Activity("idle", ("idle",), "idle_s", 1.0)
ACTIVITIES: Mapping[HourlyWork, Activity] = {
    "video_min": Activity("video", ("play",), "video_s", 60.0),
    "transactions": Activity("sql", ("query-cold", "query"), "transactions", 1.0),
    "read_gib": Activity("file_io", ("read-large",), "bytes", 2.0**30),
    "written_gib": Activity("file_io", ("write-large",), "bytes", 2.0**30),
}


@dataclass(frozen=True)
class BatteryHours:
    """A configuration's hours on a battery, and the idle share of each.

    `lost_min` are the minutes fewer than on its base, at that one's mean; None for the base, and
    where no block has both.
    """

    configuration: str
    hours: Estimate
    idle_share: float
    lost_min: Estimate | None
    n: int
    origin: str


def battery_hours(suite: Suite, energy: pl.DataFrame) -> list[BatteryHours]:
    """Return the hours of each configuration that has all of the declared work.

    Empty without a declared hour, and where its work does not fit into an hour.
    """
    a = suite.assumptions
    if a is None or not a.battery_hour:
        return []
    measured = energy.filter(component=SYSTEM)
    hours = {
        name: _hour(measured.filter(configuration=name), a.battery_hour)
        for name in suite.configurations
    }
    if any(idle_s < 0 for _, idle in hours.values() for idle_s in idle.values()):
        return []
    battery_j = a.battery_wh * SECONDS_PER_HOUR
    terms = terms_of(suite, suite.reference_meter(SYSTEM) or "", SYSTEM)
    held = []
    for name, (energy_j, idle_s) in hours.items():
        if not energy_j:
            continue
        base_j = hours.get(suite.base_of(name) or "", ({}, {}))[0]
        lost_min = None
        c = compare_pairs(suite, base_j, energy_j) if name != suite.baseline else None
        if c is not None:
            sides: tuple[Mean, Mean] = (
                (fmean(base_j.values()), SECONDS_PER_HOUR),
                (fmean(energy_j.values()), SECONDS_PER_HOUR),
            )
            ratio = replace(c, systematic=instrument_error(terms, [sides])).estimate
            base_min = 60 * battery_j / sides[0][0]
            left = ratio.dividing(base_min)
            low, high = (None if e is None else base_min - e for e in (left.high, left.low))
            lost_min = Estimate(base_min - left.mean, low, high)
        held.append(
            BatteryHours(
                name,
                estimate(list(energy_j.values())).dividing(battery_j),
                fmean(idle_s.values()) / SECONDS_PER_HOUR,
                lost_min,
                len(energy_j),
                joint_origin(measured),
            )
        )
    return held


def _hour(
    energy: pl.DataFrame, work: Mapping[HourlyWork, float]
) -> tuple[BlockValues, BlockValues]:
    """Return by block the joules of an hour and its idle seconds, where a block has all phases."""
    amounts = [(ACTIVITIES[name], amount) for name, amount in work.items() if amount > 0]
    rest_w, _ = _of_one(energy, IDLE)
    costs = [_of_one(energy, activity) for activity, _ in amounts]
    blocks = set(rest_w).intersection(*(joules for joules, _ in costs))
    idle_s = {
        block: SECONDS_PER_HOUR
        - sum(n * took_s[block] for (_, n), (_, took_s) in zip(amounts, costs, strict=True))
        for block in sorted(blocks)
    }
    energy_j = {
        block: rest_w[block] * rest_s
        + sum(n * joules[block] for (_, n), (joules, _) in zip(amounts, costs, strict=True))
        for block, rest_s in idle_s.items()
    }
    return energy_j, idle_s


def _of_one(energy: pl.DataFrame, activity: Activity) -> tuple[BlockValues, BlockValues]:
    """Return by block what one costs, in joules and in seconds."""
    rows = energy.filter(
        pl.col(activity.unit) > 0,
        pl.col("phase").is_in(activity.phases),
        workload=activity.workload,
    )
    ones = pl.col(activity.unit) / activity.size
    joules, seconds = (block_means(rows, pl.col(c) / ones) for c in ("energy_j", "duration_s"))
    return joules, seconds
