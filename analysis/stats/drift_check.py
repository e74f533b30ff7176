"""The drift check: whether a workload of constant power took the same power throughout a suite.

It runs before, between and after the blocks, so that its readings show their scatter: a change
that this scatter explains does not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from scipy import special

from analysis.energy.energy import ALL
from analysis.stats.contrasts import IDLE
from analysis.stats.stats import LEVEL, Floats
from analysis.stats.steadiness import hours_of
from analysis.suite.clocks import TargetClock
from analysis.suite.records import MODELLED, TAIL, Suite
from contract.plan import DriftCheckEntry

LEAST = 4  # readings that show their scatter: two more than a line's parameters
HELD, MOVED, CANNOT_TELL = "held", "moved", "cannot tell"
# The share of a phase in which a modelled machine was not stopped by its host.
AWAKE = (
    pl.when(pl.col("origin") == MODELLED)
    .then(1 - pl.col("cpu_stolen_s") / (pl.col("duration_s") * pl.col("cpus")))
    .fill_null(1.0)
)
# Memory's share is too small to represent the machine; zones within a package are part of it.
JUDGED = r"^(system|drive|package-[^/]+)$"


@dataclass(frozen=True)
class Reading:
    """Mean power in W of one phase and component in each of its runs, in order of time.

    Time in which a modelled machine was stopped by its host does not count. `change` from the first
    run to the last is that of a straight line through the logarithms, as a share: 0.01 is 1 % more.
    It has a 95 % interval by Student's t from `LEAST` runs on. `p_value` is two-sided, of no
    change.
    """

    phase: str
    component: str
    source: str
    powers_w: tuple[float, ...]
    change: float
    low: float | None = None
    high: float | None = None
    p_value: float | None = None


@dataclass(frozen=True)
class DriftCheck:
    """Result of the drift check; `limit` is the share by which power may change.

    `hours` are the time from the first run to the last, None if unknown.
    """

    workload: str
    configuration: str
    limit: float
    hours: float | None
    readings: tuple[Reading, ...]

    @property
    def runs(self) -> int:
        return max(len(reading.powers_w) for reading in self.readings)

    @property
    def verdict(self) -> str:
        """`moved`, `cannot tell` or `held`.

        `moved`: the change of a reading is beyond the limit and more than scatter, with at most 5 %
        risk over all readings if nothing changed. `cannot tell`: a change is beyond the limit, but
        its scatter explains it or is unknown.
        """
        verdicts = {self.verdict_of(reading) for reading in self.readings}
        return next((verdict for verdict in (MOVED, CANNOT_TELL) if verdict in verdicts), HELD)

    def verdict_of(self, reading: Reading) -> str:
        """Return the verdict on one of the readings."""
        if self.has_moved(reading):
            return MOVED
        return CANNOT_TELL if abs(reading.change) > self.limit else HELD

    def has_moved(self, reading: Reading) -> bool:
        sure = reading.p_value is not None and reading.p_value * len(self.readings) < LEVEL
        return sure and abs(reading.change) > self.limit

    @property
    def worst(self) -> Reading:
        """The reading with the largest change, among those that moved if any did."""
        moved = [reading for reading in self.readings if self.has_moved(reading)]
        return max(moved or self.readings, key=lambda reading: abs(reading.change))


def drift_check(suite: Suite, energy: pl.DataFrame, clock: TargetClock) -> DriftCheck | None:
    """Return the suite's drift check; None if fewer than two of its runs have power."""
    plan = suite.plan.drift_check
    if plan is None:  # idling on the baseline, if the suite has it, serves as well
        plan = DriftCheckEntry(IDLE, suite.baseline or "")
    rows = energy.filter(
        pl.col("component").str.contains(JUDGED),
        ~pl.col("phase").is_in(["between", TAIL]),
        pl.col("power_w") > 0,
        workload=plan.workload,
        configuration=plan.configuration,
    )
    if rows.is_empty():
        return None
    rows = rows.with_columns(pl.col("power_w") / AWAKE)
    # In order of time; NaN in the plan's order if boots cannot be placed on one time axis.
    run_ids = set(rows["run_id"])
    order = [run.run_id for run in suite.runs if run.run_id in run_ids] or sorted(run_ids)
    hours = hours_of(suite.runs, clock)
    if run_ids <= hours.keys():
        order.sort(key=lambda run_id: hours[run_id])
    times = {run_id: hours.get(run_id, math.nan) for run_id in order}
    readings = tuple(_readings(rows, times))
    if not readings:
        return None
    span = max(times.values()) - min(times.values())
    span_hours = None if math.isnan(span) else span
    return DriftCheck(plan.workload, plan.configuration, plan.limit, span_hours, readings)


def _readings(rows: pl.DataFrame, times: Mapping[str, float]) -> Iterator[Reading]:
    """Yield the readings by phase and component with two runs or more.

    Without phases, whole runs take their place.
    """
    phases = [name for name in rows["phase"].unique(maintain_order=True) if name != ALL] or [ALL]
    powers: dict[tuple[str, str, str], dict[str, float]] = {}
    for phase, component, source, run_id, power_w in rows.select(
        "phase", "component", "source", "run_id", "power_w"
    ).iter_rows():
        if phase in phases:
            powers.setdefault((phase, component, source), {})[run_id] = power_w
    for label, by_run in powers.items():
        runs = [run_id for run_id in times if run_id in by_run]
        if len(runs) > 1:
            yield _reading(label, [by_run[r] for r in runs], np.array([times[r] for r in runs]))


def _reading(label: tuple[str, str, str], powers_w: Sequence[float], hours: Floats) -> Reading:
    n = len(powers_w)
    at = np.arange(n, dtype=float) if np.isnan(hours).any() else hours
    change, error = line_change(np.log(powers_w), at)
    reading = Reading(*label, tuple(powers_w), float(np.expm1(change)))
    if n < LEAST:
        return reading
    half = float(special.stdtrit(n - 2, 1 - LEVEL / 2)) * float(error)
    t = abs(float(change)) / max(float(error), np.finfo(float).tiny)
    p_value = 2 * float(special.stdtr(n - 2, -t))
    low, high = math.expm1(change - half), math.expm1(change + half)
    return replace(reading, low=low, high=high, p_value=p_value)


def line_change(values: Floats, at: Floats) -> tuple[Floats, Floats]:
    """Return the rise of a straight line through values (last axis), and its standard error.

    The rise is that from the first to the last of the times `at`; the error of two values is NaN.
    """
    centred = at - np.mean(at)
    mass = float(np.sum(centred**2)) or 1.0
    slope = np.asarray(np.sum(values * centred, axis=-1) / mass)
    residual = values - np.mean(values, axis=-1, keepdims=True) - slope[..., None] * centred
    n, span = len(at), float(np.ptp(at))
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.sqrt(np.sum(residual**2, axis=-1) / np.float64(n - 2) / mass)
    return slope * span, np.where(n > 2, error * span, np.nan)
