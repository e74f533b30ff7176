"""The products of `fde report`: tables, the page, and the terminal's text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.flags import reserves
from analysis.money import budgets
from analysis.published.tables import csv_tables
from analysis.report import first_page, questions_section, render, tables, trust_section, view
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
    """The page's path, the terminal's text, and the results and answer of a single suite."""

    page: Path
    text: str
    results: Results | None = None
    answer: tuple[AnswerLine, ...] | None = None


def build(folder: Path, say: Callable[[str], None] = lambda _: None) -> Built:
    """Derive a suite's tables and write them, with those for spreadsheets and report.html.

    `say` gets the terminal's text before anything is written, because writing may fail. Raises
    SuiteError if the suite has nothing to report or a file cannot be written; an earlier file then
    stays unchanged.
    """
    derived = results(folder)
    path = folder / "report.html"
    lines = first_page.lines(derived, folder)
    text = render.text(terminal(derived, lines))
    say(text)
    try:
        write_tables(derived)
        files.write(folder / BUDGET, [csv_bytes(budgets.table(derived))])
        for name, content in csv_tables(derived).items():
            files.write(folder / name, [content])
        files.write(path, [render.html(Report(derived).page()).encode()])
        mark(derived, path.name)
    except OSError as error:
        where = Path(str(error.filename)).name if error.filename else "the report"
        why = error.strerror or "unknown error"
        raise SuiteError("page-unwritable", where=where, why=why) from error
    return Built(path, text, derived, lines)


def terminal(results: Results, lines: Sequence[AnswerLine]) -> Blocks:
    """Return the output of `fde report`: the table, then the first page's lines with remarks."""
    notes = [note.sentence for note in results.flags if not reserves(note.code)]
    notes += [note.sentence for note in results.work_notes]
    below = [*questions_section.sentences(results), *(f"note: {note}" for note in notes)]
    return (
        *first_page.origin_note(results.origin),
        tables.headline(results),
        *tables.legend(results),
        *first_page.blocks(lines, trust_section.remarks(results)),
        *view.join(map(view.paragraph, below)),
    )
