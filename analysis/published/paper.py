"""The sums of Fujimoto et al. on payback and batteries, made again by the code of the report."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.money.payback import JOULES_PER_KWH, battery_runs, runs_to_repay
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
    """What the battery's figures say of each other; none is computed from itself.

    Figure 4 has no numbers, so that joules of a run are nowhere printed. The printed saving joins
    the drive's runs and dm-crypt's, each of which follows from the other; plain's follows from
    neither. Joules and seconds of unpacking give the power at which a run of the printed length
    would empty the battery.
    """
    battery_j, saving_j = by["battery", ""].value, by["saving", "opal"].value
    said = {c: by["battery-runs", c].value for c in ("plain", "opal", "dmcrypt-aes128")}
    sums = [
        Arithmetic(
            "A battery of 50 Wh in joules",
            "",
            f"{JOULES_PER_KWH / 1000:.0f} J/Wh",
            f"roughly {battery_j:,.0f}",
            50 * JOULES_PER_KWH / 1000,
            "J",
        )
    ]
    for configuration, other, more_j in (
        ("opal", "dmcrypt-aes128", -saving_j),
        ("dmcrypt-aes128", "opal", saving_j),
    ):
        energy_j = battery_j / said[other] + more_j
        held = battery_runs(battery_j, Estimate(1, energy_j, None, None)).mid
        more = f"{abs(more_j):,.0f} J {'more' if more_j > 0 else 'less'} a run"
        sums.append(
            Arithmetic(
                "Runs on a battery",
                configuration,
                f"{said[other]:.0f} runs of the other, {more}",
                f"around {said[configuration]:.0f}",
                held,
                "runs",
            )
        )
    of_plain = ("untar", "plain")
    unpacking = [p for p in published(PAPER) if (p.entry, p.configuration) == of_plain]
    untar = {p.quantity: p.value for p in unpacking}
    power_w = untar["energy"] / untar["time"]
    run_j = power_w * by["run-length", ""].value * S_PER_MIN
    held = battery_runs(battery_j, Estimate(1, run_j, None, None)).mid
    inputs = f"{power_w:.1f} W as in unpacking, {by['run-length', ''].printed} min a run"
    printed = f"around {said['plain']:.0f}"
    return [*sums, Arithmetic("Runs on a battery", "plain", inputs, printed, held, "runs")]
