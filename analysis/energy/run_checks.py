"""What runs and meters record of themselves: coverage, flags, checks, storage, stolen time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import polars as pl

from analysis.energy.energy import ALL
from analysis.suite.records import SYNTHETIC, TAIL, Suite


@dataclass(frozen=True)
class MeterTrust:
    """Coverage of the measured phases by one channel; `gaps` names runs with a phase below 1."""

    source: str
    component: str
    phases: int
    mean_coverage: float | None
    worst_coverage: float | None
    gaps: tuple[str, ...]


def meters(suite: Suite, energy: pl.DataFrame) -> list[MeterTrust]:
    """Coverage by source and channel."""
    coverages = []
    for meter in suite.meters:
        for channel in meter.channels:
            rows = energy.filter(
                ~pl.col("phase").is_in(["all", "between", TAIL]),
                source=meter.name,
                component=channel,
            )
            coverage = rows["coverage"].to_list()
            mean = sum(coverage) / len(coverage) if coverage else None
            gaps = rows.filter(pl.col("coverage") < 1)["run_id"].unique().sort()
            worst = min(coverage, default=None)
            coverages.append(MeterTrust(meter.name, channel, len(rows), mean, worst, tuple(gaps)))
    return coverages


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


def cipher_drivers(suite: Suite) -> list[str]:
    """Return the kernel's drivers of AES that dm-crypt used in finished runs, each once, sorted.

    Whether the processor's AES instructions were used changes what encryption costs.
    """
    layers = (layer for run in suite.runs for layer in run.proof.layers)
    return sorted({driver for layer in layers if "aes" in (driver := layer.cipher_driver or "")})


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
