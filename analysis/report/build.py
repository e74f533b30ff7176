"""What `make report` makes of a suite: tables, the page, and the terminal's text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.flags import reserves
from analysis.money import budgets
from analysis.report import (
    answer,
    first_page,
    missing_section,
    questions_section,
    render,
    tables,
    view,
)
from analysis.report.sections import Report
from analysis.report.view import Blocks
from analysis.spreadsheet import csv_bytes
from analysis.stats.results import Results, mark, results
from analysis.stats.results import write as write_tables
from analysis.suite.records import SuiteError
from contract import files
from contract.command_results import AnswerLine

BUDGET = "budget.csv"


@dataclass(frozen=True)
class Built:
    """Where the page is, what the terminal is told, and of one suite its results and answer."""

    page: Path
    text: str
    found: Results | None = None
    answer: tuple[AnswerLine, ...] | None = None


def build(folder: Path, say: Callable[[str], None] = lambda _: None) -> Built:
    """Derive a suite's tables, write them, budget.csv among them, and report.html beside it.

    `say` gets the terminal's text before anything is written, which may fail. Raises SuiteError
    where the suite has nothing to report from or a file cannot be written; a file from before then
    stays as it was.
    """
    found = results(folder)
    path = folder / "report.html"
    lines = first_page.lines(found, folder)
    text = render.text(terminal(found, lines))
    say(text)
    try:
        write_tables(found)
        files.write(folder / BUDGET, [csv_bytes(budgets.table(found))])
        files.write(path, [render.html(Report(found).page()).encode()])
        mark(found, path.name)
    except OSError as error:
        where = Path(str(error.filename)).name if error.filename else "the report"
        why = error.strerror or "unknown error"
        raise SuiteError(
            f"Cannot write {where}: {why}. What stood there before is as it was."
        ) from error
    return Built(path, text, found, lines)


def terminal(found: Results, lines: Sequence[AnswerLine]) -> Blocks:
    """What `make report` says: the table, the first page's lines, what the suite cannot say."""
    notes = [*found.suite.problems, *found.reservations]
    notes += [note.sentence for note in found.flags if not reserves(note.code)]
    left = missing_section.sentence(found.suite)
    notes += [f"{left}."] * bool(left)
    said = [*questions_section.sentences(found), *(f"note: {note}" for note in notes)]
    details = view.join(map(view.paragraph, said))
    above = (*answer.banner(found.origin), tables.headline(found))
    return above + first_page.blocks(lines) + details
