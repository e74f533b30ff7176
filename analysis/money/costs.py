"""Paybacks, batteries and hours on a battery, from the energy table.

An hour on a battery has declared amounts of video, SQL, reading and writing, and otherwise the
machine is idle. Each amount costs as much per unit as its phase in the same block, without delayed
writes after the phase.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from statistics import fmean, stdev

import polars as pl

from analysis.money.payback import PROFILE, SECONDS_PER_HOUR, Payback, payback
from analysis.stats.budget import Mean, Reading, instrument_error, instrument_rows, joules_budget
from analysis.stats.contrasts import IDLE as AT_REST
from analysis.stats.contrasts import counted, working
from analysis.stats.family import terms_of
from analysis.stats.stats import estimate
from analysis.stats.summary import (
    BlockValues,
    block_means,
    cell_means,
    compare_pairs,
    compared_component,
    joint_origin,
)
from analysis.suite import records
from analysis.suite.records import DRIFT_CHECK, SYSTEM, TAIL, Suite, SuiteError
from contract.assumptions import (
    IDLE,
    PAPER_WORKLOAD,
    SLEEP,
    Assumptions,
    HourlyWork,
    parse_assumptions,
)
from contract.command_results import Saving
from contract.estimates import Estimate
from contract.names import unknown_name
from instrumentation.accuracy import read_terms

HOURS_PER_DAY = 24


@dataclass(frozen=True)
class Battery:
    """Number of runs of one workload on a full battery, on one configuration."""

    workload: str
    configuration: str
    energy_j: Estimate
    runs: Estimate
    origin: str


@dataclass(frozen=True)
class Part:
    """Runs that a meter read, counted `weight` times: joules, and seconds including the tail."""

    weight: float
    energy_j: BlockValues
    metered_s: BlockValues

    def reading(self, blocks: Sequence[int], sign: float) -> Reading:
        """Return their mean over these blocks as a reading, `sign` times in the figure."""
        energy_j, seconds = (
            sum(values[b] for b in blocks) / len(blocks)
            for values in (self.energy_j, self.metered_s)
        )
        return Reading(energy_j, seconds, sign * self.weight)


@dataclass(frozen=True)
class Side:
    """Block values of one workload on one configuration.

    `tail_j` is the part of `energy_j` after the last mark, during delayed writes to the disk.
    `parts` are the meter's readings that make up the joules.
    """

    energy_j: BlockValues
    tail_j: BlockValues
    seconds: BlockValues
    origins: frozenset[str]
    sources: frozenset[str]
    parts: tuple[Part, ...]


Sides = Mapping[tuple[str, str], Side]


def paybacks(suite: Suite, energy: pl.DataFrame) -> list[Payback]:
    """Return the paybacks against each software alternative, by working workload.

    Empty if the plan has no assumptions or the drive's system was not measured; workloads whose
    runs do not fit into a day are left out.
    """
    if suite.assumptions is None:
        return []
    each_day = suite.assumptions.runs_per_day
    days = [runs_a_day(suite, energy, {workload: each_day}) for workload in working(suite)]
    return _paybacks(suite, energy, days)


def profiles(suite: Suite, energy: pl.DataFrame) -> list[Payback]:
    """Return the paybacks of the duty profile against each software alternative.

    Runs are summed within each block that has all of the profile's workloads on both sides. A
    profile of one workload is that workload, with its runs a day.
    """
    return _paybacks(suite, energy, [day_of_work(suite, energy)])


def _paybacks(
    suite: Suite, energy: pl.DataFrame, days: Sequence[Mapping[str, float]]
) -> list[Payback]:
    """Return the payback of each day's work that fits into a day, against each alternative."""
    component = compared_component(suite, energy["component"])
    sides = _sides(energy, component)
    candidates = [
        _payback(suite, sides, component, against, runs)
        for runs in days
        if fits_into_a_day(suite, energy, runs)
        for against in alternatives(suite)
    ]
    return [p for p in candidates if p is not None]


def day_of_work(suite: Suite, energy: pl.DataFrame) -> Mapping[str, float]:
    """Return the runs a day by workload: the declared duty, else only the paper's workload.

    If hours of work a day are declared, it is every counted workload in turn instead of the
    paper's. Empty without assumptions.
    """
    a = suite.assumptions
    if a is None:
        return {}
    if a.hours_per_day is None:
        return a.duty or {PAPER_WORKLOAD: a.runs_per_day}
    return runs_a_day(suite, energy, a.duty or dict.fromkeys(counted(suite), 1.0))


def runs_a_day(
    suite: Suite, energy: pl.DataFrame, runs: Mapping[str, float]
) -> Mapping[str, float]:
    """Return runs by workload in these proportions that take the declared hours a day.

    The hours are those of the slowest configuration; without declared hours the runs stay.
    """
    hours = suite.assumptions.hours_per_day if suite.assumptions else None
    taken = hours_a_day(suite, energy, runs)
    if hours is None or not taken:
        return runs
    return {workload: n * hours / taken for workload, n in runs.items()}


def alternatives(suite: Suite) -> list[str]:
    """Return the software configurations with which the self-encrypting disk is compared.

    They are those on the same disk if there are any, as two disks differ by more than encryption:
    they represent the same disk without Opal, which would be bought instead.
    """
    on_the_drive = [
        name for name in suite.software if suite.disk_of(name) == suite.disk_of(suite.sed or "")
    ]
    return on_the_drive or suite.software


def batteries(suite: Suite, energy: pl.DataFrame) -> list[Battery]:
    """Return the runs on a battery of each workload × configuration."""
    assumptions = suite.assumptions
    if assumptions is None:
        return []
    entries = []
    sides = _sides(energy)
    for workload in working(suite):
        for configuration in suite.configurations:
            side = sides.get((workload, configuration))
            if side is None or sum(side.energy_j.values()) <= 0:
                continue
            joules = [side.energy_j[b] - side.tail_j[b] for b in side.energy_j]
            mean = _mean_joules(suite, joules, fmean(side.seconds.values()))
            runs = mean.dividing(assumptions.battery_wh * 3600)
            origin = records.worst_origin(side.origins)
            entries.append(Battery(workload, configuration, mean, runs, origin))
    return entries


def _mean_joules(suite: Suite, joules: Sequence[float], seconds: float) -> Estimate:
    """Return the mean of blocks with its 95 % interval, the error of the reference meter in it."""
    terms = terms_of(suite, suite.reference_meter(SYSTEM) or "", SYSTEM)
    n = len(joules)
    error = stdev(joules) / n**0.5 if n > 1 else None
    return replace(joules_budget(terms, (fmean(joules), seconds), error, n - 1.0).interval, n=n)


def headline_paybacks(suite: Suite, energy: pl.DataFrame) -> list[Payback]:
    """Return the paybacks of one day's work against each software alternative.

    The day is the duty profile, else runs of the paper's workload, else of the first workload.
    """
    candidates = profiles(suite, energy) or paybacks(suite, energy)
    first = min(candidates, key=lambda p: p.workload != PAPER_WORKLOAD, default=None)
    return [p for p in candidates if first is not None and p.workload == first.workload]


def assuming(suite: Suite, changes: Mapping[str, object]) -> Suite:
    """Return the suite with some of its assumptions replaced.

    Raises SuiteError for an unknown assumption or an invalid value.
    """
    names = [field.name for field in fields(Assumptions)]
    for name in changes:
        if name not in names:
            raise SuiteError(unknown_name("assumption", name, names))
    if not changes:
        return suite
    declared = asdict(suite.assumptions) if suite.assumptions else {}
    stated = {k: v for k, v in {**declared, **changes}.items() if v not in (None, {})}
    try:
        assumed = parse_assumptions(stated)
    except ValueError as error:
        raise SuiteError("invalid-assumptions", error=error) from None
    return replace(suite, assumptions=assumed)


def _payback(
    suite: Suite, sides: Sides, component: str, against: str, runs: Mapping[str, float]
) -> Payback | None:
    """Return the payback of these runs a day by workload; None if no block has them all.

    If no self-encrypting drive was measured, the disk without encryption stands for it.
    """
    a, drive = suite.assumptions, suite.sed or suite.reference(against)
    if a is None or drive is None or drive == against:
        return None
    only = next(iter(runs)) if len(runs) == 1 else None
    weights = runs if only is None else {only: 1.0}
    # The self-encrypting side less the difference of the disks without encryption.
    other_names = [drive, *(between_disks(suite, drive, against) or ())]
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
    whole_j = {SLEEP: sed_j}
    readings = [part.reading(blocks, 1.0) for part in base.parts]
    readings += [part.reading(blocks, -1.0) for part in other.parts]
    by_rule = {SLEEP: readings}
    rest_w = _rest_w(suite, sides, drive, blocks)
    if rest_w is not None:  # in the time that a faster side saves, the machine rests
        rest_j = [w * s for w, s in zip(rest_w, sooner_s, strict=True)]
        whole_j[IDLE] = [j + r for j, r in zip(sed_j, rest_j, strict=True)]
        at_rest = Reading(estimate(rest_j).mean, estimate(sooner_s).mean, -1.0)
        by_rule[IDLE] = [*readings, at_rest]

    # If several meters read the joules, no error is stated for their difference.
    sources = base.sources | other.sources
    terms = terms_of(suite, next(iter(sources)), component) if len(sources) == 1 else read_terms({})
    rule = a.after_work if a.after_work in whole_j else SLEEP
    return payback(
        only or PROFILE,
        against,
        base_j,
        whole_j[rule],
        assumptions=a,
        origin=records.worst_origin(base.origins | other.origins),
        runs_per_day=1.0 if only is None else runs[only],
        meter=instrument_rows(terms, by_rule[rule]),
        after_work=rule,
        run_s=fmean(other.seconds[b] for b in blocks),
        drive=drive,
        assumed=suite.sed is None,
        component=component,
    )


def fits_into_a_day(suite: Suite, energy: pl.DataFrame, runs: Mapping[str, float]) -> bool:
    """Return whether these runs a day take at most 24 hours, apart from rounding."""
    return hours_a_day(suite, energy, runs) <= HOURS_PER_DAY * (1 + 1e-9)


def hours_a_day(suite: Suite, energy: pl.DataFrame, runs: Mapping[str, float]) -> float:
    """Return the hours of these numbers of runs a day on the slowest configuration."""
    times: dict[tuple[str, str], list[float]] = {}
    rows = energy.filter(phase="all").unique("run_id", maintain_order=True)
    for name, workload, seconds in rows["configuration", "workload", "duration_s"].iter_rows():
        if seconds is not None:
            times.setdefault((name, workload), []).append(seconds)
    return max(
        (
            sum(n * fmean(times.get((name, workload), [0.0])) for workload, n in runs.items())
            / SECONDS_PER_HOUR
            for name in suite.configurations
        ),
        default=0.0,
    )


def _rest_w(suite: Suite, sides: Sides, drive: str, blocks: Sequence[int]) -> list[float] | None:
    """Return the power at rest on the drive's configuration in each block.

    A block without any has the mean of the others; None if no block has any.
    """
    idle = (
        sides.get((name, drive)) for name in suite.workloads if suite.workload_of(name) == AT_REST
    )
    side = next((side for side in idle if side is not None), None)
    if side is None:
        return None
    power_w = {
        block: (joules - side.tail_j[block]) / side.seconds[block]
        for block, joules in side.energy_j.items()
    }
    mean_w = sum(power_w.values()) / len(power_w)
    return [power_w.get(block, mean_w) for block in blocks]


def between_disks(suite: Suite, drive: str, against: str) -> tuple[str, str] | None:
    """Return the configurations without encryption on the software's and the drive's disk.

    None if both are one disk, or if one of them was not measured without encryption.
    """
    names = suite.reference(against), suite.reference(drive)
    references = [
        name
        for name, side in zip(names, (against, drive), strict=True)
        if name and suite.disk_of(name) == suite.disk_of(side)
    ]
    return (references[0], references[1]) if len(set(references)) == 2 else None


def _combined(sides: Sequence[tuple[Side | None, float]]) -> Side | None:
    """Return weighted sums within the blocks that all sides have; None if a side is missing."""
    present = [(side, weight) for side, weight in sides if side is not None]
    if not present or len(present) < len(sides):
        return None

    def summed(values: Sequence[BlockValues]) -> BlockValues:
        shared = set.intersection(*map(set, values))
        weighted = list(zip(values, (weight for _, weight in present), strict=True))
        return {block: sum(part[block] * n for part, n in weighted) for block in sorted(shared)}

    return Side(
        energy_j=summed([side.energy_j for side, _ in present]),
        tail_j=summed([side.tail_j for side, _ in present]),
        seconds=summed([side.seconds for side, _ in present]),
        origins=frozenset().union(*(side.origins for side, _ in present)),
        sources=frozenset().union(*(side.sources for side, _ in present)),
        parts=tuple(
            replace(part, weight=weight * part.weight)
            for side, weight in present
            for part in side.parts
        ),
    )


def _sides(energy: pl.DataFrame, component: str = SYSTEM) -> Sides:
    """Return means by block of all whole runs with joules of a component, tails included."""
    metered = energy.filter(
        pl.col("workload") != DRIFT_CHECK, pl.col("energy_j").is_not_null(), component=component
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


def savings(suite: Suite, energy: pl.DataFrame) -> list[Saving]:
    """Return what the drive saves at the day's work, against each software alternative."""
    a = suite.assumptions
    if a is None:
        return []
    return [
        Saving(
            against=p.against,
            drive=p.drive,
            assumed=p.assumed,
            work=p.workload,
            component=p.component,
            origin=p.origin,
            blocks=p.saving_j.n,
            kwh_per_year=p.kwh_per_year,
            per_year=p.saving_per_year,
            fleet_per_year=p.saving_per_year.scaled(a.machines),
            fleet_net=p.net_present_value.scaled(a.machines),
            at_most=p.break_even_price,
            years=p.years,
            probability=p.probability,
            battery_min=minutes_lost(suite, energy, p.drive, p.against),
        )
        for p in headline_paybacks(suite, energy)
    ]


@dataclass(frozen=True)
class Activity:
    """The phase that represents some work, its unit in the energy table, and the amount of one.

    `phases` are the names of that phase, which older suites name differently.
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
    """A configuration's hours on a battery, and the idle share of an hour.

    `lost_min` are the minutes less than on its base, at the base's mean; None for the base, and if
    no block has both.
    """

    configuration: str
    hours: Estimate
    idle_share: float
    lost_min: Estimate | None
    n: int
    origin: str


def battery_hours(suite: Suite, energy: pl.DataFrame) -> list[BatteryHours]:
    """Return the hours on a battery of each configuration with all of the declared work.

    Empty if the declared work does not fit into an hour.
    """
    a, joules_by_name = suite.assumptions, hourly_joules(suite, energy)
    if a is None:
        return []
    battery_j = a.battery_wh * SECONDS_PER_HOUR
    held = []
    for name, (energy_j, idle_s) in joules_by_name.items():
        if not energy_j:
            continue
        base = suite.base_of(name) or ""
        lost_min = minutes_lost(suite, energy, base, name) if name != suite.baseline else None
        held.append(
            BatteryHours(
                name,
                _mean_joules(suite, list(energy_j.values()), SECONDS_PER_HOUR).dividing(battery_j),
                fmean(idle_s.values()) / SECONDS_PER_HOUR,
                lost_min,
                len(energy_j),
                joint_origin(energy.filter(component=SYSTEM)),
            )
        )
    return held


def minutes_lost(suite: Suite, energy: pl.DataFrame, base: str, other: str) -> Estimate | None:
    """Return the minutes less on a charge than with `base`, at the mean of `base`.

    None without assumptions, and if no block has both.
    """
    a, hours = suite.assumptions, hourly_joules(suite, energy)
    base_j, other_j = (hours.get(name, ({}, {}))[0] for name in (base, other))
    c = compare_pairs(suite, base_j, other_j)
    if a is None or c is None:
        return None
    terms = terms_of(suite, suite.reference_meter(SYSTEM) or "", SYSTEM)
    sides: tuple[Mean, Mean] = (
        (fmean(base_j.values()), SECONDS_PER_HOUR),
        (fmean(other_j.values()), SECONDS_PER_HOUR),
    )
    ratio = replace(c, systematic=instrument_error(terms, [sides])).estimate
    base_min = 60 * a.battery_wh * SECONDS_PER_HOUR / sides[0][0]
    other_min = ratio.dividing(base_min)
    low, high = (
        None if limit is None else base_min - limit for limit in (other_min.high, other_min.low)
    )
    return Estimate(base_min - other_min.mean, low, high)


Hours = Mapping[str, tuple[BlockValues, BlockValues]]


def hourly_joules(suite: Suite, energy: pl.DataFrame) -> Hours:
    """Return the joules of an hour on the battery and its idle seconds, by configuration and block.

    The hour is the declared one, else the day's duty or every counted workload in turn, at the pace
    of the baseline. Empty if the declared work does not fit into an hour.
    """
    a = suite.assumptions
    if a is None:
        return {}
    if not a.battery_hour:
        return _hours_of_passes(suite, energy, a.duty or dict.fromkeys(counted(suite), 1.0))
    measured = energy.filter(component=SYSTEM)
    hours = {
        name: _hour(measured.filter(configuration=name), a.battery_hour)
        for name in suite.configurations
    }
    too_much = any(idle_s < 0 for _, idle in hours.values() for idle_s in idle.values())
    return {} if too_much else hours


def _hours_of_passes(suite: Suite, energy: pl.DataFrame, runs: Mapping[str, float]) -> Hours:
    """Return the joules by block of what the baseline does in an hour without a pause.

    Delayed writes after a run are left out; no seconds are idle.
    """
    sides = _sides(energy)
    passes = {
        name: _combined([(sides.get((workload, name)), n) for workload, n in runs.items()])
        for name in suite.configurations
    }
    base = passes.get(suite.baseline or "")
    if base is None or not base.seconds:
        return {}
    in_an_hour = SECONDS_PER_HOUR / fmean(base.seconds.values())
    return {
        name: (
            {block: (j - side.tail_j[block]) * in_an_hour for block, j in side.energy_j.items()},
            dict.fromkeys(side.energy_j, 0.0),
        )
        for name, side in passes.items()
        if side is not None
    }


def _hour(
    energy: pl.DataFrame, work: Mapping[HourlyWork, float]
) -> tuple[BlockValues, BlockValues]:
    """Return the joules of an hour and its idle seconds in each block with all phases."""
    amounts = [(ACTIVITIES[name], amount) for name, amount in work.items() if amount > 0]
    rest_w, _ = _unit_cost(energy, AT_IDLE)
    costs = [_unit_cost(energy, activity) for activity, _ in amounts]
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


def _unit_cost(energy: pl.DataFrame, activity: Activity) -> tuple[BlockValues, BlockValues]:
    """Return the joules and the seconds of one unit of the activity in each block."""
    rows = energy.filter(
        pl.col(activity.unit) > 0,
        pl.col("phase").is_in(activity.phases),
        workload=activity.workload,
    )
    units = pl.col(activity.unit) / activity.size
    joules, seconds = (block_means(rows, pl.col(c) / units) for c in ("energy_j", "duration_s"))
    return joules, seconds
