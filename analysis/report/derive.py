"""The one reckoning of `make report`: in the notebook's kernel, for the page and the terminal."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.suite.records import SuiteError

if TYPE_CHECKING:  # the command waits for the kernel, and needs none of it
    from analysis.stats.results import Results

TERMINAL_TEXT = "FDE_TERMINAL_TEXT"  # a file that the command line prints; none where unset
WIDTH = 100  # of the sentences; the table is wider where it must be


def derive(folder: Path) -> Results:
    """Derive a suite's tables and write its derived files. Raises SuiteError."""
    from analysis.stats.results import results, write

    found = results(folder)
    try:
        write(found)
        if path := os.environ.get(TERMINAL_TEXT):
            Path(path).write_text(terminal_text(found), encoding="utf-8")
    except OSError as error:
        raise SuiteError(unwritten(error)) from error
    return found


def terminal_text(found: Results) -> str:
    """What `make report` says: the table, the answer, and what the suite cannot say."""
    from analysis.report import answer, left_out, questions_section, tables
    from analysis.suite.origin import MEASURED

    parts = []
    if found.origin != MEASURED:
        parts.append(f"{found.origin.upper()}: {answer.banner(found.origin)}\n")
    parts.append(f"{tables.headline_text(found)}\n")
    notes = [f"note: {problem}" for problem in (*found.suite.problems, *found.doubts)]
    left = left_out.sentence(found.suite)
    notes += [f"note: {left}."] * bool(left)
    said = [*answer.sentences(found), *questions_section.sentences(found), *notes]
    parts += [textwrap.fill(sentence, WIDTH) for sentence in said]
    return "\n".join(parts)


def unwritten(error: OSError) -> str:
    """A file that could not be written, as a sentence."""
    where = Path(str(error.filename)).name if error.filename else "the report"
    why = error.strerror or "unknown error"
    return f"Cannot write {where}: {why}. What stood there before is as it was."
