"""What was left out or skipped."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.report import view, words
from analysis.report.view import Blocks, Fields
from analysis.stats.results import Results
from analysis.suite.records import Suite

ALL_OF_IT = "all of it"


@dataclass(frozen=True)
class Missing:
    """A part of an entry, or all of it, that could not be done in so many runs, and why."""

    workload: str
    configurations: tuple[str, ...]
    what: str
    reason: str
    runs: int

    @property
    def skipped(self) -> bool:
        return self.what == ALL_OF_IT


def missing(suite: Suite) -> list[Missing]:
    """Skipped runs first, then parts; runs of one reason together."""
    configurations: dict[tuple[str, str, str], list[str]] = {}
    for skipped in suite.skipped:
        key = skipped.workload, ALL_OF_IT, skipped.reason
        configurations.setdefault(key, []).append(skipped.configuration)
    for run in suite.runs:
        for part in run.left_out:
            key = run.workload, part.what, part.reason
            configurations.setdefault(key, []).append(run.configuration)
    return [
        Missing(workload, tuple(dict.fromkeys(where)), what, reason, len(where))
        for (workload, what, reason), where in configurations.items()
    ]


def sentence(suite: Suite) -> str:
    """In a line, or empty: which workloads were skipped, and how many parts were left out."""
    parts_missing = missing(suite)
    skipped = dict.fromkeys(words.name_of(part.workload) for part in parts_missing if part.skipped)
    parts = len({(part.workload, part.what) for part in parts_missing if not part.skipped})
    clauses = [f"skipped: {', '.join(skipped)}"] * bool(skipped)
    partly = dict.fromkeys(
        words.name_of(part.workload) for part in parts_missing if not part.skipped
    )
    clauses += [f"left out: {words.count(parts, 'part')} of {', '.join(partly)}"] * bool(parts)
    return "; ".join(clauses)


def left_out(results: Results) -> Blocks:
    """Return a row a part and reason; a sentence where nothing is missing."""
    columns: Fields[Missing] = {
        "Workload": lambda part: words.name_of(part.workload),
        "What": lambda part: part.what,
        "Reason": lambda part: part.reason,
        "Configurations": lambda part: ", ".join(map(results.suite.label, part.configurations)),
        "Runs": lambda part: str(part.runs),
    }
    caption = "Left out or skipped, and why: there are no figures of these"
    table = view.table_of(caption, missing(results.suite), columns, words=4, group=True)
    return table or view.paragraph("Nothing that was planned was left out or skipped.")
