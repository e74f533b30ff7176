"""The published figures of Fujimoto et al. beside our own, and the paper's arithmetic."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from analysis.inference.stats import Comparison, Estimate
from analysis.money.payback import battery_runs, runs_to_repay
from analysis.records import BASELINE
from analysis.summary import block_values, compare_blocks, estimate_of, joint_origin

REFERENCE = Path(__file__).parents[2] / "data" / "reference" / "fujimoto.csv"
CITATION = "Fujimoto, Peterson, Reiher: Comparing the Power of Full Disk Encryption Alternatives"
COMPARED = ("read-10mb", "write-1gb", "untar", "grep")
SYSTEM = "system"


@dataclass(frozen=True)
class Published:
    """One printed figure; `half_width` is the ± beside it (95 %), `note` why it is doubtful."""

    entry: str
    section: str
    workload: str
    phase: str
    configuration: str
    quantity: str
    value: float
    half_width: float | None
    unit: str
    doubtful: bool
    note: str


@dataclass(frozen=True)
class Beside:
    """A published figure and ours. Sizes differ, so only the ratios to plain can be compared."""

    published: Published
    published_ratio: float | None
    measured: Estimate | None
    measured_ratio: Comparison | None
    origin: str


@dataclass(frozen=True)
class Arithmetic:
    """One of the paper's own sums: what it says, what our code makes of its inputs."""

    what: str
    inputs: str
    published: str
    computed: float
    unit: str


def published(path: Path = REFERENCE) -> list[Published]:
    """All figures that stand in the paper's text, doubtful ones marked."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Published(
                entry=row["entry"],
                section=row["section"],
                workload=row["workload"],
                phase=row["phase"],
                configuration=row["configuration"],
                quantity=row["quantity"],
                value=float(row["value"]),
                half_width=float(row["half_width_95"]) if row["half_width_95"] else None,
                unit=row["unit"],
                doubtful=row["doubtful"] == "yes",
                note=row["note"],
            )
            for row in csv.DictReader(file)
        ]


def beside(energy: pl.DataFrame, margin: float) -> list[Beside]:
    """Published and own figures for the same phase, configuration and quantity."""
    figures = [p for p in published() if p.entry in COMPARED]
    plain = {(p.entry, p.quantity): p.value for p in figures if p.configuration == BASELINE}
    rows = []
    for figure in figures:
        own = _own(energy, figure, figure.configuration)
        base = _own(energy, figure, BASELINE)
        other = figure.configuration != BASELINE
        rows.append(
            Beside(
                published=figure,
                published_ratio=figure.value / plain[figure.entry, figure.quantity]
                if other
                else None,
                measured=estimate_of(own),
                measured_ratio=compare_blocks(base, own, margin) if other else None,
                # Durations are measured in any case; only joules can be modelled.
                origin=_origin(energy) if figure.quantity == "energy" else "measured",
            )
        )
    return rows


def _origin(energy: pl.DataFrame) -> str:
    return joint_origin(energy.filter(pl.col("component") == SYSTEM))


def _own(energy: pl.DataFrame, figure: Published, configuration: str) -> dict[int, float]:
    column = "energy_j" if figure.quantity == "energy" else "duration_s"
    # A duration is the same for every component, so that any of them will do.
    there = energy["component"].unique().sort().to_list()
    component = SYSTEM if SYSTEM in there or column == "energy_j" or not there else there[0]
    return block_values(
        energy, figure.workload, configuration, component, phase=figure.phase, column=column
    )


def arithmetic() -> list[Arithmetic]:
    """The paper's payback and battery sums, made from its own numbers by the code of the report."""
    by = {(p.entry, p.configuration): p.value for p in published()}
    extra = by["price", "opal"] - by["price", BASELINE]
    rate, saving = by["electricity-price", ""], by["saving", "opal"]
    runs = runs_to_repay(extra, saving, rate)
    run_s, battery_j = by["run-length", ""], by["battery", ""]
    hours = runs * run_s / 3600
    sums = [
        Arithmetic(
            "Runs until the dearer disk is repaid",
            f"{extra:.0f} USD, {saving:.0f} J a run, {rate} USD/kWh",
            "almost 750,000",
            runs,
            "runs",
        ),
        Arithmetic(
            "Hours of these runs", f"a bit less than {run_s:.0f} s a run", "25,000", hours, "h"
        ),
        Arithmetic("Years without a pause", "", "almost 3", hours / 24 / 365.25, "years"),
    ]
    # Figure 4 has no numbers; 12 kJ for plain follows from 15 runs, and the rest from the text.
    hardware_j = battery_j / by["battery-runs", "opal"]
    per_run = {
        BASELINE: battery_j / by["battery-runs", BASELINE],
        "opal": hardware_j,
        "dmcrypt-aes128": hardware_j + saving,
    }
    for configuration, energy_j in per_run.items():
        held = battery_runs(battery_j, Estimate(1, energy_j, None, None)).mid
        sums.append(
            Arithmetic(
                f"Runs on a battery, {configuration}",
                f"{battery_j / 1000:.0f} kJ, {energy_j / 1000:.1f} kJ a run",
                f"around {by['battery-runs', configuration]:.0f}",
                held,
                "runs",
            )
        )
    return sums
