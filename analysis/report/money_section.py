"""The section on money: assumptions, the decision, payback, batteries, carbon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analysis.money import costs
from analysis.money.costs import Battery, BatteryHours, battery_hours
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


def tables(results: Results, a: Assumptions, paybacks: Sequence[Payback]) -> Blocks:
    """Return tables of the saving, the time to payback, the drive's worth, and the carbon."""
    worst = records.worst_origin(p.origin for p in paybacks)
    life, unit = words.exact(a.life_years), a.currency
    no_unit = replace(a, currency="")
    first: Fields[Payback] = {
        "Workload": lambda p: name_of(p, a),
        "Against": lambda p: results.suite.label(p.against),
    }
    shown: dict[str, Fields[Payback]] = {
        "What the self-encrypting drive saves beside software encryption": {
            "Saving a run (J)": lambda p: saved(p.saving_j),
            f"A year ({unit})": lambda p: span(p.saving_per_year),
            "Meter may be off by": lambda p: (
                words.NOTHING
                if p.meter_share is None
                else f"± {words.rounded(p.meter_share * 100)} %"
            ),
        },
        "Until the drive is repaid (95 % intervals)": {
            f"Years, with {words.exact(a.discount_rate * 100)} % interest": lambda p: (
                ("never" if p.years is None else words.span(p.years)) if p.saves else NOT_SHOWN
            ),
            "Runs, without": lambda p: words.span(p.runs),
            "Hours of work, without": lambda p: words.span(p.hours),
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


MANY = 24  # lines of a table; a longer one is folded


def money_section(results: Results) -> Blocks:
    """Return the section on money; a sentence if the plan or the suite lacks data for it."""
    a = results.suite.assumptions
    if a is None:
        return view.paragraph(say("money.no-assumptions"))
    page = _declared(a)
    page += view.answer(payback_text.money_line(results))
    if by_workload := costs.paybacks(results.suite, results.energy):
        page += _paybacks(results, a, by_workload)
    return page + _batteries(results, a) + _battery_hours(results, a)


def _battery_hours(results: Results, a: Assumptions) -> Blocks:
    """Return how long a battery lasts at the declared hour; nothing if none is declared."""
    if not a.battery_hour:
        return ()
    held = battery_hours(results.suite, results.energy)
    if not held:
        return view.paragraph(say("battery.lacking"))
    work = catalogue().tables["hourly_work"]
    tasks = [f"{words.exact(n)} {work[name]}" for name, n in a.battery_hour.items()]
    columns: Fields[BatteryHours] = {
        "Configuration": lambda b: results.suite.label(b.configuration),
        "Hours (95 % interval)": lambda b: span(b.hours),
        "Minutes lost (95 % interval)": lambda b: span(b.lost_min),
        "Idle": lambda b: f"{b.idle_share * 100:.0f} %",
        "n": lambda b: str(b.n),
    }
    caption = say("battery.hours", battery=words.exact(a.battery_wh), work=words.listed(tasks))
    worst = records.worst_origin(b.origin for b in held)
    page = view.table_of(caption, held, columns, words=1, origin=worst)
    return page + view.paragraph(say("battery.key"), "key")


def _declared(a: Assumptions) -> Blocks:
    pair = ""
    if a.plain_price is not None:
        price_of_sed = payback_text.money(a.plain_price + a.sed_extra_price, a)
        percent = words.rounded(100 * a.sed_extra_price / a.plain_price)
        pair = f" ({price_of_sed} against {payback_text.money(a.plain_price, a)}, {percent} %)"
    duty = [f"{payback_text.times(n)} × {words.name_of(name)}" for name, n in a.duty.items()]
    return view.key(
        "money.declared",
        price=payback_text.money(a.sed_extra_price, a),
        pair=pair,
        life=words.exact(a.life_years),
        electricity=f"{words.exact(a.electricity_price_per_kwh)} {a.currency}/kWh",
        interest=words.exact(a.discount_rate * 100),
        runs=payback_text.times(a.runs_per_day),
        battery=words.exact(a.battery_wh),
        duty=f" The duty profile is, each day: {', '.join(duty)}." * bool(duty),
    )


def _paybacks(results: Results, a: Assumptions, by_workload: Sequence[Payback]) -> Blocks:
    """Return the basis, the profile's lines, then each workload's, folded if there are many."""
    page: Blocks = ()
    if lacking := payback_text.profile_lacking(results):
        page += view.paragraph(lacking)
    profiles = costs.profiles(results.suite, results.energy)
    headline = costs.headline_payback(results.suite, results.energy)
    if headline is not None:
        page += view.bullets(payback_text.basis(headline, a))
    # Lines that the profile has already are left out.
    named = {(p.workload, p.against, p.runs_per_day) for p in profiles}
    others = [p for p in by_workload if (p.workload, p.against, p.runs_per_day) not in named]
    fold = bool(profiles) and len(others) > MANY
    page += tables(results, a, profiles if fold else [*profiles, *others]) + view.key("money")
    drives = {p.drive for p in by_workload}
    if not disks.across(results.suite, *drives, *costs.alternatives(results.suite)):
        page += view.key("money.drive")
    if fold:
        summary = f"Each workload alone, {len(others)} lines"
        page += view.folded(summary, tables(results, a, others))
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
    worst = records.worst_origin(b.origin for b in batteries)
    held = view.table_of(caption, batteries, columns, words=2, origin=worst, group=True)
    if len(batteries) <= MANY:
        return held
    return view.folded(f"Runs on a battery, {len(batteries)} lines", held)
