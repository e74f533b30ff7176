"""The section on money: the decision, savings and their reach, batteries, assumptions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import compress

from analysis.money import costs
from analysis.money.costs import BatteryHours
from analysis.money.payback import Payback
from analysis.report import payback_text, view, words
from analysis.report.payback_text import span
from analysis.report.texts import catalogue, say
from analysis.report.view import Blocks, Fields
from analysis.stats import disks
from analysis.stats.results import Results
from contract.assumptions import Assumptions


def money_section(results: Results) -> Blocks:
    """Return the section on money; a sentence if the plan or the suite lacks data for it."""
    a = results.suite.assumptions
    if a is None:
        return view.paragraph(say("money.no-assumptions"))
    page: Blocks = ()
    if lacking := payback_text.profile_lacking(results):
        page += view.paragraph(lacking)
    page += _savings(results, a) + _battery_hours(results, a)
    return page + _declared(a)


def _savings(results: Results, a: Assumptions) -> Blocks:
    """Return the savings of a machine and of the fleet, and what they rest on."""
    suite = results.suite
    paybacks = costs.headline_paybacks(suite, results.energy)
    if not paybacks:
        return ()
    first, unit, machines = paybacks[0], a.currency, words.grouped(a.machines)
    money = partial(payback_text.price, assumptions=replace(a, currency=""))
    fleet, grid = a.machines > 1, a.grid_g_co2_per_kwh is not None
    optional: Fields[Payback] = {
        f"{machines} machines, {unit} a year": lambda p: money(
            p.saving_per_year.scaled(a.machines)
        ),
        "kg of CO₂ a year": lambda p: span(p.co2_kg_per_year),
    }
    figures: Fields[Payback] = {
        "kWh a year": lambda p: span(p.kwh_per_year),
        f"{unit} a year": lambda p: money(p.saving_per_year),
        **dict(compress(optional.items(), (fleet, grid))),
        f"May cost more ({unit})": lambda p: money(p.break_even_price),
    }
    rows = [[name, *map(figure, paybacks)] for name, figure in figures.items()]
    heads = ["Instead of", *(suite.label(p.against) for p in paybacks)]
    caption = say("money.table", work=payback_text.work(first, a), life=words.exact(a.life_years))
    page = view.table(caption, heads, rows) + view.bullets(payback_text.basis(first, a))
    if disks.across(suite, *(p.drive for p in paybacks), *costs.alternatives(suite)):
        return page
    return page + view.key("money.drive") * (not first.assumed)


def _battery_hours(results: Results, a: Assumptions) -> Blocks:
    """Return how long a battery lasts, at the declared hour or at the suite's own work."""
    held = costs.battery_hours(results.suite, results.energy)
    if not held:
        return view.paragraph(say("battery.lacking")) if a.battery_hour else ()
    work = catalogue().tables["hourly_work"]
    tasks = [f"{words.exact(n)} {work[name]}" for name, n in a.battery_hour.items()]
    columns: Fields[BatteryHours] = {
        "Configuration": lambda b: results.suite.label(b.configuration),
        "Hours": lambda b: span(b.hours),
        "Minutes lost": lambda b: span(b.lost_min),
        "n": lambda b: str(b.n),
    }
    declared = "battery.hours" if tasks else "battery.passes"
    done = words.listed(tasks or ["the declared duty" if a.duty else "all workloads in turn"])
    caption = say(declared, battery=words.exact(a.battery_wh), work=done)
    page = view.table_of(caption, held, columns, words=1)
    return page + view.paragraph(say("battery.key"), "key")


def _declared(a: Assumptions) -> Blocks:
    pair = ""
    if a.plain_price is not None:
        price_of_sed = payback_text.money(a.plain_price + a.sed_extra_price, a)
        percent = words.rounded(100 * a.sed_extra_price / a.plain_price)
        pair = f" ({price_of_sed} against {payback_text.money(a.plain_price, a)}, {percent} %)"
    return view.key(
        "money.declared",
        price=payback_text.money(a.sed_extra_price, a),
        pair=pair,
        life=words.exact(a.life_years),
        electricity=f"{words.exact(a.electricity_price_per_kwh)} {a.currency}/kWh",
        interest=words.exact(a.discount_rate * 100),
        runs=payback_text.declared_work(a),
        battery=words.exact(a.battery_wh),
    )
