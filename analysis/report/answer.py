"""Sentences of several pages: comparisons, what was measured, and figures' origin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from analysis.report import view, words
from analysis.report.texts import catalogue, say
from analysis.report.view import Blocks, Verdict
from analysis.report.words import count, listed
from analysis.stats import disks
from analysis.stats.contrasts import Contrast, counted
from analysis.stats.results import Results
from analysis.suite.records import MEASURED, MODELLED, SYNTHETIC, SYSTEM, Suite
from contract.command_results import AnswerLine, AnswerTo

Fact = str | float | None | Sequence[str | float | None]
MOST = 6  # so many configurations are named, of more their number


def line(
    question: AnswerTo,
    code: str,
    facts: Mapping[str, Fact] | None = None,
    way: str = "",
    **fields: str,
) -> AnswerLine:
    """Return a line of the first page by the catalogue's sentence for its code and `way`.

    What stands between two ** there is the verdict.
    """
    key = ".".join(filter(None, ("answer", question, code, way)))
    _, verdict, reason = catalogue().texts[key].split("**")
    return AnswerLine(
        question, code, verdict.format(**fields), reason.format(**fields), facts or {}
    )


def on_their_disks(suite: Suite, base: str | None, other: str, verdict: Verdict) -> Verdict:
    """Return a verdict; between two disks with the words that it is on these as well."""
    if verdict.kind not in ("differs", "equivalent") or not disks.across(suite, base, other):
        return verdict
    return Verdict(say("verdict.two-disks", verdict=verdict), verdict.kind)


def banner(origin: str) -> Blocks:
    """Return the banner of figures that are not measured; nothing where they are."""
    if origin == MEASURED:
        return ()
    text = view.paragraph(say(f"banner.{SYNTHETIC if origin == SYNTHETIC else MODELLED}"))
    return view.note(f"{origin.capitalize()}. ", text, origin)


def measured(results: Results) -> str:
    """Return what was measured on which machine and disks, and by what, in one sentence."""
    suite = results.suite
    components = set(results.summary["component"])
    package = "package" if "package" in components else "package-0"
    parts = [
        words.name_of(name) for name in (SYSTEM, "drive", package, "dram") if name in components
    ]
    facts = [
        suite.machine.get("cpu.model", ""),
        say("answer.disks", disks=", ".join(disks.models(suite))),
    ]
    inside = "; ".join(facts[: 2 if disks.models(suite) else 1]).strip("; ")
    machine = suite.host or "one machine"
    means = [f"the meter {meter.kind}" for meter in suite.meters]
    means += ["RAPL"] * any(run.phases and run.phases[0].counters for run in suite.runs)
    names = suite.configurations
    labels = [suite.label(name) for name in names] or ["no configuration"]
    return say(
        "answer.measured",
        parts=listed([f"the {part}" for part in parts] or ["nothing"]),
        machine=f"{machine} ({inside})" if inside else machine,
        means=listed(list(dict.fromkeys(means)) or ["no source"]),
        work=count(len({run.workload for run in suite.compared_runs}), "workload"),
        configurations=listed(labels) if len(labels) <= MOST else f"{len(labels)} configurations",
    )


def void(suite: Suite) -> str:
    """`none void`, `3 runs void`."""
    return f"{count(len(suite.void), 'run')} void" if suite.void else "none void"


def against(results: Results, base: str | None, name: str | None) -> Contrast | None:
    """Return the contrast of two configurations, whichever way round it was declared."""
    for c in results.contrasts:
        if (c.base, c.other) == (base, name):
            return c
        if (c.base, c.other) == (name, base):
            comparison = None if c.comparison is None else c.comparison.inverted
            return replace(c, base=c.other, other=c.base, comparison=comparison)
    return None


NEAR = 1.1  # upper over lower limit: an interval of some ±5 %


def near(low: float | None, high: float | None) -> bool:
    """Whether limits of an unsettled ratio are close enough for the first page.

    Where they hold nearly anything it states only that, and the figures stand among the
    details.
    """
    return low is not None and high is not None and high <= NEAR * low


def over_all(suite: Suite) -> str:
    """Return what the figure over all workloads is called."""
    if not all(map(suite.counts_overall, suite.workloads)):
        return "Main workloads"
    return "All but idle" if len(counted(suite)) < len(suite.workloads) else "All workloads"
