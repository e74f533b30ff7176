"""Sentences of several pages: comparisons, and the origin of figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis.report.texts import catalogue, say
from analysis.report.view import Verdict
from analysis.stats import disks
from analysis.stats.contrasts import Contrast, counted
from analysis.stats.results import Results
from analysis.suite.records import MEASURED, MODELLED, SYNTHETIC, Suite
from contract.command_results import AnswerLine, AnswerTo

Fact = str | float | None | Sequence[str | float | None]


def line(
    question: AnswerTo,
    code: str,
    facts: Mapping[str, Fact] | None = None,
    way: str = "",
    **fields: str,
) -> AnswerLine:
    """Return a line of the first page from the catalogue's sentence for its code and `way`.

    The part of the sentence between two ** is the verdict.
    """
    key = ".".join(filter(None, ("answer", question, code, way)))
    _, verdict, reason = catalogue().texts[key].split("**")
    return AnswerLine(
        question, code, verdict.format(**fields), reason.format(**fields), facts or {}
    )


def verdict_on_disks(suite: Suite, base: str | None, other: str, verdict: Verdict) -> Verdict:
    """Return a verdict, with a remark if it also depends on two disks."""
    if verdict.kind not in ("differs", "equivalent") or not disks.across(suite, base, other):
        return verdict
    return Verdict(say("verdict.two-disks", verdict=verdict), verdict.kind)


def mark(origin: str) -> str:
    """Return the mark of figures that are not measured; empty for measured ones."""
    if origin == MEASURED:
        return ""
    return say(f"mark.{SYNTHETIC if origin == SYNTHETIC else MODELLED}")


def contrast_of(results: Results, base: str | None, name: str | None) -> Contrast | None:
    """Return the contrast of two configurations, declared in either direction."""
    for c in results.contrasts:
        if (c.base, c.other) == (base, name):
            return c
        if (c.base, c.other) == (name, base):
            return c.inverted
    return None


NEAR = 1.1  # upper over lower limit: an interval of some ±5 %


def is_narrow(low: float | None, high: float | None) -> bool:
    """Return whether the interval of an unsettled ratio is narrow enough for the first page.

    Of a wider one the page states only that it is unsettled; the details have the figures.
    """
    return low is not None and high is not None and high <= NEAR * low


def overall_name(suite: Suite) -> str:
    """Return the name of the figure over all workloads."""
    if not all(map(suite.counts_overall, suite.workloads)):
        return "Main workloads"
    return "All but idle" if len(counted(suite)) < len(suite.workloads) else "All workloads"
