"""Two ways to one figure: the clock, the whole machine and its parts, two meters."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from analysis.suite import clocks
from analysis.suite.records import Suite


@dataclass(frozen=True)
class ClockTrust:
    """`bound_ms` is the worst bound at any phase edge; None where no run could be placed."""

    boots: int
    readings: int
    bound_ms: float | None
    skew_ppm: float | None
    runs_without: int


def clock(suite: Suite, target: clocks.TargetClock) -> ClockTrust:
    """Return the worst clock bound over all edges of measured phases."""
    bounds = [
        bound
        for run in suite.runs
        for phase in run.measured_phases
        for t in (phase.t_start_ns, phase.t_end_ns)
        if (bound := target.bound_ns(run.boot_id, t)) is not None
    ]
    skews = [abs(model.skew_ppm) for model in target.models.values()]
    return ClockTrust(
        boots=len(target.models),
        readings=len(suite.clock),
        bound_ms=max(bounds) / 1e6 if bounds else None,
        skew_ppm=max(skews) if skews else None,
        runs_without=sum(run.boot_id not in target.models for run in suite.runs),
    )


@dataclass(frozen=True)
class WholeAgainstParts:
    """Runs in which package and memory (RAPL) took more than the whole machine (meter) did.

    Without `memory` the machine has no DRAM zone.
    """

    runs: int
    memory: bool
    exceeding: int
    worst_ratio: float | None
    modelled: bool


def against_parts(energy: pl.DataFrame) -> WholeAgainstParts:
    """Hold the processor's and memory's joules (RAPL) against the whole machine's (meter).

    Of several packages or memories that is their sum. Domains inside a package (core, uncore) and
    psys are not parts beside it, so they stay out.
    """
    runs = energy.filter(pl.col("energy_j").is_not_null(), phase="all")
    rapl = runs.filter(source="rapl")
    package = "package" if "package" in set(rapl["component"]) else "package-0"
    parts = (
        rapl.filter(pl.col("component").is_in([package, "dram"]))
        .group_by("run_id")
        .agg(pl.col("energy_j").sum().alias("parts_j"))
    )
    metered = runs.filter(pl.col("source") != "rapl", pl.col("energy_j") > 0, component="system")
    both = parts.join(metered, on="run_id")
    ratios = [float(r) for r in both["parts_j"] / both["energy_j"]]
    return WholeAgainstParts(
        runs=len(ratios),
        memory="dram" in set(rapl["component"]),
        exceeding=sum(ratio > 1 for ratio in ratios),
        worst_ratio=max(ratios, default=None),
        modelled=bool((both["origin"] == "modelled").any()),
    )


@dataclass(frozen=True)
class TwoMeters:
    """One channel by its reference meter and by another, over the runs that both have.

    The mean ratio of other to reference, and how many differ by more than their intervals allow.
    """

    channel: str
    reference: str
    other: str
    runs: int
    ratio: float | None
    apart: int


def two_meters(suite: Suite, energy: pl.DataFrame) -> list[TwoMeters]:
    """By channel that several meters have; `energy` has all their rows."""
    runs = energy.filter(pl.col("energy_j") > 0, phase="all")
    comparisons = []
    for meter in suite.meters:
        for channel in meter.channels:
            reference = suite.reference_meter(channel)
            if reference is None or reference == meter.name:
                continue
            of_channel = runs.filter(component=channel)
            both = of_channel.filter(source=reference).join(
                of_channel.filter(source=meter.name), on="run_id", suffix="_other"
            )
            allowed = (
                pl.col("energy_u95_j").fill_null(0.0).pow(2)
                + pl.col("energy_u95_j_other").fill_null(0.0).pow(2)
            ).sqrt()
            apart = both.filter((pl.col("energy_j_other") - pl.col("energy_j")).abs() > allowed)
            ratios = [float(r) for r in both["energy_j_other"] / both["energy_j"]]
            mean = sum(ratios) / len(ratios) if ratios else None
            comparisons.append(
                TwoMeters(channel, reference, meter.name, len(both), mean, len(apart))
            )
    return comparisons
