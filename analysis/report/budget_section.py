"""The section on uncertainty: what is stated of the instruments, and where it counts."""

from __future__ import annotations

from analysis.money import budgets
from analysis.report import view, words
from analysis.report.texts import catalogue
from analysis.report.view import Blocks
from analysis.stats.budget import SCATTER
from analysis.stats.results import Results
from instrumentation.accuracy import NOT_STATED


def budget_section(results: Results) -> Blocks:
    """Return the key, who states which term, and which figures lack one."""
    budgeted = [*budgets.joules(results), *budgets.overall(results)]
    stated = dict.fromkeys(
        (row.term, row.stated) for figure in budgeted for row in figure.budget.rows if row.stated
    )
    if not budgeted:
        return ()
    page = view.key("budget")
    lacking = dict.fromkeys(
        (figure.source, term)
        for figure in budgeted
        for term in figure.budget.missing
        if term != SCATTER
    )
    page += view.bullets(
        f"Incomplete: no limit is stated for the {named(term)} of {source}, so that its figures "
        "are less certain by an unknown amount."
        for source, term in lacking
    )
    rows = [[named(term), source] for term, source in stated]
    return page + view.table(
        "Who states the instrument's terms", ["Term", "Stated by"], rows, words=2
    )


def named(name: str) -> str:
    """Return a term for people."""
    return catalogue().tables["terms_of_error"].get(name, name)


def limit_of(value: float | None, unit: str) -> str:
    """In a term's own unit; shares in per cent."""
    if value is None:
        return NOT_STATED
    return f"{words.rounded(value * 100)} %" if unit == "1" else f"{words.rounded(value)} {unit}"
