"""From the energy table to money and batteries: which runs are compared with which.

An hour on a battery is so much video, SQL, reading and writing, as declared; in what is left of it
the machine is idle. Each of these costs what its phase cost a unit in the same block; delayed
writes that come after a phase are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import polars as pl

from analysis.money.payback import PROFILE, SECONDS_PER_HOUR, Payback, payback
from analysis.stats.budget import Mean, Reading, instrument_error, instrument_rows
from analysis.stats.contrasts import IDLE as AT_REST
from analysis.stats.contrasts import working
from analysis.stats.family import terms_of
from analysis.stats.stats import estimate
from analysis.stats.summary import BlockValues, block_means, cell_means, compare_pairs, joint_origin
from analysis.suite import records
from analysis.suite.records import DRIFT_CHECK, SYSTEM, TAIL, Suite
from contract.assumptions import IDLE, PAPER_WORKLOAD, SLEEP, HourlyWork
from contract.estimates import Estimate
from instrumentation.accuracy import read_terms

HOURS_PER_DAY = 24


@dataclass(frozen=True)
class Battery:
    """Runs that a full battery holds of one workload, by configuration."""

    workload: str
    configuration: str
    energy_j: Estimate
    runs: Estimate
    origin: str


@dataclass(frozen=True)
class Part:
    """Runs that the meter read, `weight` of them: their joules, and seconds with the tail."""

    weight: float
    energy_j: BlockValues
    metered_s: BlockValues

    def reading(self, blocks: Sequence[int], sign: float) -> Reading:
        """Their mean over these blocks, as a reading of what `sign` times them is a part of."""
        energy_j, seconds = (
            sum(values[b] for b in blocks) / len(blocks)
            for values in (self.energy_j, self.metered_s)
        )
        return Reading(energy_j, seconds, sign * self.weight)


@dataclass(frozen=True)
class Side:
    """Block values of one workload on one configuration.

    `tail_j` is part of `energy_j`: what was taken after the last mark, while delayed writes went to
    the disk. `parts` are the readings of the meter that the joules are made of.
    """

    energy_j: BlockValues
    tail_j: BlockValues
    seconds: BlockValues
    origins: frozenset[str]
    sources: frozenset[str]
    parts: tuple[Part, ...]


Sides = Mapping[tuple[str, str], Side]


def paybacks(suite: Suite, energy: pl.DataFrame) -> list[Payback]:
    """Compare the self-encrypting disk with each software that spares it, by working workload.

    Empty where the plan has no assumptions, or no meter saw the whole system; without what takes
    longer than the day in which it is to be done.
    """
    sides = _sides(energy)
    candidates = [
        _payback(suite, sides, against, {workload: 1.0})
        for workload in working(suite)
        if hours_a_day(suite, energy, {workload: 1.0}, daily=False) <= HOURS_PER_DAY
        for against in alternatives(suite)
    ]
    return [p for p in candidates if p is not None]


def alternatives(suite: Suite) -> list[str]:
    """Return the software that the self-encrypting disk is held against.

    That on the very same disk where there is some, for two disks differ by more than their
    encryption: it stands for the same disk without Opal, which is what would be bought instead.
    """
    on_the_drive = [
        name for name in suite.software if suite.disk_of(name) == suite.disk_of(suite.sed or "")
    ]
    return on_the_drive or suite.software


def profiles(suite: Suite, energy: pl.DataFrame) -> list[Payback]:
    """Return the duty profile against each software configuration.

    Each block's runs are summed first.

    Only blocks that have all of its workloads on both sides count. A profile of one workload is
    that workload, so many times a day.
    """
    if suite.assumptions is None:
        return []
    sides = _sides(energy)
    profile = suite.assumptions.profile
    if hours_a_day(suite, energy, profile) > HOURS_PER_DAY:
        return []
    candidates = [
        _payback(suite, sides, against, profile, daily=True) for against in alternatives(suite)
    ]
    return [p for p in candidates if p is not None]


def batteries(suite: Suite, energy: pl.DataFrame) -> list[Battery]:
    """Return runs on a battery, for each workload × configuration."""
    assumptions = suite.assumptions
    if assumptions is None:
        return []
    held_runs = []
    sides = _sides(energy)
    for workload in working(suite):
        for configuration in suite.configurations:
            side = sides.get((workload, configuration))
            if side is None or sum(side.energy_j.values()) <= 0:
                continue
            joules = [side.energy_j[b] - side.tail_j[b] for b in side.energy_j]
            mean = estimate(joules)
            held = mean.dividing(assumptions.battery_wh * 3600)
            held_runs.append(
                Battery(workload, configuration, mean, held, records.worst_origin(side.origins))
            )
    return held_runs


def headline_payback(paybacks: Sequence[Payback]) -> Payback | None:
    """Return the one to name first: the paper's workload, of the first software there is."""
    return min(paybacks, key=lambda p: p.workload != PAPER_WORKLOAD, default=None)


def _payback(
    suite: Suite, sides: Sides, against: str, runs: Mapping[str, float], daily: bool = False
) -> Payback | None:
    """Return the payback of so many runs of each workload; None where no block has them all.

    With `daily` they are those of a day; else the assumptions have the runs a day.
    """
    a, sed = suite.assumptions, suite.sed
    if a is None or sed is None:
        return None
    only = next(iter(runs)) if len(runs) == 1 else None
    weights = runs if only is None else {only: 1.0}
    # The self-encrypting side less what the disks differ by without encryption.
    other_names = [sed, *(between_disks(suite, against) or ())]
    base, *others = (
        _combined([(sides.get((workload, name)), n) for workload, n in weights.items()])
        for name in (against, *other_names)
    )
    other = _combined(list(zip(others, (1.0, 1.0, -1.0), strict=False)))
    if base is None or other is None:
        return None
    blocks = sorted(base.energy_j.keys() & other.energy_j.keys())
    if not blocks:
        return None
    base_j, sed_j = ([side.energy_j[b] for b in blocks] for side in (base, other))
    sooner_s = [base.seconds[b] - other.seconds[b] for b in blocks]
    each_day = a.runs_per_day if not daily else 1.0 if only is None else runs[only]
    whole_j = {SLEEP: sed_j}
    readings = [part.reading(blocks, 1.0) for part in base.parts]
    readings += [part.reading(blocks, -1.0) for part in other.parts]
    by_rule = {SLEEP: readings}
    rest_w = _rest_w(suite, sides, blocks)
    if rest_w is not None:  # what is done sooner leaves time in which the machine rests
        rest_j = [w * s for w, s in zip(rest_w, sooner_s, strict=True)]
        whole_j[IDLE] = [j + r for j, r in zip(sed_j, rest_j, strict=True)]
        at_rest = Reading(estimate(rest_j).mean, estimate(sooner_s).mean, -1.0)
        by_rule[IDLE] = [*readings, at_rest]

    # Of the one meter that read all; of several, none is known.
    sources = base.sources | other.sources
    known = (meter.terms for meter in suite.meters if {meter.name} == sources)
    terms = next(known, read_terms({}))

    rule = a.after_work if a.after_work in whole_j else SLEEP
    return payback(
        only or PROFILE,
        against,
        base_j,
        whole_j[rule],
        assumptions=a,
        origin=records.worst_origin(base.origins | other.origins),
        runs_per_day=each_day,
        meter=instrument_rows(terms, by_rule[rule]),
        after_work=rule,
        tail_j=estimate([base.tail_j[b] - other.tail_j[b] for b in blocks]).mean,
        run_s=fmean(other.seconds[b] for b in blocks),
    )


def hours_a_day(
    suite: Suite, energy: pl.DataFrame, runs: Mapping[str, float], daily: bool = True
) -> float:
    """How long so many runs of each workload take, on the configuration that takes longest."""
    times: dict[tuple[str, str], list[float]] = {}
    every = energy.filter(phase="all").unique("run_id", maintain_order=True)
    for name, workload, seconds in every["configuration", "workload", "duration_s"].iter_rows():
        if seconds is not None:
            times.setdefault((name, workload), []).append(seconds)
    each_day = 1.0 if daily or suite.assumptions is None else suite.assumptions.runs_per_day
    return max(
        (
            each_day
            * sum(n * fmean(times.get((name, workload), [0.0])) for workload, n in runs.items())
            / SECONDS_PER_HOUR
            for name in suite.configurations
        ),
        default=0.0,
    )


def _rest_w(suite: Suite, sides: Sides, blocks: Sequence[int]) -> list[float] | None:
    """Power of the machine at rest on the self-encrypting disk, by block.

    The mean where a block has none, None where no block has.
    """
    of_rest = (
        sides.get((name, suite.sed or ""))
        for name in suite.workloads
        if suite.workload_of(name) == AT_REST
    )
    side = next((side for side in of_rest if side is not None), None)
    if side is None:
        return None
    power_w = {
        block: (joules - side.tail_j[block]) / side.seconds[block]
        for block, joules in side.energy_j.items()
    }
    mean_w = sum(power_w.values()) / len(power_w)
    return [power_w.get(block, mean_w) for block in blocks]


def between_disks(suite: Suite, against: str) -> tuple[str, str] | None:
    """Return the configurations without encryption on the software's and the self-encrypting disk.

    None where both are one disk, or where one of the disks was not measured without encryption.
    """
    sed = suite.sed or ""
    names = suite.reference(against), suite.reference(sed)
    references = [
        name
        for name, side in zip(names, (against, sed), strict=True)
        if name and suite.disk_of(name) == suite.disk_of(side)
    ]
    return (references[0], references[1]) if len(set(references)) == 2 else None


def _combined(sides: Sequence[tuple[Side | None, float]]) -> Side | None:
    """Return sums with these weights within the blocks that all sides have; None if one lacks."""
    known = [(side, weight) for side, weight in sides if side is not None]
    if not known or len(known) < len(sides):
        return None

    def summed(values: Sequence[BlockValues]) -> BlockValues:
        shared = set.intersection(*map(set, values))
        weighted = list(zip(values, (weight for _, weight in known), strict=True))
        return {block: sum(part[block] * n for part, n in weighted) for block in sorted(shared)}

    return Side(
        energy_j=summed([side.energy_j for side, _ in known]),
        tail_j=summed([side.tail_j for side, _ in known]),
        seconds=summed([side.seconds for side, _ in known]),
        origins=frozenset().union(*(side.origins for side, _ in known)),
        sources=frozenset().union(*(side.sources for side, _ in known)),
        parts=tuple(
            replace(part, weight=weight * part.weight)
            for side, weight in known
            for part in side.parts
        ),
    )


def _sides(energy: pl.DataFrame) -> Sides:
    """All whole runs that a meter of the system saw, their tails included, as means by block."""
    metered = energy.filter(
        pl.col("workload") != DRIFT_CHECK, pl.col("energy_j").is_not_null(), component=SYSTEM
    )
    tails = metered.filter(phase=TAIL).select("run_id", tail_j="energy_j", tail_s="duration_s")
    rows = metered.filter(phase="all").join(tails, on="run_id", how="left")
    tail_j, tail_s = (pl.col(name).fill_null(0.0) for name in ("tail_j", "tail_s"))
    cells = cell_means(
        rows,
        ("workload", "configuration"),
        energy_j=pl.col("energy_j") + tail_j,
        tail_j=tail_j,
        seconds=pl.col("duration_s"),
        metered_s=pl.col("duration_s") + tail_s,
    )
    named = rows.group_by("workload", "configuration").agg(pl.col("origin", "source").unique())
    marks = {row[:2]: (frozenset(row[2]), frozenset(row[3])) for row in named.iter_rows()}
    return {
        (key[0], key[1]): Side(
            energy_j=v["energy_j"],
            tail_j=v["tail_j"],
            seconds=v["seconds"],
            origins=marks[key][0],
            sources=marks[key][1],
            parts=(Part(1.0, v["energy_j"], v["metered_s"]),),
        )
        for key, v in cells.items()
    }


@dataclass(frozen=True)
class Activity:
    """The phase that stands for some work, its unit in the energy table, and one in that unit.

    Each of `phases` is a name of that one phase: older suites have another.
    """

    workload: str
    phases: tuple[str, ...]
    unit: str
    size: float


AT_IDLE = Activity("idle", ("idle",), "idle_s", 1.0)
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
    rest_w, _ = _of_one(energy, AT_IDLE)
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
