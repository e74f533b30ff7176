"""Cross-checks of a suite: warnings, proofs, CPU time, and meters against their parts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from analysis.energy.energy import ALL
from analysis.suite.records import SYNTHETIC, Phase, Suite


def warnings(suite: Suite) -> list[tuple[str, str, int]]:
    """Return the failed checks of finished runs: name, message, number of runs."""
    counts: Counter[tuple[str, str]] = Counter()
    for run in suite.runs:
        counts.update({(c.name, c.message or "") for c in run.checks if not c.ok})
    return sorted((name, message, n) for (name, message), n in counts.items())


def proof(suite: Suite, origin: str) -> str:
    """Return a clause on the finished runs whose storage was proven to be the planned one."""
    if origin == SYNTHETIC:
        return "there was no storage to prove"
    proven = sum(run.proof.ok and not run.proof.declared for run in suite.runs)
    declared = sum(run.proof.ok and run.proof.declared for run in suite.runs)
    clause = f"in {proven} of them the storage was proven to be the planned one"
    if declared:
        clause += f"; in {declared} a product's own commands declare it"
    for serial, read in suite.locked_reads.items():
        clause += f"; after the last run {serial} was locked and refused a read ({read.error})"
        changed = read.link_before != read.link_after
        clause += ", which changed its link: switch the machine off before the next suite" * changed
        clause += ", as it should" * (not changed)
    return clause


def stolen_shares(energy: pl.DataFrame) -> dict[str, float]:
    """Return by run the share of CPU time that a virtual machine's host took away.

    Empty if that is 0 in all runs, or not recorded.
    """
    phases = energy.filter(
        pl.col("cpu_stolen_s").is_not_null(), ~pl.col("phase").is_in([ALL, "between"])
    )
    runs = (
        phases.unique(["run_id", "phase"])
        .group_by("run_id")
        .agg(pl.col("cpu_stolen_s").sum() / (pl.col("duration_s") * pl.col("cpus")).sum())
    )
    shares = {str(run_id): float(share) for run_id, share in runs.iter_rows()}
    return shares if any(shares.values()) else {}


LIMIT = 0.01  # of the busy CPU time; the target of the suite `paper`
AT_REST = 0.05  # busy share of one CPU, without the agent's, below which it is at rest


class OwnShare(NamedTuple):
    """The agent's CPU seconds in a phase of a workload, as a share of the busy ones.

    In a phase at rest it is a share of the time on one CPU. Runs of a phase are added up first, as
    /proc/stat counts in hundredths of a second.
    """

    workload: str
    phase: str
    share: float
    at_rest: bool


def own_shares(suite: Suite) -> list[OwnShare]:
    """Return the agent's share of each workload and phase whose runs record CPU seconds."""
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
    """Return the agent's share of busy CPU seconds, and False.

    At rest return its share of the time on one CPU, and True.
    """
    at_rest = busy_s - own_s < AT_REST * took_s
    return own_s / (took_s if at_rest else busy_s), at_rest


def shares_of_parts(energy: pl.DataFrame) -> list[float]:
    """Return processor's and memory's joules (RAPL) as shares of the whole machine's (meter).

    There is one of each run with these. Several packages or memories are added up. Domains inside a
    package (core, uncore) and psys are not separate parts and do not count.
    """
    runs = energy.filter(pl.col("energy_j").is_not_null(), phase="all")
    rapl = runs.filter(source="rapl")
    package = "package" if "package" in set(rapl["component"]) else "package-0"
    parts = rapl.filter(pl.col("component").is_in([package, "dram"]))
    metered = runs.filter(pl.col("source") != "rapl", pl.col("energy_j") > 0, component="system")
    sums = parts.group_by("run_id").agg(pl.col("energy_j").sum().alias("parts_j"))
    joined = sums.join(metered, on="run_id")
    return [float(share) for share in joined["parts_j"] / joined["energy_j"]]


@dataclass(frozen=True)
class TwoMeters:
    """Two meters of one channel: the mean ratio of other to reference over their common runs.

    `apart` is the number of runs that differ by more than their intervals allow.
    """

    channel: str
    reference: str
    other: str
    runs: int
    ratio: float | None
    apart: int


def two_meters(suite: Suite, energy: pl.DataFrame) -> list[TwoMeters]:
    """Compare the meters of each channel that several have; `energy` has the rows of all."""
    runs = energy.filter(pl.col("energy_j") > 0, phase="all")
    comparisons = []
    for meter in suite.meters:
        for channel in meter.channels:
            reference = suite.reference_meter(channel)
            if reference is None or reference == meter.name:
                continue
            rows = runs.filter(component=channel)
            pairs = rows.filter(source=reference).join(
                rows.filter(source=meter.name), on="run_id", suffix="_other"
            )
            allowed = (
                pl.col("energy_u95_j").fill_null(0.0).pow(2)
                + pl.col("energy_u95_j_other").fill_null(0.0).pow(2)
            ).sqrt()
            apart = pairs.filter((pl.col("energy_j_other") - pl.col("energy_j")).abs() > allowed)
            ratios = [float(r) for r in pairs["energy_j_other"] / pairs["energy_j"]]
            mean = sum(ratios) / len(ratios) if ratios else None
            comparisons.append(
                TwoMeters(channel, reference, meter.name, len(pairs), mean, len(apart))
            )
    return comparisons
