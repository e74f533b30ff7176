"""Joules per run, phase and component, from counters at the edges and from windows of power."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import Literal

import polars as pl

from analysis.columns import schema
from analysis.energy.curve import Edge as PhaseEdge
from analysis.energy.metered import Energy, Metered
from analysis.energy.plausibility import STEP_FLAG
from analysis.energy.standing import IDLE, still_runs, still_zones, without_joules
from analysis.energy.uncertainty import TypeB, half_width
from analysis.energy.watermarks import WatermarkTrust, delays_s, watermarks
from analysis.energy.windows import Remarks
from analysis.suite.clocks import TargetClock
from analysis.suite.records import SYSTEM, TAIL, Counter, Meter, Phase, Run, Suite
from analysis.suite.suite_folder import rapl_samples, rapl_table
from contract.counts import Edge
from contract.plan import SuitePlan
from instrumentation.accuracy import ErrorTerm
from instrumentation.sources import counter as rapl
from instrumentation.sources import coverage
from instrumentation.sources.accuracy import STEP_J, UNOBSERVED_S, counter_uncertainty_j
from instrumentation.sources.counter import Reading
from instrumentation.sources.standing import (
    IGNORES_LOAD,
    STANDING,
    STANDS_STILL,
    Stretch,
    below_parts,
    time_and_energy,
)
from instrumentation.sources.zones import default_max_power_w, kind_of, summands

SLACK_NS = 10_000_000  # between a rest and its phase, while the counters are read
METER_UPDATE_S = 1.0  # within which the figure of a meter at the wall follows the load


def run_edges(run: Run, plan: SuitePlan, clock: TargetClock) -> dict[int, PhaseEdge]:
    """Place each edge of a run, by target's time, on the controller's clock.

    Edges that no clock reading places are left out.
    """
    rests = _rests(run, round(plan.settle_s * 1e9), round(plan.pad_s * 1e9))
    edges = {}
    for t_ns in sorted({t for phase in run.phases for t in (phase.t_start_ns, phase.t_end_ns)}):
        placed = clock.to_controller_ns(run.boot_id, t_ns)
        if placed is None:
            continue
        side, rest_ns = rests.get(t_ns, (None, 0))
        bound_ns = clock.bound_ns(run.boot_id, t_ns) or 0
        edges[t_ns] = PhaseEdge(placed, side, rest_ns, bound_ns)
    return edges


# A counter that restarted may have passed its old count, which the samples between edges show.
SAMPLES_TELL = frozenset({rapl.DOUBLE_WRAP, rapl.BEYOND_BOUND})
Side = Literal["before", "after"]


def _rests(run: Run, settle_ns: int, pad_ns: int) -> dict[int, tuple[Side | None, int]]:
    """Return the side and the length of the rest next to each edge.

    Before the first phase the machine settles and is padded; with padding it rests after each
    phase, and before each phase that begins right after such a rest. The tail is not a rest.
    """
    rests: dict[int, tuple[Side | None, int]] = {}
    first = run.phases[0]
    if 0 <= first.t_start_ns - run.t_start_ns - pad_ns <= SLACK_NS and settle_ns + pad_ns > 0:
        rests[first.t_start_ns] = ("before", settle_ns + pad_ns)
    for phase, then in zip(run.phases, (*run.phases[1:], None), strict=True):
        if not pad_ns or phase.name == TAIL:
            continue
        pause_ns = pad_ns if then is None else then.t_start_ns - phase.t_end_ns
        if pause_ns < pad_ns:
            continue
        rests[phase.t_end_ns] = ("after", pad_ns)
        # One padding and nothing else, or something in between and then another padding.
        in_rest = pause_ns <= pad_ns + SLACK_NS or pause_ns >= 2 * pad_ns
        if then is not None and in_rest:
            rests[then.t_start_ns] = ("before", pad_ns)
    return rests


def counter_energy(
    counter: Counter, samples: Iterable[Reading] = (), *, windows: bool = True
) -> Energy:
    """Return the energy between a counter's edges, wraps corrected.

    The edges are exact to the counter's resolution; `samples` between them only count the wraps
    where more than one is possible. With `windows`, a stretch that is short for the counter's
    updates is flagged or has no figure.
    """
    if counter.start is None or counter.end is None:
        return Energy(None, None, 0.0, tuple(dict.fromkeys([*counter.flags, rapl.READ_FAILED])))
    after, before = counter.start.t_after_ns, counter.end.t_before_ns
    between = [s for s in samples if after <= s.t_before_ns and s.t_after_ns <= before]
    window_ns = counter.update_ns or 0
    start, end = (
        replace(rapl.reading_at(edge), window_ns=window_ns) for edge in (counter.start, counter.end)
    )
    readings = [start, *between, end]
    bound_w = default_max_power_w(counter.zone)
    difference = rapl.total(readings, counter.max_range_uj, bound_w, windows=windows)
    if difference.energy_uj is None:
        return Energy(None, None, 0.0, tuple(dict.fromkeys([*counter.flags, *difference.flags])))
    recorded = [flag for flag in counter.flags if not between or flag != rapl.DOUBLE_WRAP]
    wrapped = ("wrap-corrected",) if difference.kind == "corrected" else ()
    lasted_s = (counter.end.t_after_ns - counter.start.t_before_ns) * 1e-9
    unseen = counter.update_ns is None and lasted_s < 2 * UNOBSERVED_S and difference.energy_uj > 0
    coarse = (rapl.COARSE,) if unseen and windows else ()
    flags = tuple(dict.fromkeys([*recorded, *difference.flags, *wrapped, *coarse]))
    energy_j = difference.energy_uj / 1e6
    return Energy(energy_j, _statistical_j(counter, start, end, energy_j), 1.0, flags)


def _statistical_j(counter: Counter, start: Edge, end: Edge, energy_j: float) -> float:
    """Return the standard uncertainty of a difference of two reads, each between its stamps.

    The power at both edges is taken as the mean between them, as nothing else is known.
    """
    update_s = UNOBSERVED_S if counter.update_ns is None else counter.update_ns * 1e-9
    step_j = (rapl.unit_nj(counter.max_range_uj or 0) or 0) * 1e-9 or STEP_J
    elapsed_s = max((end.t_before_ns - start.t_after_ns) * 1e-9, 1e-9)
    edges = [
        (energy_j / elapsed_s, (reading.t_after_ns - reading.t_before_ns) * 1e-9 + update_s)
        for reading in (start, end)
    ]
    return counter_uncertainty_j(edges, step_j)


def pauses(phases: Iterable[Phase], zone: str) -> Iterator[Counter]:
    """Yield the counter of a zone between each phase and the next, from end to start."""
    last: Counter | None = None
    for phase in phases:
        counter = _counter_of(phase, zone)
        if last is not None and counter is not None:
            flags = tuple(flag for flag in counter.flags if flag != rapl.DOUBLE_WRAP)
            yield replace(counter, start=last.end, end=counter.start, flags=flags)
        last = counter


def one_per_zone(counters: Iterable[Counter]) -> Iterator[Counter]:
    """Yield the first reading of each zone, so that two sources of a counter count once.

    pyRAPL's readings never replace ours.
    """
    zones: set[str] = set()
    for counter in counters:
        if counter.source != PYRAPL and counter.zone not in zones:
            zones.add(counter.zone)
            yield counter


def _counter_of(phase: Phase, zone: str) -> Counter | None:
    return next((c for c in one_per_zone(phase.counters) if c.zone == zone), None)


# Units of work.
WORK = [
    "bytes",
    "files",
    "queries",
    "rows",
    "transactions",
    "operations",
    "derivations",
    "keys",
    "matches",
    "events",
    "video_s",
    "idle_s",
]
DISK = ("disk_read_bytes", "disk_written_bytes", "disk_discarded_bytes")
COUNTED = ("cpu_busy_s", "cpu_stolen_s", "own_cpu_s", *DISK)
ENERGY_SCHEMA: Mapping[str, pl.DataType] = {
    **schema("suite_id host run_id block:i configuration workload phase source component origin"),
    **schema("duration_s:f energy_j:f power_w:f energy_statistical_j:f energy_type_b_j:f"),
    **schema("energy_u95_j:f coverage:f flags"),
    **dict.fromkeys((*WORK, *COUNTED), pl.Float64()),
    "cpus": pl.Int64(),
}
LEAST_WINDOWS = 5  # updates of a counter from which on a run's sum includes its short phases
_PARTS = ("limit_j", "sigma_j")  # of the interval, before it is computed
RAPL, PYRAPL = "rapl", "pyrapl"
COUNTERS = (RAPL, PYRAPL)
ALL = "all"
BETWEEN = "between"
Row = dict[str, str | float | None]


def energy_table(
    suite: Suite, clock: TargetClock | None = None, marks: Iterable[WatermarkTrust] | None = None
) -> pl.DataFrame:
    """Return the table of `ENERGY_SCHEMA`: a row a run × phase × component.

    `all` is the sum of the phases without the tail; `between` is the time between phases, if any:
    phases, tail and `between` together reach from the first start to the last end.
    """
    clock = clock or TargetClock.fit(suite.clock)
    marks = watermarks(suite, clock) if marks is None else list(marks)
    rows: list[Row] = []
    counters, still = _counter_energies(suite)
    for run in suite.runs:
        rows += _zone_rows(run, RAPL, "", counters[run.run_id])
        rows += _pyrapl_rows(run, still)
    for meter in suite.meters:
        ignored = [mark.ignored for mark in marks if mark.source == meter.name]
        ignores = bool(ignored) and all(ignored)
        rows += _meter_rows(suite, meter, clock, delays_s(marks, meter.name), ignores)
    same = {"suite_id": suite.suite_id, "host": suite.host}
    work = {(run.run_id, phase): amounts for run in suite.runs for phase, amounts in _work(run)}
    frame = pl.DataFrame(
        [{**same, **row, **work.get((str(row["run_id"]), str(row["phase"])), {})} for row in rows],
        schema={**ENERGY_SCHEMA, **dict.fromkeys(_PARTS, pl.Float64())},
    )
    # The 95 % intervals of all rows that have both parts, at once.
    limit_j, sigma_j = (frame[name].fill_null(0.0).to_numpy() for name in _PARTS)
    half_j = pl.when(pl.col(_PARTS[0]).is_not_null()).then(pl.Series(half_width(limit_j, sigma_j)))
    frame = frame.with_columns(half_j.alias("energy_u95_j")).select(list(ENERGY_SCHEMA))
    frame = _without_impossible(frame)
    return frame.sort("run_id", "source", "component", maintain_order=True)


UNCONFIRMED = "unconfirmed"
_SUM = "package + dram"
_KEY = pl.concat_str("source", "component", separator="/")
_FIGURES = ("energy_j", "power_w", "energy_statistical_j", "energy_type_b_j", "energy_u95_j")


def _without_impossible(frame: pl.DataFrame) -> pl.DataFrame:
    """Leave out joules of totals that cannot be, or that are below those of their parts.

    A meter of the system below processor and memory, or below the drive, measures a part of the
    machine, such as one of two supplies, or the parts are wrong: the source of the parts has no
    joules either. RAPL's platform zone includes its packages, and only the zone has none. A meter
    of the system without any such part next to it is flagged `unconfirmed`.
    """
    named, stretches = _runs_by_quantity(frame)
    covers = _coverages(named, stretches)
    objections = below_parts(named, covers, stretches, None, METER_UPDATE_S)
    codes = {key: objection.code for key, objection in objections.items()}
    platforms = [k for k, category in covers.items() if category.name == "platform" and k in codes]
    codes |= {f"{PYRAPL}/{PYRAPL}-{named[k][0]}": codes[k] for k in platforms}
    measured = {k for k in covers if any(s.energy_j is not None for s in stretches[k])}
    confirming = {named[k][1] for k in measured if covers[k].name != "machine"}
    totals = (k for k, category in covers.items() if category.name == "machine")
    alone = [k for k in totals if not confirming - {named[k][1]}]
    judged = frame.with_columns(
        _KEY.replace_strict(codes, default=None, return_dtype=pl.String).alias("objection")
    )
    refused = pl.col("objection").is_not_null()
    unconfirmed = pl.when(_KEY.is_in(alone) & ~refused).then(pl.lit(UNCONFIRMED))
    words = pl.col("flags"), pl.col("objection"), unconfirmed
    flags = pl.concat_str(words, separator=" ", ignore_nulls=True)
    return judged.with_columns(
        *(pl.when(~refused).then(pl.col(name)).alias(name) for name in _FIGURES),
        pl.when(refused).then(0.0).otherwise(pl.col("coverage")).alias("coverage"),
        flags.str.strip_chars(),
    ).drop("objection")


def _runs_by_quantity(
    frame: pl.DataFrame,
) -> tuple[dict[str, tuple[str, str]], dict[str, list[Stretch]]]:
    """Return label and source of each quantity by its key, and its runs, the same of all."""
    names = frame.select(_KEY.alias("key"), "component", "source").unique(maintain_order=True)
    named = {k: (part, "RAPL" if s in COUNTERS else s) for k, part, s in names.iter_rows()}
    known = frame.filter(pl.col("energy_j").is_not_null(), phase=ALL).sort("run_id")
    figures = known.select(_KEY, "run_id", "duration_s", "energy_j").iter_rows()
    joules = {(k, run_id): Stretch(seconds, energy_j) for k, run_id, seconds, energy_j in figures}
    run_ids = known["run_id"].unique(maintain_order=True)
    missing = Stretch(0.0, None)
    return named, {k: [joules.get((k, run_id), missing) for run_id in run_ids] for k in named}


def _coverages(
    named: dict[str, tuple[str, str]], stretches: dict[str, list[Stretch]]
) -> dict[str, coverage.Category]:
    """Return what is known of what the quantities cover; adds the sum of package and memory."""
    categories = coverage.table().categories
    kinds = {SYSTEM: categories["machine"], "drive": categories["drive"]}
    covers = {k: kinds[c] for k, (c, s) in named.items() if s != "RAPL" and c in kinds}
    package = f"{RAPL}/package" if f"{RAPL}/package" in named else f"{RAPL}/package-0"
    sides = stretches.get(package), stretches.get(f"{RAPL}/dram")
    if pairs := list(zip(*filter(None, sides), strict=True)):
        covers[_SUM] = categories["processor+memory"]
        named[_SUM] = _SUM, "RAPL"
        known = ([s for s in pair if s.energy_j is not None] for pair in pairs)
        stretches[_SUM] = [
            Stretch(parts[0].seconds, time_and_energy(parts)[1]) if parts else Stretch(0.0, None)
            for parts in known
        ]
    zones = (k for k in named if k.startswith(f"{RAPL}/"))
    platforms = [k for k in zones if kind_of(named[k][0]) == "psys"]
    if len(platforms) == 1 and package in named:
        covers |= {platforms[0]: categories["platform"], package: categories["processor"]}
    return covers


def reference_rows(suite: Suite, energy: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of reference meters, except components that stood still.

    Figures of two meters are never averaged: with one of them missing in some runs, their
    difference in calibration would look like one of configurations.
    """
    referenced = pl.lit(True)
    for meter in suite.meters:
        others = [c for c in meter.channels if suite.reference_meter(c) != meter.name]
        referenced &= (pl.col("source") != meter.name) | ~pl.col("component").is_in(others)
    still = standing_components(energy)
    rows = energy.filter(referenced).join(still, on=["source", "component"], how="anti")
    # Of meters that the plan does not name, the first one of a channel is its reference.
    named = [*COUNTERS, *(meter.name for meter in suite.meters)]
    unnamed = (
        rows.filter(~pl.col("source").is_in(named))
        .select("source", "component")
        .unique(maintain_order=True)
    )
    second = unnamed.filter(~pl.col("component").is_first_distinct())
    return rows.join(second, on=["source", "component"], how="anti")


def standing_components(energy: pl.DataFrame) -> pl.DataFrame:
    """Return source and component of those without any joules because they stood still."""
    stood = pl.col("flags").str.split(" ").list.eval(pl.element().is_in(list(STANDING))).list.any()
    components = energy.group_by("source", "component", maintain_order=True).agg(
        pl.col("energy_j").is_not_null().any().alias("measured"), stood.any().alias("stood")
    )
    return components.filter(~pl.col("measured"), pl.col("stood")).select("source", "component")


def _work(run: Run) -> Iterator[tuple[str, dict[str, float | int | None]]]:
    """Yield work, CPU seconds and the disk's bytes of each phase, and of all without the tail.

    A unit of `WORK` is in `all` if any phase has it; other counts are null there if one of the
    phases lacks them.
    """
    total: dict[str, float | int | None] = {}
    for phase in run.phases:
        work = {unit: phase.work[unit] for unit in WORK if unit in phase.work}
        counts = {name: getattr(phase, name) for name in COUNTED}
        yield phase.name, {**work, **counts, "cpus": run.cpus}
        if phase.name != TAIL:
            total |= {unit: (total.get(unit) or 0.0) + amount for unit, amount in work.items()}
    for name in COUNTED:
        amounts = [getattr(phase, name) for phase in run.measured_phases]
        total[name] = None if None in amounts else math.fsum(amounts)
    yield ALL, {**total, "cpus": run.cpus}


def _counter_energies(
    suite: Suite,
) -> tuple[dict[str, dict[str, dict[str, tuple[float, Energy]]]], set[tuple[str, str]]]:
    """Return seconds and energy by run, zone and phase (`all` and `between` included).

    Also return the pairs of run and zone without joules because the zone stood still.
    """
    samples = cache(partial(rapl_samples, suite))  # read once, if a zone needs them
    energies = {}
    for run in suite.runs:
        zones = dict.fromkeys(c.zone for phase in run.phases for c in one_per_zone(phase.counters))
        energies[run.run_id] = {
            zone: _zone_energies(partial(samples, run.run_id), run, zone) for zone in zones
        }
    still = still_zones(suite.runs, energies, partial(rapl_table, suite))
    for run_id, zone in still:
        energies[run_id][zone] = without_joules(energies[run_id][zone])
    return energies, still


def _pyrapl_rows(run: Run, still: Collection[tuple[str, str]]) -> Iterator[Row]:
    """Yield the rows of pyRAPL, which measures phases but not the time between them.

    Its components are `pyrapl-` and the zone, so that its figures never mix with those of our
    reader; a zone that stood still has no joules.
    """
    by_zone: dict[str, dict[str, tuple[float, Energy]]] = {}
    for phase in run.phases:
        for counter in (c for c in phase.counters if c.source == PYRAPL):
            energy = Energy(None, None, 0.0, counter.flags)
            if counter.start is not None and counter.end is not None:
                # pyRAPL's value unchanged: faults are listed in the run's flags.
                energy_j = counter.end.energy_uj / 1e6
                statistical_j = _statistical_j(counter, counter.start, counter.end, energy_j)
                energy = Energy(energy_j, statistical_j, 1.0, counter.flags)
            by_zone.setdefault(counter.zone, {})[phase.name] = phase.duration_s, energy
    for zone, by_phase in by_zone.items():
        by_phase[ALL] = _run_energy(run, by_phase)
        if (run.run_id, zone) in still:
            by_zone[zone] = without_joules(by_phase)
    yield from _zone_rows(run, PYRAPL, f"{PYRAPL}-", by_zone)


def _zone_rows(
    run: Run, source: str, prefix: str, by_zone: dict[str, dict[str, tuple[float, Energy]]]
) -> Iterator[Row]:
    """Yield the rows of each zone and of the sums of zones."""
    for component, parts in summed_zones(by_zone).items():
        by_zone[component] = {}
        for name, (duration_s, _) in by_zone[parts[0]].items():
            if all(name in by_zone[zone] for zone in parts):  # counters of the same stretch
                energies = [by_zone[zone][name][1] for zone in parts]
                total = _sum([(1.0, energy) for energy in energies], len(parts))
                least = min(energy.coverage for energy in energies)
                by_zone[component][name] = duration_s, replace(total, coverage=least)
    for component, by_phase in by_zone.items():
        for name, (duration_s, energy) in by_phase.items():
            label = {"phase": name, "source": source, "component": prefix + component}
            yield _row(run, label | {"origin": run.origin}, duration_s, energy, None)


def _run_energy(run: Run, by_phase: Mapping[str, tuple[float, Energy]]) -> tuple[float, Energy]:
    """Return seconds and energy of all phases without the tail."""
    measured = [by_phase[phase.name] for phase in run.measured_phases if phase.name in by_phase]
    seconds = sum(phase.duration_s for phase in run.measured_phases)
    return seconds, _sum(measured, len(run.measured_phases))


def summed_zones(by_zone: Mapping[str, Mapping[str, tuple[float, Energy]]]) -> dict[str, list[str]]:
    """Return the zones to add up by their sum's component: `package` and `dram` of all sockets.

    A single zone with that name already is the machine's. Mirrors of another zone's counter do not
    count.
    """
    counted_zones = (
        zone
        for zone, by_phase in by_zone.items()
        if not any(rapl.MIRROR in energy.flags for _, energy in by_phase.values())
    )
    return {
        c: z for c, z in summands(counted_zones).items() if z not in ([], ["package-0"], ["dram"])
    }


def _zone_energies(
    samples: Callable[[], Mapping[str, list[Reading]]], run: Run, zone: str
) -> dict[str, tuple[float, Energy]]:
    by_phase: dict[str, tuple[float, Energy]] = {}
    summands: dict[str, tuple[float, Energy]] = {}
    run_ns = sum(phase.duration_s for phase in run.measured_phases) * 1e9
    for phase in run.phases:
        counter = _counter_of(phase, zone)
        if counter is None:
            continue
        energy = counter_energy(counter)
        if SAMPLES_TELL & set(energy.flags):
            energy = counter_energy(counter, samples().get(zone, ()))
        by_phase[phase.name] = (phase.duration_s, energy)
        # A phase too short for a figure still counts in the sum of a run that is long enough.
        short = energy.energy_j is None and rapl.SHORTER in energy.flags
        if short and run_ns >= LEAST_WINDOWS * (counter.update_ns or 0):
            energy = replace(counter_energy(counter, windows=False), flags=energy.flags)
        summands[phase.name] = (phase.duration_s, energy)
    total = _run_energy(run, summands)
    between = [counter_energy(counter, windows=False) for counter in pauses(run.phases, zone)]
    pause_s = sum(b - a for a, b in _pauses(run)) * 1e-9
    if between and pause_s > 0:
        energy = _sum([(1.0, energy) for energy in between], len(run.phases) - 1)
        by_phase[BETWEEN] = (pause_s, energy)
    return {**by_phase, ALL: total}


def _sum(parts: Sequence[tuple[float, Energy]], required: int) -> Energy:
    """Add up stretches of a counter with separate edges; `required` of them need joules."""
    flags = sorted({flag for _, energy in parts for flag in energy.flags})
    measured = [energy for _, energy in parts if energy.energy_j is not None]
    total_s = sum(seconds for seconds, _ in parts)
    coverage = sum(seconds * energy.coverage for seconds, energy in parts) / max(total_s, 1e-9)
    if len(measured) < required:
        return Energy(None, None, coverage, (*flags, "incomplete"))
    return Energy(
        energy_j=math.fsum(energy.energy_j or 0.0 for energy in measured),
        statistical_j=math.hypot(*(energy.statistical_j or 0.0 for energy in measured)),
        coverage=coverage,
        flags=tuple(flags),
    )


def _pauses(run: Run) -> list[tuple[int, int]]:
    """Return the stretches between phases, on the target's clock."""
    pairs = ((a.t_end_ns, b.t_start_ns) for a, b in pairwise(run.phases))
    return [(end, start) for end, start in pairs if start > end]


def _meter_rows(
    suite: Suite, meter: Meter, clock: TargetClock, late_s: Mapping[str, float], ignores: bool
) -> Iterator[Row]:
    """Yield a meter's rows by run and channel, from one pass over its windows.

    With `ignores`, its readings of the whole machine do not follow the load.
    """
    edges = {run.run_id: run_edges(run, suite.plan, clock) for run in suite.runs}
    every: set[PhaseEdge] = {edge for placed in edges.values() for edge in placed.values()}
    metered = None
    remarks = Remarks.from_samples(meter.samples)
    if every and meter.channels:
        metered = Metered.from_samples(
            *(meter.samples, meter.timing, meter.arrival_delay_limit_s, meter.channels, every),
            late_s=late_s,
            terms=meter.terms,
        )
    still, stepped = {}, set()
    if metered is not None:
        idle = [name for name in suite.workloads if suite.workload_of(name) == IDLE]
        times = {run_id: [e.t_ns for e in placed.values()] for run_id, placed in edges.items()}
        spans = {run_id: (min(ns), max(ns)) for run_id, ns in times.items() if ns}
        phases = [
            ((run.configuration, run.workload, phase.name), start.t_ns, end.t_ns)
            for run in suite.runs
            for phase in run.measured_phases
            if (start := edges[run.run_id].get(phase.t_start_ns)) is not None
            and (end := edges[run.run_id].get(phase.t_end_ns)) is not None
        ]
        for channel in meter.channels:
            still[channel] = still_runs(suite.runs, spans, metered, channel, idle)
            if metered.is_stepped(channel, phases):
                stepped.add(channel)
    for run in suite.runs:
        for own_name, channel in zip(meter.own_names, meter.channels, strict=True):
            for name, stretches in _stretches(run):
                at = edges[run.run_id]
                pairs = [(at.get(start), at.get(end)) for start, end in stretches]
                placed = [(a.t_ns, b.t_ns) for a, b in pairs if a is not None and b is not None]
                if metered is None or len(placed) < len(stretches):
                    energy = Energy(None, None, 0.0, ("no-clock",))
                else:
                    phase = name not in (BETWEEN, TAIL)
                    energy = metered.energy(channel, placed, refuse_short=phase)
                    remarked = (remarks.during(a, b, own_name, meter.own_names) for a, b in placed)
                    words = dict.fromkeys(word for part in remarked for word in part)
                    words |= {STEP_FLAG: None} if channel in stepped else {}
                    energy = replace(energy, flags=(*energy.flags, *words))
                if run.run_id in still.get(channel, ()):
                    energy = Energy(None, None, energy.coverage, (*energy.flags, STANDS_STILL))
                if ignores and channel == SYSTEM:
                    energy = Energy(None, None, energy.coverage, (*energy.flags, IGNORES_LOAD))
                if name == ALL and energy.energy_j is None:
                    energy = Energy(None, None, energy.coverage, (*energy.flags, "incomplete"))
                duration_s = sum(end - start for start, end in stretches) * 1e-9
                label = {"phase": name, "source": meter.name, "component": channel}
                label["origin"] = meter.origin
                yield _row(run, label, duration_s, energy, meter.terms)


def _stretches(run: Run) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Yield the phases, the time between them, and all without the tail, on the target's clock."""
    for phase in run.phases:
        yield phase.name, [(phase.t_start_ns, phase.t_end_ns)]
    if _pauses(run):
        yield BETWEEN, _pauses(run)
    yield ALL, [(phase.t_start_ns, phase.t_end_ns) for phase in run.phases if phase.name != TAIL]


def _row(
    run: Run,
    label: Mapping[str, str],
    duration_s: float,
    energy: Energy,
    terms: Sequence[ErrorTerm] | None,
) -> Row:
    """Return a row of the table; `label` has phase, source, component and origin.

    With `terms` None no limits of error are stated for the source, so there is no interval.
    """
    type_b = None
    if terms is not None and energy.energy_j is not None:
        type_b = TypeB.from_terms(terms, energy.energy_j, duration_s)
    parts: tuple[float | None, float | None] = (None, None)
    if type_b is not None and energy.statistical_j is not None:
        parts = type_b.parts_j(energy.statistical_j)
    return {
        "run_id": run.run_id,
        "block": run.block,
        "configuration": run.configuration,
        "workload": run.workload,
        **label,
        "duration_s": duration_s,
        "energy_j": energy.energy_j,
        "power_w": None if energy.energy_j is None else energy.energy_j / duration_s,
        "energy_statistical_j": energy.statistical_j,
        "energy_type_b_j": type_b.standard_j if type_b else None,
        **dict(zip(_PARTS, parts, strict=True)),
        "coverage": energy.coverage,
        "flags": " ".join(energy.flags),
    }
