"""Joules per run, phase and component: counters at the edges, windows by their overlap."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from analysis import align
from analysis.load import rapl_readings
from analysis.records import TAIL, Counter, Meter, Phase, Run, Suite
from instrumentation.sources import counter as rapl

ENERGY_SCHEMA: Mapping[str, pl.DataType] = {
    "suite_id": pl.String(),
    "host": pl.String(),
    "run_id": pl.String(),
    "block": pl.Int64(),
    "configuration": pl.String(),
    "workload": pl.String(),
    "phase": pl.String(),
    "source": pl.String(),
    "component": pl.String(),
    "origin": pl.String(),
    "duration_s": pl.Float64(),
    "energy_j": pl.Float64(),
    "power_w": pl.Float64(),
    "energy_type_b_j": pl.Float64(),
    "coverage": pl.Float64(),
    "flags": pl.String(),
}
RAPL = "rapl"


@dataclass(frozen=True)
class Energy:
    """Energy of one phase in one component; `energy_j` None where nothing tells it."""

    energy_j: float | None
    type_b_j: float | None
    coverage: float
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Label:
    """What an energy belongs to, besides its run."""

    phase: str
    source: str
    component: str
    origin: str


def from_windows(windows: align.Windows, start_ns: int, end_ns: int) -> Energy:
    """Energy between two instants of the controller's clock, without the type B uncertainty.

    Each reading is the mean over its window, so it counts with the share of the window inside. What
    no window covers is filled with the mean power of what is covered, and flagged.
    """
    first = int(np.searchsorted(windows.end_ns, start_ns, side="right"))
    last = int(np.searchsorted(windows.start_ns, end_ns, side="left"))
    inside = slice(first, max(first, last))
    overlap_s = (
        np.minimum(windows.end_ns[inside], end_ns) - np.maximum(windows.start_ns[inside], start_ns)
    ) / 1e9
    covered_s = float(overlap_s.sum())
    duration_s = (end_ns - start_ns) / 1e9
    if covered_s <= 0:
        return Energy(None, None, 0.0, ("no-samples",))
    energy_j = float((windows.power_w[inside] * overlap_s).sum())
    coverage = covered_s / duration_s
    if coverage >= 1 - 1e-9:
        return Energy(energy_j, None, 1.0, ())
    return Energy(energy_j / coverage, None, coverage, ("gap-filled",))


def type_b_j(accuracy: Mapping[str, Any], energy_j: float, duration_s: float) -> float | None:
    """Standard uncertainty from a meter's accuracy (meter.json), None where it is unknown.

    `relative_limit` of the reading and `absolute_limit_w` hold in one direction for a whole phase,
    so they do not average out. Each is a rectangular distribution (limit/√3); root sum of squares
    (GUM).
    """
    relative, absolute_w = accuracy.get("relative_limit"), accuracy.get("absolute_limit_w")
    terms = [
        float(limit) * scale / math.sqrt(3)
        for limit, scale in ((relative, energy_j), (absolute_w, duration_s))
        if isinstance(limit, int | float)
    ]
    return math.hypot(*terms) if terms else None


def energy_table(suite: Suite, clock: align.TargetClock | None = None) -> pl.DataFrame:
    """The table of `ENERGY_SCHEMA`: a row a run × phase × component; `all` is without the tail."""
    clock = clock or align.TargetClock.fit(suite.clock)
    rows: list[dict[str, object]] = []
    for run in suite.runs:
        rows += _with_all(run, _counter_rows(suite, run))
    for meter in suite.meters:
        ends_ns = align.window_ends_ns(meter.samples)
        for channel in meter.channels:
            windows = align.windows(meter.samples, ends_ns, channel)
            for run in suite.runs:
                rows += _with_all(run, _meter_rows(run, meter, channel, windows, clock))
    frame = pl.DataFrame(
        [{"suite_id": suite.suite_id, "host": suite.host, **row} for row in rows],
        schema=dict(ENERGY_SCHEMA),
    )
    return frame.sort("run_id", "source", "component", maintain_order=True)


def _counter_rows(suite: Suite, run: Run) -> list[dict[str, object]]:
    rows = []
    for phase in run.phases:
        for counter in _one_per_zone(phase.counters):
            found = counted(counter)
            if rapl.DOUBLE_WRAP in found.flags:
                samples = rapl_readings(suite, run.run_id, counter.zone)
                found = counted(counter, samples)
            label = Label(phase.name, RAPL, counter.zone, run.origin)
            rows.append(_row(run, label, phase.duration_s, found))
    return rows


def counted(counter: Counter, samples: Iterable[rapl.Reading] = ()) -> Energy:
    """Energy between a counter's edges, wraps corrected; `samples` between them bound the wraps.

    The edges alone are exact to the counter's resolution; the samples only tell how often it went
    round where more than one wrap is possible.
    """
    if counter.start is None or counter.end is None:
        return Energy(None, None, 0.0, _words(counter, (rapl.READ_FAILED,)))
    after, before = counter.start.t_after_ns, counter.end.t_before_ns
    between = [s for s in samples if after <= s.t_before_ns and s.t_after_ns <= before]
    found = rapl.total([counter.start, *between, counter.end], counter.max_range_uj)
    if found.energy_uj is None:
        return Energy(None, None, 0.0, _words(counter, found.flags))
    known = [flag for flag in counter.flags if not between or flag != rapl.DOUBLE_WRAP]
    wrapped = ("wrap-corrected",) if found.kind == "corrected" else ()
    flags = tuple(dict.fromkeys([*known, *found.flags, *wrapped]))
    return Energy(found.energy_uj / 1e6, None, 1.0, flags)


def _words(counter: Counter, more: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*counter.flags, *more]))


def _one_per_zone(counters: Iterable[Counter]) -> Iterator[Counter]:
    """The first reading of each zone: two sources of one counter must not count twice."""
    seen: set[str] = set()
    for counter in counters:
        if counter.zone not in seen:
            seen.add(counter.zone)
            yield counter


def _meter_rows(
    run: Run, meter: Meter, channel: str, windows: align.Windows, clock: align.TargetClock
) -> list[dict[str, object]]:
    rows = []
    for phase in run.phases:
        found = _metered(phase, run.boot_id, meter, windows, clock)
        label = Label(phase.name, meter.name, channel, meter.origin)
        rows.append(_row(run, label, phase.duration_s, found))
    return rows


def _metered(
    phase: Phase, boot_id: str, meter: Meter, windows: align.Windows, clock: align.TargetClock
) -> Energy:
    start_ns = clock.to_controller_ns(boot_id, phase.t_start_ns)
    end_ns = clock.to_controller_ns(boot_id, phase.t_end_ns)
    if start_ns is None or end_ns is None:
        return Energy(None, None, 0.0, ("no-clock",))
    found = from_windows(windows, start_ns, end_ns)
    if found.energy_j is None:
        return found
    type_b = type_b_j(meter.accuracy, found.energy_j, phase.duration_s)
    return Energy(found.energy_j, type_b, found.coverage, found.flags)


def _row(run: Run, label: Label, duration_s: float, energy: Energy) -> dict[str, object]:
    power = None if energy.energy_j is None else energy.energy_j / duration_s
    return {
        "run_id": run.run_id,
        "block": run.block,
        "configuration": run.configuration,
        "workload": run.workload,
        "phase": label.phase,
        "source": label.source,
        "component": label.component,
        "origin": label.origin,
        "duration_s": duration_s,
        "energy_j": energy.energy_j,
        "power_w": power,
        "energy_type_b_j": energy.type_b_j,
        "coverage": energy.coverage,
        "flags": " ".join(energy.flags),
    }


def _with_all(run: Run, rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """The rows with, for each component, the sum over the run's phases without the tail."""
    frame = pl.DataFrame(rows, schema=_ROW_SCHEMA)
    names = [phase.name for phase in run.measured_phases]
    sums = []
    for (source, component, origin), part in (
        frame.filter(pl.col("phase") != TAIL)
        .partition_by(["source", "component", "origin"], as_dict=True, maintain_order=True)
        .items()
    ):
        whole = part["energy_j"].null_count() == 0 and set(part["phase"]) == set(names)
        duration_s = sum(phase.duration_s for phase in run.measured_phases)
        flags = sorted({word for words in part["flags"] for word in words.split()})
        found = Energy(
            energy_j=float(part["energy_j"].sum()) if whole else None,
            # A meter's gain error has one sign in all phases, so the limits add up.
            type_b_j=float(part["energy_type_b_j"].sum())
            if whole and part["energy_type_b_j"].null_count() == 0
            else None,
            coverage=float((part["coverage"] * part["duration_s"]).sum()) / duration_s,
            flags=tuple(flags if whole else [*flags, "incomplete"]),
        )
        label = Label("all", str(source), str(component), str(origin))
        sums.append(_row(run, label, duration_s, found))
    return rows + sums


_ROW_SCHEMA = {k: v for k, v in ENERGY_SCHEMA.items() if k not in {"suite_id", "host"}}
