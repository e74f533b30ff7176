"""The payback in words: the first page's line, and the basis of the decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from analysis.money import costs
from analysis.money.costs import HOURS_PER_DAY
from analysis.money.payback import DAYS_PER_YEAR, DEMONSTRATED, PROFILE, Payback
from analysis.report import words
from analysis.report.answer import Fact, line
from analysis.report.texts import catalogue, say
from analysis.stats import disks
from analysis.stats.results import Results
from analysis.suite.records import SYSTEM
from contract.assumptions import RANGED, Assumptions
from contract.command_results import AnswerLine
from contract.estimates import Estimate, ends

Label = Callable[[str], str]


def money_line(results: Results) -> AnswerLine:
    """Return whether the drive is repaid, by the duty profile, else by the first workload."""
    suite = results.suite
    if suite.assumptions is None:
        return line("payback", "unknown", why=say("answer.payback.no-assumptions"))
    paybacks = costs.headline_paybacks(suite, results.energy)
    if not paybacks:
        return line("payback", "unknown", why=_lacking(results))
    headline = paybacks[0]
    if {headline.drive, headline.against} & {run.configuration for run in suite.unfinished}:
        why = say("answer.payback.incomplete", blocks=suite.blocks_done)
        return line("payback", "unknown", why=why)
    disks_too = ""
    if disks.across(suite, headline.drive, headline.against):
        taken_off = costs.between_disks(suite, headline.drive, headline.against) is not None
        key = f"answer.payback.{'less' if taken_off else 'with'}-disks"
        disks_too = say(key, described=disks.described(suite))
    return payback_line(headline, suite.assumptions, suite.label, disks_too)


def payback_line(
    payback: Payback, assumptions: Assumptions, label: Label, disks_too: str = ""
) -> AnswerLine:
    """Return the line of a payback; `label` names configurations, `disks_too` is appended."""
    a, years, most = assumptions, payback.years, payback.break_even_price
    facts: dict[str, Fact] = {
        "workload": payback.workload,
        "against": payback.against,
        "drive": payback.drive,
        "assumed": payback.assumed,
        "component": payback.component,
        "blocks": payback.saving_j.n,
        "years": None if years is None else list(ends(years)),
        "life_years": a.life_years,
        "currency": a.currency,
        "extra_price": a.sed_extra_price,
        "at_most": list(ends(most)),
        "kwh_per_year": list(ends(payback.kwh_per_year)),
        "saving_per_year": list(ends(payback.saving_per_year)),
    }
    code, way = _judge(payback, a)
    extra = price(most, a)
    remarks = ""
    if payback.saves and not payback.assumed:
        remarks += say("answer.payback.most", most=extra)
    if payback.assumed:
        remarks += say("answer.payback.assumed")
    if payback.component != SYSTEM:
        remarks += say("answer.payback.part", part=words.name_of(payback.component))
    at = work(payback, a)
    return line(
        "payback",
        code,
        facts,
        way,
        years=words.span(years, "years"),
        life=words.exact(a.life_years),
        worth=words.rounded(most.high),
        price=money(a.sed_extra_price, a),
        most=extra,
        basis=say("answer.payback.basis", against=label(payback.against), work=at)
        + remarks
        + disks_too,
    )


def lines(results: Results) -> list[str]:
    """Return the savings against each software, for a terminal."""
    suite, a = results.suite, results.suite.assumptions
    shown: list[str] = []
    if a is None:
        return shown
    fleet = words.count(a.machines, "machine").replace(str(a.machines), words.grouped(a.machines))
    for saving in costs.savings(suite, results.energy):
        year = f"{span(saving.kwh_per_year, 'kWh')}, {price(saving.per_year, a)}"
        figures = {"a machine and year": year}
        if a.machines > 1:
            figures[f"{fleet}, a year"] = price(saving.fleet_per_year, a)
        if not saving.assumed:
            years = f"net in {words.exact(a.life_years)} years"
            figures[f"{fleet}, {years}"] = price(saving.fleet_net, a)
        figures["may cost more, at most"] = price(saving.at_most, a)
        if saving.battery_min is not None:
            figures["battery, minutes a charge"] = span(saving.battery_min, "more")
        shown.append(f"\nAgainst {suite.label(saving.against)}:")
        wide = max(map(len, figures))
        shown += [f"  {name:<{wide}}  {figure}" for name, figure in figures.items()]
    return shown


def basis(payback: Payback, assumptions: Assumptions) -> list[str]:
    """Return the basis of a payback: the machine after work, and ranges."""
    after = say(f"payback.{payback.after_work}")
    sentences = [say("payback.machine", after=after, work=work(payback, assumptions))]
    if payback.runs is not None and payback.hours is not None:
        years = payback.hours.scaled(1 / HOURS_PER_DAY / DAYS_PER_YEAR)
        sentences.append(
            say(
                "payback.repaid",
                runs=words.span(payback.runs),
                unit="days" if payback.workload == PROFILE else "runs",
                hours=words.span(payback.hours),
                nonstop=words.span(years),
                years="never" if payback.years is None else words.span(payback.years, "years"),
            )
        )
    if payback.probability is not None and not payback.assumed:
        names = catalogue().tables["ranges"]
        ranged = [names[name] for name in RANGED if name in assumptions.ranges]
        counts = f", and the declared ranges of {words.listed(ranged)}" if ranged else ""
        odds = chance(payback.probability)
        sentences.append(say("payback.probability", chance=odds, counts=counts))
    return sentences


def profile_lacking(results: Results) -> str:
    """Return why the duty profile has no line; empty if it has one."""
    suite = results.suite
    a = suite.assumptions
    if a is None or costs.profiles(suite, results.energy):
        return ""
    missing = [name for name in a.duty if name not in suite.workloads]
    if missing:
        names = " and ".join(f"“{words.name_of(name)}”" for name in missing)
        return say("payback.no-profile.not-run", names=names)
    day = costs.day_of_work(suite, results.energy)
    if not costs.fits_into_a_day(suite, results.energy, day):
        hours = costs.hours_a_day(suite, results.energy, day)
        return say("payback.too-long", work=work_of(day), hours=words.rounded(hours))
    return say("payback.no-profile") if a.duty else ""


def work(payback: Payback, assumptions: Assumptions) -> str:
    """Return the work behind a payback: `24 runs of “Kernel tree” a day`."""
    a, name = assumptions, payback.workload
    if a.hours_per_day is not None:
        one_by_one = "the declared duty" if a.duty else "all workloads in turn"
        what = f"“{words.name_of(name)}”" if name != PROFILE else one_by_one
        return f"{_hours(a.hours_per_day)} of {what} a day"
    runs = a.duty if name == PROFILE else {name: payback.runs_per_day}
    return f"{work_of(runs)} a day"


def work_of(runs: Mapping[str, float]) -> str:
    """Return the number of runs of each workload in words."""
    return words.listed(
        [
            f"{times(count)} {'run' if count == 1 else 'runs'} of “{words.name_of(name)}”"
            for name, count in runs.items()
        ]
    )


def declared_work(assumptions: Assumptions) -> str:
    """Return the declared work of a day: `6 hours of all workloads in turn`."""
    a = assumptions
    duty = work_of(a.duty) if a.duty else ""
    if a.hours_per_day is not None:
        return f"{_hours(a.hours_per_day)} of {duty or 'all workloads in turn'}"
    return duty or f"{times(a.runs_per_day)} runs of one workload"


def money(value: float, assumptions: Assumptions) -> str:
    """Return `25 USD`."""
    return f"{words.exact(value)} {assumptions.currency}".rstrip()


def span(value: Estimate | None, unit: str = "") -> str:
    """Return `0.021 (0.018 to 0.024) USD`, or that there is no interval."""
    if value is not None and value.low is None and value.high is None:
        return f"{f'{words.rounded(value.mean)} {unit}'.rstrip()} ({words.NO_INTERVAL})"
    return words.span(value, unit)


def price(value: Estimate, assumptions: Assumptions) -> str:
    """Return money with its interval, in as many digits as that bears; from 1 up to the cent."""
    unit = assumptions.currency
    ends = [end for end in (value.mean, value.low, value.high) if end is not None]
    if max(map(abs, ends)) < 1:
        return span(value, unit)
    if value.low is None or value.high is None:
        return f"{f'{words.number(value.mean, 2)} {unit}'.rstrip()} ({words.NO_INTERVAL})"
    places = min(2, words.decimals((value.high - value.low) / 2, value.mean))
    mid, low, high = (words.number(end, places) for end in ends)
    return f"{mid} ({low} to {high}) {unit}".rstrip()


def times(count: float) -> str:
    """Return how often: `24`, `0.5`, `12 000`."""
    return words.number(count, 0) if count == int(count) else words.exact(count)


def chance(probability: float | None) -> str:
    """Return a probability in per cent; never 0 or 100, which no measurement shows."""
    if probability is None:
        return words.NOTHING
    if probability < 0.001:
        return "below 0.1 %"
    if probability > 0.999:
        return "above 99.9 %"
    return f"{probability * 100:.{1 if min(probability, 1 - probability) < 0.1 else 0}f} %"


def _judge(payback: Payback, assumptions: Assumptions) -> tuple[str, str]:
    """Return the code of a payback, and the way of its sentence.

    Of a drive that was not measured, only the price that it may cost is stated.
    """
    top, chance_ = payback.break_even_price.high, payback.probability
    if not payback.saves:
        if top == 0:
            return "does-not-pay", "saving"
        if payback.assumed or top is None or top >= assumptions.sed_extra_price:
            return "unsettled", "assumed" if payback.assumed else "saving"
        return "not-shown", ""
    if payback.assumed or payback.demonstrated:
        return "at-most" if payback.assumed else "pays", ""
    if payback.years is None:
        return "does-not-pay", "never"
    unlikely = chance_ is not None and chance_ <= 1 - DEMONSTRATED
    return "does-not-pay" if unlikely else "unsettled", ""


def _lacking(results: Results) -> str:
    suite, energy = results.suite, results.energy
    day = costs.day_of_work(suite, energy)
    if not costs.fits_into_a_day(suite, energy, day):
        return f"the declared work ({work_of(day)}) takes more than a day a day"
    if not costs.alternatives(suite):
        return "the plan has no encryption in software on a disk without encryption in its hardware"
    if suite.sed is None and suite.baseline is None:
        return "the plan has neither a self-encrypting drive nor a disk without encryption"
    return "no block has the whole system's energy with and without it"


def _hours(hours: float) -> str:
    return "1 hour" if hours == 1 else f"{words.exact(hours)} hours"
