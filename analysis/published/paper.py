"""The sums of Fujimoto et al. on payback and batteries, made again by the code of the report."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.money.payback import battery_runs, runs_to_repay
from analysis.published.reference import Published, published
from analysis.stats.stats import Estimate

PAPER = "fujimoto"
S_PER_MIN = 60.0


@dataclass(frozen=True)
class Arithmetic:
    """One of the paper's own sums: what it says, what our code makes of its inputs.

    `configuration` is that of the reference tables; empty where the sum is of none.
    """

    what: str
    configuration: str
    inputs: str
    published: str
    computed: float
    unit: str


def arithmetic() -> list[Arithmetic]:
    """The paper's payback and battery sums, from the numbers in its text."""
    by = {(p.entry, p.configuration): p for p in published(PAPER)}
    return [*_payback(by), *_batteries(by)]


def _payback(by: dict[tuple[str, str], Published]) -> list[Arithmetic]:
    extra = by["price", "opal"].value - by["price", "plain"].value
    rate, saving = by["electricity-price", ""], by["saving", "opal"]
    length = by["run-length", ""]
    runs = runs_to_repay(extra, saving.value, rate.value)
    hours = runs * length.value * S_PER_MIN / 3600
    said = {name: by[f"payback-{name}", "opal"] for name in ("runs", "hours", "years")}
    inputs = f"{extra:.0f} USD, {saving.value:.0f} J a run, {rate.printed} USD/kWh"
    printed = {
        "runs": f"almost {said['runs'].value:,.0f}",
        "hours": f"roughly {said['hours'].value:,.0f}",
        "years": f"almost {said['years'].printed}",
    }
    lasted = f"a bit less than {length.printed} min a run"
    years = said["hours"].value / 24 / 365.25
    pause = f"{said['hours'].value:,.0f} h"
    return [
        Arithmetic(
            "Runs until the dearer disk is repaid", "", inputs, printed["runs"], runs, "runs"
        ),
        Arithmetic("Hours of these runs", "", lasted, printed["hours"], hours, "h"),
        Arithmetic("Years without a pause", "", pause, printed["years"], years, "years"),
    ]


def _batteries(by: dict[tuple[str, str], Published]) -> list[Arithmetic]:
    """Figure 4 has no numbers: the joules of a run follow from the runs, and from the saving."""
    battery_j, saving_j = by["battery", ""].value, by["saving", "opal"].value
    said = {c: by["battery-runs", c].value for c in ("plain", "opal", "dmcrypt-aes128")}
    drive_j = battery_j / said["opal"]
    per_run_j = {
        "plain": battery_j / said["plain"],
        "opal": drive_j,
        "dmcrypt-aes128": drive_j + saving_j,
    }
    sums = []
    for configuration, energy_j in per_run_j.items():
        held = battery_runs(battery_j, Estimate(1, energy_j, None, None)).mid
        sums.append(
            Arithmetic(
                "Runs on a battery",
                configuration,
                f"{battery_j / 1000:.0f} kJ, {energy_j / 1000:.1f} kJ a run",
                f"around {said[configuration]:.0f}",
                held,
                "runs",
            )
        )
    return sums
