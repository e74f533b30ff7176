"""How far the figures can be trusted: two RAPL readers, the clocks, the meter's gaps, void runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from analysis import align
from analysis.records import TAIL, Run, Suite


@dataclass(frozen=True)
class ReaderAgreement:
    """pyRAPL's figures against our own reader's, over whole runs.

    `compared` pairs of figures; the largest differences in µJ and as a share of our figure;
    `wrapped` counts pairs left out because the counter went round, which pyRAPL does not handle;
    `failed` runs in which pyRAPL gave no figure.
    """

    compared: int
    worst_uj: int | None
    worst_share: float | None
    wrapped: int
    failed: int


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
    """Runs in which package and memory (RAPL) took more than the whole machine (meter) did."""

    runs: int
    exceeding: int
    worst_ratio: float | None
    modelled: bool


def readers(suite: Suite) -> ReaderAgreement:
    """Compare pyRAPL with the counters read next to its begin and end.

    pyRAPL's reads lie between our own two, so its figure may be smaller by what was used in
    between.
    """
    worst_uj, worst_share = None, None
    compared = wrapped = failed = 0
    for run in suite.runs:
        if not run.pyrapl:
            continue
        zones = run.pyrapl.get("zones") if "error" not in run.pyrapl else None
        if not isinstance(zones, list):
            failed += 1
            continue
        for zone in zones:
            own = _own_uj(zone)
            if own is None or zone.get("pyrapl_uj") is None:
                wrapped += own is None
                failed += own is not None
                continue
            compared += 1
            difference = round(abs(float(zone["pyrapl_uj"]) - own))
            worst_uj = max(difference, worst_uj or 0)
            if own > 0:
                worst_share = max(difference / own, worst_share or 0.0)
    return ReaderAgreement(compared, worst_uj, worst_share, wrapped, failed)


def _own_uj(zone: Mapping[str, Any]) -> int | None:
    """Our figure for a zone of pyRAPL's; None where the counter went round or was not read."""
    try:
        difference = _count(zone["own_end"]) - _count(zone["own_start"])
    except (KeyError, TypeError, ValueError):
        return None
    return difference if difference >= 0 else None


def _count(value: Any) -> int:
    return int(value["energy_uj"] if isinstance(value, Mapping) else value)


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
                & ~pl.col("phase").is_in(["all", TAIL])
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

    Domains inside a package (core, uncore) and psys are not parts beside it, so they stay out.
    """
    runs = energy.filter((pl.col("phase") == "all") & pl.col("energy_j").is_not_null())
    part = (pl.col("source") == "rapl") & pl.col("component").str.contains(r"^package-\d+|dram$")
    parts = runs.filter(part).group_by("run_id").agg(pl.col("energy_j").sum().alias("parts_j"))
    both = parts.join(
        runs.filter((pl.col("source") != "rapl") & (pl.col("component") == "system")), on="run_id"
    ).filter(pl.col("energy_j") > 0)
    ratios = [float(r) for r in both["parts_j"] / both["energy_j"]]
    return WholeAgainstParts(
        runs=len(ratios),
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


def proven(runs: tuple[Run, ...]) -> int:
    """Runs whose storage configuration was found to be the planned one."""
    return sum(bool(run.proof.get("ok")) for run in runs)
