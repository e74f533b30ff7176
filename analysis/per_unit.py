"""Joules per unit of work, and how fast the work went: by blocks, with 95 % intervals.

A run's figure is its joules (or seconds) over the work that it did; runs of one block are averaged,
so that n counts blocks, and the interval is Student's t over them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from analysis.energy import ALL, BETWEEN
from analysis.inference.stats import Comparison, Estimate
from analysis.records import TAIL, Suite
from analysis.summary import BlockValues, compare_blocks, estimate_of, quotients

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
    return [one for phase in (ALL, *phases) for one in _of_phase(suite, energy, phase, component)]


def _of_phase(suite: Suite, energy: pl.DataFrame, phase: str, component: str) -> Iterator[PerUnit]:
    rows = energy.filter((pl.col("phase") == phase) & (pl.col("component") == component))
    if rows.is_empty():
        return
    for work, unit in UNITS.items():
        if phase == ALL and not _in_every_phase(energy, work):
            continue
        if not (rows[work].fill_null(0.0) > 0).any():
            continue
        amount = pl.col(work) / unit.size
        base: BlockValues = {}
        if suite.baseline is not None:
            on = rows.filter(pl.col("configuration") == suite.baseline)
            base = quotients(on, pl.col("energy_j"), amount)
        for name in suite.configurations:
            own = rows.filter(pl.col("configuration") == name)
            if own.is_empty():
                continue
            joules = quotients(own, pl.col("energy_j"), amount)
            yield PerUnit(
                workload=str(rows["workload"][0]),
                configuration=name,
                phase=phase,
                unit=unit,
                energy_j=estimate_of(joules),
                rate=estimate_of(quotients(own, amount, pl.col("duration_s"))),
                ratio=None
                if name == suite.baseline
                else compare_blocks(base, joules, suite.margin),
                cpu_share=estimate_of(
                    quotients(own, pl.col("cpu_busy_s"), pl.col("duration_s") * pl.col("cpus"))
                ),
            )


def _in_every_phase(energy: pl.DataFrame, work: str) -> bool:
    parts = energy.filter(~pl.col("phase").is_in([ALL, TAIL, BETWEEN]))
    return bool((parts[work].fill_null(0.0) > 0).all()) if len(parts) else False
