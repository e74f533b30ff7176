"""The section on uncertainty budgets: what each headline figure's interval is made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from analysis.money import budgets, costs
from analysis.money.budgets import EVERY, Budgeted
from analysis.money.payback import PROFILE
from analysis.report import view, words
from analysis.report.tables import judged_component
from analysis.report.view import Blocks, Fields
from analysis.stats.budget import SCATTER, Budget, Row
from analysis.stats.contrasts import working
from analysis.stats.results import Results
from analysis.stats.stats import Span
from analysis.suite.assumptions import PAPER_WORKLOAD
from instrumentation.accuracy import NOT_STATED

TERMS = {
    SCATTER: "scatter between blocks",
    "power_factor": "power factor",
    "count": "last digit of the counter",
    "update": "age of the count",
}
KEY = (
    "By the Guide to the Expression of Uncertainty in Measurement (JCGM 100:2008). Type A is the "
    "scatter between blocks, type B what the instrument's maker or a calibration states. The "
    "intervals of joules, times, ratios and runs on a battery in the other sections count type A "
    "alone, and so do all verdicts; those of savings, money, and runs, hours and years until the "
    "drive is repaid count both, and follow from the budget of the saving. A gain is the same in "
    "all readings (correlation 1): it stays in joules and cancels in a ratio. Linearity, range, "
    "resolution and power factor are taken as independent in two readings (correlation 0), unless "
    "a calibration states otherwise."
)


def budget_section(found: Results) -> Blocks:
    """The key, a line for each headline figure, then each figure's terms and who states them."""
    headline = headline_budgets(found)
    if not headline:
        return ()
    page = view.paragraph(KEY, "key") + _summary(found, headline)
    page += view.bullets(_remarks(found, headline))
    for figure in dict.fromkeys(one.budget.figure for one in headline):
        alike = [one for one in headline if one.budget.figure == figure]
        parts = view.join(_terms(found, one) for one in alike)
        page += view.folded(f"Terms of each: {figure}", parts)
    return page + _stated(headline)


def headline_budgets(found: Results) -> list[Budgeted]:
    """Of the judged component: joules of one workload, ratios over all of them, one payback."""
    component, workload = judged_component(found.summary), _workload(found)
    here = [*budgets.joules(found), *budgets.ratios(found)]
    own = [one for one in here if (one.workload, one.component) == (workload, component)]
    joules = [one for one in own if not one.base and one.configuration in _named(found)]
    ratios = list(budgets.overall(found)) or [one for one in own if one.base]
    return [*joules, *ratios, *_paid(found)]


def _paid(found: Results) -> list[Budgeted]:
    """Of the payback that is named first."""
    suite, a = found.suite, found.suite.assumptions
    lines = costs.profiles(suite, found.energy) or costs.paybacks(suite, found.energy)
    first = costs.headline_payback(lines)
    return [] if first is None or a is None else list(budgets.of_payback(suite, first, a))


def _workload(found: Results) -> str:
    """The paper's where there is one."""
    there = working(found.suite) or found.suite.workloads
    return min(there, key=lambda name: name != PAPER_WORKLOAD, default="")


def _named(found: Results) -> set[str | None]:
    suite = found.suite
    return {suite.baseline, suite.sed, next(iter(costs.alternatives(suite)), None)}


def _summary(found: Results, headline: Sequence[Budgeted]) -> Blocks:
    rows = [(_of(found, one), one.budget) for one in headline]
    columns: Fields[tuple[str, Budget]] = {
        "Figure": lambda of: of[1].figure.capitalize(),
        "Of": lambda of: of[0],
        "Value": lambda of: _value(of[1], of[1].value),
        "Type A": lambda of: _bare(of[1], of[1].of_type("A")),
        "Type B": lambda of: _bare(of[1], of[1].of_type("B")),
        "Combined": lambda of: _bare(of[1], of[1].combined),
        "Degrees of freedom": lambda of: _freedom(of[1]),
        "Coverage factor": lambda of: words.number(of[1].factor, 2),
        "95 % interval": lambda of: _interval(of[1]),
        "Complete": lambda of: "no" if of[1].missing else "yes",
    }
    caption = "The headline figures with both types of uncertainty"
    return view.table_of(caption, rows, columns, words=2, origin=found.origin, group=True)


def _remarks(found: Results, headline: Sequence[Budgeted]) -> list[str]:
    """Which budgets are incomplete, and which ratios the meter's error leaves open."""
    lacking: dict[str, dict[str, None]] = {}
    for one in headline:
        for term in one.budget.missing:
            if term != SCATTER:
                lacking.setdefault(term, {})[one.budget.figure] = None
    said = [
        f"Incomplete: no limit is stated for the instrument's {named(term)}, so that the "
        f"uncertainty of these is larger by an unknown amount: {', '.join(figures)}."
        for term, figures in lacking.items()
    ]
    for one in headline:
        b = one.budget
        of_a = tuple(row for row in b.rows if row.evaluation == "A")
        scatter = replace(b, rows=of_a, carried=None)
        if b.log and _excludes_one(scatter.interval) and not _excludes_one(b.interval):
            said.append(
                f"{_of(found, one)}: the interval of the scatter alone does not hold 1, with the "
                "instrument's error it does. That error could explain the change."
            )
    return said


def _excludes_one(span: Span) -> bool:
    return span.low is not None and span.high is not None and not span.low <= 1 <= span.high


def _terms(found: Results, one: Budgeted) -> Blocks:
    b = one.budget
    columns: Fields[Row] = {
        "Term": lambda row: named(row.term),
        "Type": lambda row: row.evaluation,
        "Distribution": lambda row: row.distribution,
        "Half-width": lambda row: limit_of(row.half_width, row.unit),
        "Divisor": lambda row: words.number(row.divisor, 3),
        "Standard uncertainty": lambda row: limit_of(row.standard, row.unit),
        "Sensitivity": lambda row: _sensitivities(row, b),
        "Correlation": lambda row: (
            words.given(row.correlation) if len(row.sensitivities) > 1 else words.NOTHING
        ),
        "Contribution": lambda row: (
            NOT_STATED if row.contribution is None else _standard(b, row.contribution)
        ),
        "Share of variance": lambda row: _share(b.share(row)),
    }
    caption = (
        f"{b.figure.capitalize()}, {_of(found, one)}: {_value(b, b.value)} ({_interval(b)}); "
        f"combined {_standard(b, b.combined)} × {words.number(b.factor, 2)}"
    )
    return view.table_of(caption, b.rows, columns, words=3, origin=found.origin)


def _stated(headline: Sequence[Budgeted]) -> Blocks:
    """Who states each term."""
    stated = dict.fromkeys(
        (row.term, row.stated) for one in headline for row in one.budget.rows if row.stated
    )
    rows = [[named(term), str(source)] for term, source in stated]
    return view.table("Who states the instrument's terms", ["Term", "Stated by"], rows, words=2)


def _of(found: Results, one: Budgeted) -> str:
    label = found.suite.label
    names = {EVERY: "all workloads", PROFILE: "duty profile"}
    workload = names.get(one.workload) or words.name_of(one.workload)
    if not one.base:
        return f"{label(one.configuration)}, {workload}"
    joined = "to" if one.budget.log else "beside"
    return f"{label(one.configuration)} {joined} {label(one.base)}, {workload}"


def named(name: str) -> str:
    """A term for people."""
    return TERMS.get(name, name)


UNITS = {"1": "", "a": "years"}


def _value(b: Budget, value: float | None) -> str:
    """To the digits that two of the expanded uncertainty bear."""
    if value is None:
        return words.rounded(None)
    if b.log:
        return words.number(value, 4)
    text = words.number(value, words.decimals(b.expanded, b.value))
    return f"{text} {UNITS.get(b.unit, b.unit)}".rstrip()


def _bare(b: Budget, value: float) -> str:
    """As `_standard`, beside a value that has the unit."""
    return _standard(b, value).removesuffix(f" {UNITS.get(b.unit, b.unit)}")


def _standard(b: Budget, value: float) -> str:
    """An uncertainty in the figure's unit; of a ratio as a share of it."""
    if b.log:
        return f"{words.rounded(value * 100)} %"
    return f"{words.rounded(value)} {UNITS.get(b.unit, b.unit)}".rstrip()


def _interval(b: Budget) -> str:
    span = b.interval
    if span.low is None and span.high is None:
        return words.NO_INTERVAL
    return f"{_value(b, span.low).split(' ')[0]} to {_value(b, span.high)}"


def _freedom(b: Budget) -> str:
    return "∞" if not math.isfinite(b.freedom) else words.rounded(b.freedom)


def limit_of(value: float | None, unit: str) -> str:
    """In a term's own unit; shares in per cent."""
    if value is None:
        return NOT_STATED
    return f"{words.rounded(value * 100)} %" if unit == "1" else f"{words.rounded(value)} {unit}"


def _sensitivities(row: Row, b: Budget) -> str:
    """One for each reading: the different ones, or their ends where there are many."""
    unit = UNITS.get(b.unit, b.unit)
    per = {"1": unit, b.unit: "", "W": "s" if b.unit == "J" else f"{unit or 1}/W"}
    known = list(dict.fromkeys(words.rounded(c) for c in sorted(row.sensitivities)))
    text = " and ".join(known) if len(known) < 3 else f"{known[0]} to {known[-1]}"
    return f"{text} {per.get(row.unit, f'{unit or 1}/{row.unit}')}".rstrip()


def _share(value: float | None) -> str:
    return words.NOTHING if value is None else f"{words.number(value * 100, 1)} %"
