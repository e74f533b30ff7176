"""The section on money: what was declared, what to decide by, payback, batteries, carbon."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.money import costs, sensitivity
from analysis.money.payback import Payback
from analysis.report import markup, money_tables, words
from analysis.report import payback_text as said
from analysis.report.figures import payback_curve, tornado
from analysis.report.markup import Html
from analysis.stats import specimens
from analysis.stats.results import Results
from analysis.suite import origin
from analysis.suite.assumptions import Assumptions

MANY = 24  # lines of a table: more of them open only when asked for


def money_section(found: Results) -> Html:
    """The whole section; a sentence where the plan or the suite does not hold enough for it."""
    a = found.suite.assumptions
    if a is None:
        return markup.paragraph(
            "The plan lacks its assumptions (price of the drive and of electricity, battery, life, "
            "runs a day), or one of them is not a positive number: no payback is reckoned."
        )
    page = _declared(a)
    profiles = costs.profiles(found.suite, found.energy)
    by_workload = costs.paybacks(found.suite, found.energy)
    if not by_workload:
        page += markup.paragraph(said.money_sentence(found))
    else:
        page += _decision(found, a, profiles or by_workload)
        page += _lines(found, a, profiles, _others(profiles, by_workload))
        page += _pictures(found, a, profiles or by_workload)
    return page + _batteries(found, a)


def _declared(a: Assumptions) -> Html:
    text = (
        "Declared before the first run: the self-encrypting drive costs "
        f"{said.money(a.sed_extra_price, a)} more and lives {words.given(a.life_years)} years; "
        f"electricity costs {words.given(a.electricity_price_per_kwh)} {a.currency}/kWh; interest "
        f"is {words.given(a.discount_rate * 100)} % a year; each workload by itself is reckoned at "
        f"{said.times(a.runs_per_day)} runs a day; a battery holds {words.given(a.battery_wh)} "
        "Wh."
    )
    if a.duty:
        each = [f"{said.times(n)} × {words.name_of(name)}" for name, n in a.duty.items()]
        text += f" The duty profile is, each day: {', '.join(each)}."
    text += (
        " Savings are of the whole system's energy, software less self-encrypting drive, paired "
        "within blocks; their 95 % intervals are carried to the end."
    )
    return markup.paragraph(text, "key")


def _decision(found: Results, a: Assumptions, paybacks: Sequence[Payback]) -> Html:
    """The answer in sentences that stand by themselves."""
    page = markup.paragraph(said.money_sentence(found), "answer")
    lacking = said.profile_lacking(found)
    if lacking:
        page += markup.paragraph(lacking)
    headline = costs.headline_payback(paybacks)
    if headline is not None:
        page += markup.bullets(said.decision(headline, a, found.suite.label))
    return page


def _others(profiles: Sequence[Payback], by_workload: Sequence[Payback]) -> list[Payback]:
    """The workloads' own lines, without those that the profile's already are."""
    there = {(p.workload, p.against, p.runs_per_day) for p in profiles}
    return [p for p in by_workload if (p.workload, p.against, p.runs_per_day) not in there]


def _lines(
    found: Results, a: Assumptions, profiles: Sequence[Payback], others: Sequence[Payback]
) -> Html:
    """The profile's lines, then each workload's; those apart where they are many."""
    apart = bool(profiles) and len(others) > MANY
    first = profiles if apart else [*profiles, *others]
    notes = money_tables.NOTES
    if not specimens.across(found.suite, found.suite.sed, *costs.alternatives(found.suite)):
        notes += f" {money_tables.ON_THE_DRIVE}"
    page = money_tables.tables(found, a, first) + markup.paragraph(notes, "key")
    if apart:
        by_itself = money_tables.tables(found, a, others)
        page += markup.folded(f"Each workload by itself, {len(others)} lines", by_itself)
    return page


def _pictures(found: Results, a: Assumptions, paybacks: Sequence[Payback]) -> Html:
    """When the drive is repaid, and what that hangs on, for the line that is named first."""
    headline = costs.headline_payback(paybacks)
    if headline is None:
        return markup.EMPTY
    label = found.suite.label
    shown = [p for p in paybacks if p.workload == headline.workload]
    labels = {p.against: label(p.against) for p in shown}
    work = said.work(headline, a)
    page = markup.picture(
        payback_curve.draw(shown, a, labels, origin.joint(p.origin for p in shown)),
        f"Electricity saved so far, with {words.given(a.discount_rate * 100)} % interest a year, "
        f"less the drive's extra price, at {work}. The drive is repaid where the line crosses 0.",
        origin.joint(p.origin for p in shown),
    )
    swings = sensitivity.swings(headline, a)
    page += markup.picture(
        tornado.draw(swings, headline, a, label(headline.against), headline.origin),
        "Net present value if one thing at a time is moved from its declared value to its low and "
        f"its high end, at {work}. Ends are as declared, else half and double; the "
        "saving's are those of its 95 % interval, and apart from it those of the meter's limits of "
        "error.",
        headline.origin,
    )
    return page


def _batteries(found: Results, a: Assumptions) -> Html:
    batteries = costs.batteries(found.suite, found.energy)
    held = markup.table(
        f"Runs on a battery of {words.given(a.battery_wh)} Wh",
        ["Workload", "Configuration", "Energy a run (J)", "Runs (95 % interval)"],
        [
            [
                words.name_of(b.workload),
                found.suite.label(b.configuration),
                words.plus_minus(b.energy_j),
                said.span(b.runs),
            ]
            for b in batteries
        ],
        words=2,
        origin=origin.joint(b.origin for b in batteries),
        group=True,
    )
    if len(batteries) <= MANY:
        return held
    return markup.folded(f"Runs on a battery, {len(batteries)} lines", held)
