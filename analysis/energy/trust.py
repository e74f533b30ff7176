"""How far the figures can be trusted: the clocks, the meter's gaps, the whole and its parts.

The agreement of the RAPL readers is in analysis.suite.readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from analysis.suite import align
from analysis.suite.origin import SYNTHETIC
from analysis.suite.records import TAIL, Suite


@dataclass(frozen=True)
class ClockTrust:
    """`bound_ms` is the worst bound at any phase edge; None where no run could be placed."""

    boots: int
    readings: int
    bound_ms: float | None
    skew_ppm: float | None
    runs_without: int


@dataclass(frozen=True)
class MeterTrust:
    """Coverage of the measured phases by one channel; `gaps` names runs with a phase below 1."""

    source: str
    component: str
    phases: int
    mean_coverage: float | None
    worst_coverage: float | None
    gaps: tuple[str, ...]


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


def clock(suite: Suite, target: align.TargetClock) -> ClockTrust:
    """The worst clock bound over all edges of measured phases."""
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


def meters(suite: Suite, energy: pl.DataFrame) -> list[MeterTrust]:
    """Coverage by source and channel."""
    found = []
    for meter in suite.meters:
        for channel in meter.channels:
            rows = energy.filter(
                (pl.col("source") == meter.name)
                & (pl.col("component") == channel)
                & ~pl.col("phase").is_in(["all", "between", TAIL])
            )
            coverage = rows["coverage"].to_list()
            gaps = rows.filter(pl.col("coverage") < 1)["run_id"].unique().sort().to_list()
            found.append(
                MeterTrust(
                    source=meter.name,
                    component=channel,
                    phases=len(rows),
                    mean_coverage=sum(coverage) / len(coverage) if coverage else None,
                    worst_coverage=min(coverage) if coverage else None,
                    gaps=tuple(gaps),
                )
            )
    return found


def whole(energy: pl.DataFrame) -> WholeAgainstParts:
    """Hold the processor's and memory's joules (RAPL) against the whole machine's (meter).

    Of several packages or memories that is their sum. Domains inside a package (core, uncore) and
    psys are not parts beside it, so they stay out.
    """
    runs = energy.filter((pl.col("phase") == "all") & pl.col("energy_j").is_not_null())
    rapl = runs.filter(pl.col("source") == "rapl")
    package = "package" if "package" in set(rapl["component"]) else "package-0"
    parts = (
        rapl.filter(pl.col("component").is_in([package, "dram"]))
        .group_by("run_id")
        .agg(pl.col("energy_j").sum().alias("parts_j"))
    )
    both = parts.join(
        runs.filter((pl.col("source") != "rapl") & (pl.col("component") == "system")), on="run_id"
    ).filter(pl.col("energy_j") > 0)
    ratios = [float(r) for r in both["parts_j"] / both["energy_j"]]
    return WholeAgainstParts(
        runs=len(ratios),
        memory="dram" in set(rapl["component"]),
        exceeding=sum(ratio > 1 for ratio in ratios),
        worst_ratio=max(ratios, default=None),
        modelled=bool((both["origin"] == "modelled").any()),
    )


def flagged(energy: pl.DataFrame) -> list[tuple[str, int]]:
    """Words in the flags of phases and how many rows bear each."""
    counts: dict[str, int] = {}
    for flags in energy.filter(pl.col("phase") != "all")["flags"]:
        for word in set(flags.split()):
            counts[word] = counts.get(word, 0) + 1
    return sorted(counts.items())


def warnings(suite: Suite) -> list[tuple[str, str, int]]:
    """Checks that were not passed in finished runs: name, message, number of runs."""
    counts: dict[tuple[str, str], int] = {}
    for run in suite.runs:
        for name, message in {_check(check) for check in run.checks if not check.get("ok", True)}:
            counts[name, message] = counts.get((name, message), 0) + 1
    return sorted((name, message, n) for (name, message), n in counts.items())


def _check(check: Mapping[str, Any]) -> tuple[str, str]:
    return str(check.get("name", "")), str(check.get("message") or "")


def proof(suite: Suite, origin: str) -> str:
    """A clause after the number of finished runs: in how many the storage was as planned."""
    if origin == SYNTHETIC:
        return "there was no storage to prove"
    proven = sum(bool(run.proof.get("ok")) for run in suite.runs)
    said = f"the storage was proven to be the planned one in {proven} of them"
    for serial, read in (suite.after.get("locked_reads") or {}).items():
        said += f"; locked after the last of them, {serial} refused a read ({read['error']})"
        if read["link_before"] != read["link_after"]:
            said += ", which changed its link: switch the machine off before the next suite"
    return said
