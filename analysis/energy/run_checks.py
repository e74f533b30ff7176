"""What runs, sources and meters record of themselves and of each other, held against it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from analysis.energy.energy import ALL
from analysis.suite.records import SYNTHETIC, Phase, Suite


def flagged(energy: pl.DataFrame) -> list[tuple[str, int]]:
    """Words in the flags of phases and how many rows bear each."""
    rows = energy.filter(pl.col("phase") != "all")["flags"]
    return sorted(Counter(word for flags in rows for word in set(flags.split())).items())


def warnings(suite: Suite) -> list[tuple[str, str, int]]:
    """Return the checks that finished runs did not pass: name, message, number of runs."""
    counts: Counter[tuple[str, str]] = Counter()
    for run in suite.runs:
        counts.update({(c.name, c.message or "") for c in run.checks if not c.ok})
    return sorted((name, message, n) for (name, message), n in counts.items())


def proof(suite: Suite, origin: str) -> str:
    """Return a clause after the number of finished runs: in how many the storage was as planned."""
    if origin == SYNTHETIC:
        return "there was no storage to prove"
    proven = sum(run.proof.ok and not run.proof.declared for run in suite.runs)
    declared = sum(run.proof.ok and run.proof.declared for run in suite.runs)
    clause = f"the storage was proven to be the planned one in {proven} of them"
    if declared:
        clause += f", and declared to be it by a product's own commands in {declared}"
    for serial, read in suite.locked_reads.items():
        clause += f"; locked after the last of them, {serial} refused a read ({read.error})"
        if read.link_before != read.link_after:
            clause += ", which changed its link: switch the machine off before the next suite"
    return clause


def stolen_shares(energy: pl.DataFrame) -> list[float]:
    """Return by run the share of CPU time that the host of a virtual machine kept.

    Empty where nothing was kept, or no run has it.
    """
    phases = energy.filter(
        pl.col("cpu_stolen_s").is_not_null(), ~pl.col("phase").is_in([ALL, "between"])
    )
    runs = (
        phases.unique(["run_id", "phase"])
        .group_by("run_id")
        .agg(pl.col("cpu_stolen_s").sum() / (pl.col("duration_s") * pl.col("cpus")).sum())
    )
    shares = [float(share) for share in runs["cpu_stolen_s"]]
    return shares if any(shares) else []


LIMIT = 0.01  # of the busy CPU time; the target of the suite `paper`
# Of one CPU: if others keep it busy for less than this, a share of that says nothing.
AT_REST = 0.05


class OwnShare(NamedTuple):
    """The agent's CPU seconds in a phase of a workload, as a share of the busy ones.

    A phase at rest is held against its time on one CPU instead. Runs of a phase are added up first:
    /proc/stat counts in hundredths of a second.
    """

    workload: str
    phase: str
    share: float
    at_rest: bool


def own_shares(suite: Suite) -> list[OwnShare]:
    """Return shares by workload and phase, where its runs have CPU seconds at all."""
    phases: dict[tuple[str, str], list[Phase]] = {}
    for run in suite.runs:
        for phase in run.measured_phases:
            if phase.own_cpu_s is not None and phase.cpu_busy_s is not None:
                phases.setdefault((run.workload, phase.name), []).append(phase)
    shares = []
    for names, same in phases.items():
        own_s, busy_s = (sum(getattr(p, key) for p in same) for key in ("own_cpu_s", "cpu_busy_s"))
        took_s = sum(phase.duration_s for phase in same)
        shares.append(OwnShare(*names, *own_share(own_s, busy_s, took_s)))
    return shares


def own_share(own_s: float, busy_s: float, took_s: float) -> tuple[float, bool]:
    """Return own CPU seconds over busy ones, or over the time where nearly none were busy.

    Which of them: whether it was at rest.
    """
    at_rest = busy_s - own_s < AT_REST * took_s
    return own_s / (took_s if at_rest else busy_s), at_rest


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
