"""The answer in three sentences, the same on the page and on the terminal."""

from __future__ import annotations

from analysis import words
from analysis.inference.stats import Comparison
from analysis.money import costs
from analysis.money.payback import Assumptions, Payback, Span
from analysis.records import BASELINE
from analysis.results import Results

BANNER = (
    "Figures come from the virtual lab's power model; they show that the testbed works, "
    "and are no evidence about real hardware."
)


def sentences(found: Results) -> list[str]:
    """What the drive's encryption costs, what software's costs, and whether the drive is repaid."""
    return [hardware(found), software(found), money(found)]


def hardware(found: Results) -> str:
    """Opal beside plain over all workloads."""
    over = costs.overall(found.suite, found.energy, BASELINE, costs.SED)
    if over is None:
        return (
            "What encryption in the drive costs cannot be said: "
            f"{_lacking(found, BASELINE, costs.SED)}."
        )
    what = "encryption in the drive (Opal)"
    return (
        f"{_opening(what, [over.comparison])} changes the system's energy by "
        f"{words.change(over.comparison)} beside a plain disk, over {_scope(found, over)}: "
        f"{_verdict(over.comparison)}."
    )


def software(found: Results) -> str:
    """Each dm-crypt configuration beside plain."""
    names = costs.software(found.suite)
    overs = {name: costs.overall(found.suite, found.energy, BASELINE, name) for name in names}
    said = [
        f"with {words.name_of(name)} by {words.change(over.comparison)}, over "
        f"{_scope(found, over)}: {_verdict(over.comparison)}"
        for name, over in overs.items()
        if over is not None
    ]
    if not said:
        return (
            "What encryption in software costs cannot be said: "
            f"{_lacking(found, BASELINE, *names)}."
        )
    compared = [over.comparison for over in overs.values() if over is not None]
    opening = _opening("encryption in software", compared)
    return f"{opening} changes the system's energy {'; '.join(said)}."


def _opening(what: str, compared: list[Comparison]) -> str:
    """Who reads no further than the colon must not take a guess for a finding."""
    if all(comparison.verdict == "inconclusive" for comparison in compared):
        return f"What {what} costs is not settled: here it"
    return what[0].upper() + what[1:]


def money(found: Results) -> str:
    """The payback of the paper's workload."""
    assumptions = found.suite.assumptions
    if assumptions is None:
        return "Whether the drive is repaid cannot be said: the plan lacks its assumptions."
    payback = costs.headline_payback(costs.paybacks(found.suite, found.energy))
    if payback is None:
        return (
            "Whether the drive is repaid cannot be said: no block has the whole system's energy "
            "with and without it."
        )
    return payback_sentence(payback, assumptions)


def payback_sentence(payback: Payback, assumptions: Assumptions) -> str:
    """One payback in words."""
    a = assumptions
    against, workload = words.name_of(payback.against), words.name_of(payback.workload)
    extra = f"{words.given(a.sed_extra_price)} {a.currency}"
    life = f"{words.given(a.life_years)} years of life"
    if payback.runs is None or payback.hours is None or payback.years is None:
        saved = words.plus_minus(payback.saving_j, "J")
        saving = f"one run of “{workload}” saves {saved} over {against}"
        return f"No demonstrated payback: {saving}, {_why_not(payback, a, life)}."
    return (
        f"Against {against} the drive's {extra} more are repaid after "
        f"{words.rounded(payback.runs.mid)} runs of “{workload}”, "
        f"{words.rounded(payback.hours.mid)} hours of work; at {words.given(a.runs_per_day)} runs "
        f"a day that is {words.span(payback.years, 'years')}, "
        f"{_within(payback.years, a.life_years)} its {life}."
    )


def _why_not(payback: Payback, assumptions: Assumptions, life: str) -> str:
    if payback.saving_j.low is None:
        return f"of which nobody knows how sure it is ({words.NO_INTERVAL})"
    top = payback.break_even_price.high or 0.0
    if top == 0:
        return "so the drive needs more energy and no price is repaid"
    worth = (
        f"at most {words.rounded(top)} {assumptions.currency} of the "
        f"{words.given(assumptions.sed_extra_price)} {assumptions.currency} "
        f"would be repaid within its {life}"
    )
    return f"an interval that holds 0; even at its upper end {worth}"


def _within(years: Span, life_years: float) -> str:
    if years.high is not None and years.high <= life_years:
        return "within"
    return "longer than" if years.low is None or years.low > life_years else "perhaps longer than"


def _scope(found: Results, over: costs.Overall) -> str:
    planned, used = len(costs.working(found.suite)), len(over.workloads)
    some = f"{used} of {planned} workloads" if used < planned else _count(used, "workload")
    return f"{some} and {_count(over.comparison.n, 'block')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _verdict(ratio: Comparison) -> str:
    if ratio.low is None:
        return "inconclusive"
    margin = f"±{ratio.margin * 100:g} %"
    return {
        "differs": "they differ",
        "equivalent": f"equivalent within {margin}",
        "inconclusive": f"inconclusive, neither a difference nor equivalence within {margin}",
    }[ratio.verdict]


def _lacking(found: Results, *names: str) -> str:
    if not found.suite.runs:
        return "no run finished"
    if costs.SYSTEM not in set(found.summary["component"]):
        return "no meter shows the whole system's energy"
    done = {run.configuration for run in found.suite.runs}
    missing = [words.name_of(name) for name in names if name not in done]
    if missing:
        return f"there is no finished run of {' or '.join(missing)}"
    return "no block holds every workload on both sides"
