"""The section on money: what was declared, what to decide by, payback, batteries, carbon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analysis.money import costs
from analysis.money.battery_hours import BatteryHours, battery_hours
from analysis.money.costs import Battery
from analysis.money.payback import Payback
from analysis.report import payback_text, view, words
from analysis.report.payback_text import chance, name_of, price, saved, span
from analysis.report.texts import catalogue, say
from analysis.report.view import Blocks, Fields
from analysis.stats import disks
from analysis.stats.results import Results
from analysis.suite import records
from contract.assumptions import Assumptions

NOT_SHOWN = "no saving is shown"
NOTES = (
    "Times are named where the 95 % interval of the saving lies above 0. A payback is demonstrated "
    "where its probability within the drive's life is at least 97.5 %. Each line stands for "
    "itself: of 40 lines where nothing is saved, about one shows a saving by chance. Meter: half "
    "width of the 95 % interval of what its limits of error (type B) may add to or take from the "
    "saving, as a share of it. Together with the scatter "
    "between blocks it makes the interval of the saving, by the uncertainty budget below."
)
ON_THE_DRIVE = (
    "The software is that on the self-encrypting drive itself, which stands for the same drive "
    "without Opal: on another disk, more than the encryption would differ."
)


def tables(results: Results, a: Assumptions, paybacks: Sequence[Payback]) -> Blocks:
    """Return what is saved, when the drive is repaid, what it is worth, and the carbon."""
    worst = records.joint(p.origin for p in paybacks)
    life, unit = words.exact(a.life_years), a.currency
    no_unit = replace(a, currency="")
    first: Fields[Payback] = {
        "Workload": lambda p: name_of(p, a),
        "Against": lambda p: results.suite.label(p.against),
    }
    shown: dict[str, Fields[Payback]] = {
        "What the self-encrypting drive saves beside software encryption": {
            "Saving a run (J)": lambda p: saved(p.whole_saving_j),
            f"A year ({unit})": lambda p: span(p.saving_per_year),
            "Meter may be off by": lambda p: (
                words.NOTHING
                if p.meter_share is None
                else f"± {words.rounded(p.meter_share * 100)} %"
            ),
        },
        "Until the drive is repaid (95 % intervals)": {
            f"Years, with {words.exact(a.discount_rate * 100)} % interest": _years,
            "Runs, without": lambda p: words.span(p.runs),
        },
        f"What the drive is worth in its {life} years (95 % intervals)": {
            f"Break-even extra price ({unit})": lambda p: span(p.break_even_price),
            f"Break-even electricity ({unit}/kWh)": lambda p: span(p.break_even_electricity),
            f"Net present value ({unit})": lambda p: price(p.net_present_value, no_unit),
            "Probability of payback": lambda p: chance(p.probability),
        },
    }
    if a.grid_g_co2_per_kwh is not None:
        grid = f"a grid of {words.exact(a.grid_g_co2_per_kwh)} g/kWh"
        shown[f"CO₂ avoided on {grid}; making the drive is not counted"] = {
            "A year (kg)": lambda p: span(p.co2_kg_per_year),
            f"In {life} years (kg)": lambda p: span(p.co2_kg_in_life),
        }
    return view.join(
        view.table_of(caption, paybacks, {**first, **columns}, words=2, origin=worst, group=True)
        for caption, columns in shown.items()
    )


def _years(p: Payback) -> str:
    if not p.saves:
        return NOT_SHOWN
    return "never" if p.years is None else words.span(p.years)


MANY = 24  # lines of a table: more of them open only when asked for


def money_section(results: Results) -> Blocks:
    """Return the whole section.

    A sentence where the plan or the suite does not hold enough for it.
    """
    a = results.suite.assumptions
    if a is None:
        return view.paragraph(
            "The plan lacks its assumptions (price of the drive and of electricity, battery, life, "
            "runs a day), or one of them is unknown or no positive number: no payback is computed."
        )
    page = _declared(a)
    profiles = costs.profiles(results.suite, results.energy)
    by_workload = costs.paybacks(results.suite, results.energy)
    if not by_workload:
        page += view.answer(payback_text.money_line(results))
    else:
        page += _decision(results, a, profiles or by_workload)
        # Without the lines that the profile's already are.
        named = {(p.workload, p.against, p.runs_per_day) for p in profiles}
        others = [p for p in by_workload if (p.workload, p.against, p.runs_per_day) not in named]
        page += _lines(results, a, profiles, others)
    return page + _batteries(results, a) + _battery_hours(results, a)


def _battery_hours(results: Results, a: Assumptions) -> Blocks:
    """Return how long a battery lasts at the declared hour; nothing where none is declared."""
    if not a.battery_hour:
        return ()
    held = battery_hours(results.suite, results.energy)
    if not held:
        return view.paragraph(say("battery.lacking"))
    work = catalogue().tables["hourly_work"]
    each = [f"{words.exact(n)} {work[name]}" for name, n in a.battery_hour.items()]
    columns: Fields[BatteryHours] = {
        "Configuration": lambda b: results.suite.label(b.configuration),
        "Hours (95 % interval)": lambda b: span(b.hours),
        "Minutes lost (95 % interval)": lambda b: span(b.lost_min),
        "Idle": lambda b: f"{b.idle_share * 100:.0f} %",
        "n": lambda b: str(b.n),
    }
    caption = say("battery.hours", battery=words.exact(a.battery_wh), work=words.listed(each))
    worst = records.joint(b.origin for b in held)
    page = view.table_of(caption, held, columns, words=1, origin=worst)
    return page + view.paragraph(say("battery.key"), "key")


def _declared(a: Assumptions) -> Blocks:
    pair = ""
    if a.plain_price is not None:
        price_of_sed = payback_text.money(a.plain_price + a.sed_extra_price, a)
        percent = words.rounded(100 * a.sed_extra_price / a.plain_price)
        pair = f" ({price_of_sed} against {payback_text.money(a.plain_price, a)}, {percent} %)"
    text = (
        "Declared before the first run: the self-encrypting drive costs "
        f"{payback_text.money(a.sed_extra_price, a)} more{pair} and lives "
        f"{words.exact(a.life_years)} years; "
        f"electricity costs {words.exact(a.electricity_price_per_kwh)} {a.currency}/kWh; interest "
        f"is {words.exact(a.discount_rate * 100)} % a year; each workload alone is computed at "
        f"{payback_text.times(a.runs_per_day)} runs a day; a battery holds "
        f"{words.exact(a.battery_wh)} Wh."
    )
    if a.duty:
        each = [f"{payback_text.times(n)} × {words.name_of(name)}" for name, n in a.duty.items()]
        text += f" The duty profile is, each day: {', '.join(each)}."
    text += (
        " Savings are of the whole system's energy, software less self-encrypting drive, paired "
        "within blocks; their 95 % intervals, with the meter's error, are carried to the end."
    )
    return view.paragraph(text, "key")


def _decision(results: Results, a: Assumptions, paybacks: Sequence[Payback]) -> Blocks:
    """Return the answer in sentences that stand by themselves."""
    page = view.answer(payback_text.money_line(results))
    if lacking := payback_text.profile_lacking(results):
        page += view.paragraph(lacking)
    headline = costs.headline_payback(paybacks)
    if headline is not None:
        page += view.bullets(payback_text.basis(headline, a))
    return page


def _lines(
    results: Results, a: Assumptions, profiles: Sequence[Payback], others: Sequence[Payback]
) -> Blocks:
    """Return the profile's lines, then each workload's; those apart where they are many."""
    apart = bool(profiles) and len(others) > MANY
    first = profiles if apart else [*profiles, *others]
    notes = NOTES
    if not disks.across(results.suite, results.suite.sed, *costs.alternatives(results.suite)):
        notes += f" {ON_THE_DRIVE}"
    page = tables(results, a, first) + view.paragraph(notes, "key")
    if apart:
        by_itself = f"Each workload alone, {len(others)} lines"
        page += view.folded(by_itself, tables(results, a, others))
    return page


def _batteries(results: Results, a: Assumptions) -> Blocks:
    batteries = costs.batteries(results.suite, results.energy)
    columns: Fields[Battery] = {
        "Workload": lambda b: words.name_of(b.workload),
        "Configuration": lambda b: results.suite.label(b.configuration),
        "Energy a run (J)": lambda b: words.plus_minus(b.energy_j),
        "Runs (95 % interval)": lambda b: span(b.runs),
    }
    caption = f"Runs on a battery of {words.exact(a.battery_wh)} Wh"
    worst = records.joint(b.origin for b in batteries)
    held = view.table_of(caption, batteries, columns, words=2, origin=worst, group=True)
    if len(batteries) <= MANY:
        return held
    return view.folded(f"Runs on a battery, {len(batteries)} lines", held)
