"""What a suite was to measure and could not: runs that were skipped, and parts left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from analysis.report import words
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
    found: dict[tuple[str, str, str], list[str]] = {}
    for workload, configuration, what, reason in _each(suite):
        found.setdefault((workload, what, reason), []).append(configuration)
    return [
        Missing(workload, tuple(dict.fromkeys(where)), what, reason, len(where))
        for (workload, what, reason), where in found.items()
    ]


def sentence(suite: Suite) -> str:
    """In a line, or empty: which workloads were skipped, and how many parts were left out."""
    found = missing(suite)
    skipped = dict.fromkeys(words.name_of(one.workload) for one in found if one.skipped)
    parts = len({(one.workload, one.what) for one in found if not one.skipped})
    said = [f"skipped: {', '.join(skipped)}"] * bool(skipped)
    said += [f"left out: {parts} part{'s' * (parts != 1)} of {_of(found)}"] * bool(parts)
    return "; ".join(said)


def _of(found: list[Missing]) -> str:
    names = (words.name_of(one.workload) for one in found if not one.skipped)
    return ", ".join(dict.fromkeys(names))


def _each(suite: Suite) -> Iterator[tuple[str, str, str, str]]:
    for skipped in suite.skipped:
        yield skipped.workload, skipped.configuration, ALL_OF_IT, skipped.reason
    for run in suite.runs:
        for one in run.left_out:
            yield run.workload, run.configuration, one.what, one.reason
