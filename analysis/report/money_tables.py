"""The tables on money, one question each, so that each fits a phone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analysis.money.payback import Payback
from analysis.report import markup, words
from analysis.report import payback_text as said
from analysis.report.markup import Html
from analysis.stats.results import Results
from analysis.suite import origin
from analysis.suite.assumptions import Assumptions

NOT_SHOWN = "no demonstrated payback"
NOTES = (
    "A payback is demonstrated where the 95 % interval of the saving lies above 0; elsewhere no "
    "time is named. Each line stands for itself: of 40 lines where nothing is saved, about one "
    "shows a payback by chance. Meter: half width of the 95 % interval of what its limits of error "
    "(type B) may add to or take from the saving, as a share of it; both sides were read by the "
    "same meter, so that its error does not average out. It stands beside the interval of the "
    "saving, not in it. GB: 10⁹ bytes that the workload's phases counted."
)
ON_THE_DRIVE = (
    "The software is that on the self-encrypting drive itself, which stands for the same drive "
    "without Opal: on another disk, more than the encryption would differ."
)


def tables(found: Results, a: Assumptions, paybacks: Sequence[Payback]) -> Html:
    """What is saved, when the drive is repaid, what it is worth, and the carbon where known."""
    worst = origin.joint(p.origin for p in paybacks)

    def table(caption: str, headers: Sequence[str], cells: Sequence[Sequence[str]]) -> Html:
        rows = [
            [said.name_of(p, a), found.suite.label(p.against), *own]
            for p, own in zip(paybacks, cells, strict=True)
        ]
        first = ["Workload", "Against"]
        return markup.table(caption, [*first, *headers], rows, words=2, origin=worst, group=True)

    page = table(
        "What the self-encrypting drive saves beside software encryption",
        ["Saving a run (J)", f"A year ({a.currency})", "A GB of work (J)", "Meter may be off by"],
        [_saved(p) for p in paybacks],
    )
    page += table(
        "Until the drive is repaid, without interest (95 % intervals)",
        ["Years", "Hours of work", "Runs"],
        [_repaid(p) for p in paybacks],
    )
    page += table(
        f"What the drive is worth in its {words.given(a.life_years)} years (95 % intervals)",
        [
            f"Break-even extra price ({a.currency})",
            f"Break-even electricity ({a.currency}/kWh)",
            f"Net present value ({a.currency})",
            "Probability of payback",
        ],
        [_worth(p, a) for p in paybacks],
    )
    if a.grid_g_co2_per_kwh is not None:
        page += table(
            f"CO₂ avoided on a grid of {words.given(a.grid_g_co2_per_kwh)} g/kWh; making the drive "
            "is not counted",
            ["A year (kg)", f"In {words.given(a.life_years)} years (kg)"],
            [_carbon(p) for p in paybacks],
        )
    return page


def _saved(p: Payback) -> list[str]:
    share = p.meter_share
    return [
        said.saved(p.saving_j),
        said.span(p.saving_per_year),
        words.NOTHING if p.saving_per_gb_j is None else said.saved(p.saving_per_gb_j),
        words.NOTHING if share is None else f"± {words.rounded(share * 100)} %",
    ]


def _repaid(p: Payback) -> list[str]:
    if p.runs is None or p.hours is None or p.years is None:
        return [NOT_SHOWN, words.NOTHING, words.NOTHING]
    return [words.span(p.years), words.span(p.hours), words.span(p.runs)]


def _worth(p: Payback, a: Assumptions) -> list[str]:
    electricity = p.break_even_electricity
    return [
        said.span(p.break_even_price),
        words.NOTHING if electricity is None else said.span(electricity),
        said.price(p.net_present_value, replace(a, currency="")),
        words.NOTHING if p.probability is None else said.chance(p.probability),
    ]


def _carbon(p: Payback) -> list[str]:
    return [
        words.NOTHING if span is None else said.span(span)
        for span in (p.co2_kg_per_year, p.co2_kg_in_life)
    ]
