"""The sections on money, batteries, and what was published."""

from __future__ import annotations

from analysis import words
from analysis.money import costs
from analysis.money.payback import Payback, Span
from analysis.page import answer, markup
from analysis.page.markup import Html
from analysis.published import paper
from analysis.records import BASELINE
from analysis.results import Results

PAYBACK = ("Workload", "Against", "Saving a run (J)", "Runs", "Hours", "Years (95 % interval)")


def money_section(found: Results) -> Html:
    """Assumptions, payback by workload, and runs on a battery."""
    a = found.suite.assumptions
    if a is None:
        return markup.paragraph(
            "The plan lacks its assumptions (price of the drive and of electricity, battery, life, "
            "runs a day): no payback is reckoned."
        )
    paybacks = costs.paybacks(found.suite, found.energy)
    price = f"{words.given(a.electricity_price_per_kwh)} {a.currency}/kWh"
    page = markup.paragraph(
        "Declared before the first run: the self-encrypting drive costs "
        f"{words.given(a.sed_extra_price)} {a.currency} more, electricity {price}, a battery holds "
        f"{words.given(a.battery_wh)} Wh, the drive lives {words.given(a.life_years)} years at "
        f"{words.given(a.runs_per_day)} runs a day. Savings are of the whole system's energy, "
        "paired within blocks; their 95 % intervals are carried to the end.",
        "key",
    )
    for payback in _by_paper_workload(paybacks):
        page += markup.paragraph(answer.payback_sentence(payback, a), "answer")
    page += markup.table(
        "Payback of the self-encrypting drive against software encryption",
        [*PAYBACK, f"Break-even extra price ({a.currency})"],
        [_payback_row(p) for p in paybacks],
        words=2,
        origin=found.origin,
        group=True,
    )
    page += markup.table(
        f"Runs on a battery of {words.given(a.battery_wh)} Wh",
        ["Workload", "Configuration", "Energy a run (J)", "Runs (95 % interval)"],
        [
            [
                words.name_of(b.workload),
                words.name_of(b.configuration),
                words.plus_minus(b.energy_j),
                words.span(b.runs),
            ]
            for b in costs.batteries(found.suite, found.energy)
        ],
        words=2,
        origin=found.origin,
        group=True,
    )
    if not paybacks:
        page += markup.paragraph(answer.money(found))
    return page


def _by_paper_workload(paybacks: list[Payback]) -> list[Payback]:
    return [p for p in paybacks if p.workload == costs.PAPER_WORKLOAD]


def _payback_row(p: Payback) -> list[str]:
    cells = [words.name_of(p.workload), words.name_of(p.against), words.plus_minus(p.saving_j)]
    if p.runs is not None and p.hours is not None:
        cells += [words.rounded(p.runs.mid), words.rounded(p.hours.mid), words.span(p.years)]
    else:
        cells += ["no demonstrated payback", words.NOTHING, words.NOTHING]
    return [*cells, _price(p.break_even_price)]


def _price(span: Span) -> str:
    if span.low is None or span.high is None:
        return f"{words.rounded(span.mid)} ({words.NO_INTERVAL})"
    return words.span(span)


def published_section(found: Results) -> Html:
    """The paper's figures beside ours, and the paper's own sums."""
    rows = paper.beside(found.energy, found.suite.margin)
    page = markup.paragraph(
        f"{paper.CITATION}. The sizes, the drive and the machine are others here, so only the "
        "ratios to plain can be compared. The figures are those of the paper's text; nothing was "
        "read off its pictures.",
        "key",
    )
    page += markup.table(
        "Published beside measured here",
        ["What", "Configuration", "Published", "Here", "Published, ratio", "Here, ratio", "Doubt"],
        [_beside_row(row) for row in rows],
        words=2,
        origin=found.origin,
        group=True,
    )
    doubtful = [p for p in paper.published() if p.doubtful]
    page += markup.folded(
        f"{len(doubtful)} doubtful entries in the paper, left as they stand",
        markup.bullets(
            f"Section {p.section}, {words.name_of(p.entry)}{_for(p.configuration)}: "
            f"{words.number(p.value, _places(p.value))} {p.unit}. {p.note}."
            for p in doubtful
        ),
    )
    page += markup.table(
        "The paper's own arithmetic, made again from its numbers by the code of this report",
        ["What", "From", "Published", "Made again"],
        [
            [s.what, s.inputs, s.published, f"{words.rounded(s.computed)} {s.unit}"]
            for s in paper.arithmetic()
        ],
        words=2,
    )
    return page


def _for(configuration: str) -> str:
    return f", {words.name_of(configuration)}" if configuration else ""


def _beside_row(row: paper.Beside) -> list[str]:
    p = row.published
    places = _places(p.value)
    half = f" ± {words.number(p.half_width, places)}" if p.half_width is not None else ""
    return [
        f"{words.name_of(p.entry)}, {p.quantity} ({p.unit})",
        words.name_of(p.configuration),
        f"{words.number(p.value, places)}{half}",
        words.plus_minus(row.measured),
        "1" if p.configuration == BASELINE else words.number(row.published_ratio, 3),
        "1" if p.configuration == BASELINE else words.ratio(row.measured_ratio),
        "see below" if p.doubtful else "",
    ]


def _places(value: float) -> int:
    return 0 if value == int(value) else 3 if value < 10_000 else 1
