"""Joules per unit of work, and how fast the work went: by blocks, with 95 % intervals.

A run's figure is its joules (or seconds) over the work that it did; runs of one block are averaged,
so that n counts blocks, and the interval is Student's t over them.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from analysis.energy.energy import ALL, BETWEEN
from analysis.stats.stats import Comparison, Estimate
from analysis.stats.summary import compare_blocks, estimate_of
from analysis.suite.records import TAIL, Suite

MB = 2**20  # as the papers count


@dataclass(frozen=True)
class Unit:
    """A unit of work as it is shown: `size` of the run's own make one of it."""

    work: str
    size: float
    one: str
    rate: str


UNITS = {
    unit.work: unit
    for unit in (
        Unit("bytes", MB, "MB", "MB/s"),
        Unit("operations", 1, "operation", "operations/s"),
        Unit("derivations", 1, "derivation", "derivations/s"),
        Unit("queries", 1, "query", "queries/s"),
        Unit("rows", 1, "row", "rows/s"),
        Unit("transactions", 1, "transaction", "transactions/s"),
        Unit("keys", 1, "key", "keys/s"),
        Unit("files", 1, "file", "files/s"),
        Unit("video_s", 1, "s of video", "s of video/s"),
        Unit("idle_s", 1, "s at rest", "s/s"),
    )
}


@dataclass(frozen=True)
class PerUnit:
    """A phase (or `all`) of a workload on a configuration, per unit of its work.

    `energy_j` and `rate` (units a second) are of one `unit`; `ratio` is of the joules per unit to
    the baseline's, None on the baseline. `cpu_share` is of all CPUs, 0 to 1.
    """

    workload: str
    configuration: str
    phase: str
    unit: Unit
    energy_j: Estimate | None
    rate: Estimate | None
    ratio: Comparison | None
    cpu_share: Estimate | None


def per_unit(suite: Suite, energy: pl.DataFrame, workload: str, component: str) -> list[PerUnit]:
    """Of one workload: `all` first, then its phases, in every unit that they count.

    A unit is one of `all` only where every phase did some of it: the joules of the others would be
    counted without their work.
    """
    energy = energy.filter((pl.col("workload") == workload) & (pl.col("phase") != BETWEEN))
    phases = [p for p in energy["phase"].unique(maintain_order=True) if p not in {ALL, TAIL}]
    rows = energy.filter(pl.col("component") == component)
    units = [u for u in UNITS.values() if (rows[u.work].fill_null(0.0) > 0).any()]
    counted = {unit: _by_block(rows, unit) for unit in units}
    of_all = [unit for unit in units if _in_every_phase(energy, unit.work)]
    return [
        _one(suite, (workload, configuration, phase), unit, counted[unit])
        for phase in (ALL, *phases)
        for unit in (of_all if phase == ALL else units)
        for configuration in suite.configurations
        if (phase, configuration) in counted[unit]
    ]


# By phase and configuration: joules a unit, units a second and CPU use, each by block.
_Blocks = dict[tuple[str, str], dict[str, dict[int, float]]]


def _by_block(rows: pl.DataFrame, unit: Unit) -> _Blocks:
    """Of the phases that did some of this work; quotients by run, then their means by block."""
    amount = pl.col(unit.work) / unit.size
    quotients = {
        "energy_j": pl.col("energy_j") / amount,
        "rate": amount / pl.col("duration_s"),
        "cpu_share": pl.col("cpu_busy_s") / (pl.col("duration_s") * pl.col("cpus")),
    }
    means = (
        rows.filter(pl.col(unit.work) > 0)
        .group_by("phase", "configuration", "block", maintain_order=True)
        .agg(*(quotient.mean().alias(name) for name, quotient in quotients.items()))
        .sort("block", maintain_order=True)
    )
    found: _Blocks = {}
    for row in means.iter_rows(named=True):
        by = found.setdefault((row["phase"], row["configuration"]), {n: {} for n in quotients})
        for name in quotients:
            if row[name] is not None:
                by[name][int(row["block"])] = float(row[name])
    return found


def _one(suite: Suite, key: tuple[str, str, str], unit: Unit, counted: _Blocks) -> PerUnit:
    workload, configuration, phase = key
    own = counted[phase, configuration]
    base = counted.get((phase, suite.baseline or ""), {}).get("energy_j", {})
    is_base = configuration == suite.baseline
    return PerUnit(
        workload=workload,
        configuration=configuration,
        phase=phase,
        unit=unit,
        energy_j=estimate_of(own["energy_j"]),
        rate=estimate_of(own["rate"]),
        ratio=None if is_base else compare_blocks(base, own["energy_j"], suite.margin),
        cpu_share=estimate_of(own["cpu_share"]),
    )


def _in_every_phase(energy: pl.DataFrame, work: str) -> bool:
    parts = energy.filter(~pl.col("phase").is_in([ALL, TAIL, BETWEEN]))
    return bool((parts[work].fill_null(0.0) > 0).all()) if len(parts) else False
