"""What `make report` computes, and the sections of its page; the notebook only calls them."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from analysis.report import (
    answer,
    disks_section,
    markup,
    money_section,
    provenance,
    published_section,
    questions_section,
    steadiness_section,
    tables,
    trust_section,
    words,
    workload_section,
)
from analysis.report.figures import forest
from analysis.report.markup import Html
from analysis.report.tables import columns, headline_rows, judged_component
from analysis.stats.results import Results
from analysis.stats.steadiness import Steadiness, steadiness
from analysis.suite.records import SuiteError

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
    from analysis.report import answer, missing_section, questions_section, tables
    from analysis.suite.records import MEASURED

    parts = []
    if found.origin != MEASURED:
        parts.append(f"{found.origin.upper()}: {answer.banner(found.origin)}\n")
    parts.append(f"{tables.headline_text(found)}\n")
    notes = [f"note: {problem}" for problem in (*found.suite.problems, *found.doubts)]
    left = missing_section.sentence(found.suite)
    notes += [f"note: {left}."] * bool(left)
    said = [*answer.sentences(found), *questions_section.sentences(found), *notes]
    parts += [textwrap.fill(sentence, WIDTH) for sentence in said]
    return "\n".join(parts)


def unwritten(error: OSError) -> str:
    """A file that could not be written, as a sentence."""
    where = Path(str(error.filename)).name if error.filename else "the report"
    why = error.strerror or "unknown error"
    return f"Cannot write {where}: {why}. What stood there before is as it was."


HEADLINE = (
    "Workload",
    "Configuration",
    "System (J)",
    "Drive (J)",
    "CPU (J)",
    "RAM (J)",
    "Time (s)",
    "n",
)


@dataclass(frozen=True)
class Report:
    """All sections of the report of one suite; each returns HTML."""

    found: Results

    @classmethod
    def open(cls, folder: Path) -> Report:
        """Derive the suite's tables and write them. Raises SuiteError."""
        return cls(derive(folder))

    @cached_property
    def component(self) -> str:
        """What the verdicts are of: the system where a meter saw it."""
        return judged_component(self.found.summary)

    @cached_property
    def steady(self) -> Sequence[Steadiness]:
        """Scatter, drift and what stands out, by workload."""
        found = self.found
        return steadiness(found.suite, found.energy, found.clock, self.component)

    @cached_property
    def twice(self) -> list[list[str]]:
        """What was known in two ways."""
        return trust_section.twice(self.found)

    def head(self) -> Html:
        """Which suite this is, and the banner where figures are not measured."""
        suite = self.found.suite
        when = str(suite.plan.get("created_wall", "")).replace("T", " ")
        lab = words.LAB_MACHINES.get(str(suite.before.get("lab_machine")), "")
        facts = [suite.host, suite.suite_id, when.replace("+00:00", " UTC")]
        facts.append(f"virtual lab on {lab}" if lab else "")
        page = markup.heading("What disk encryption costs in joules", 1, "top")
        page += markup.paragraph(" · ".join(dict.fromkeys(f for f in facts if f)), "facts")
        said = answer.banner(self.found.origin)
        if said:
            word = self.found.origin
            page += markup.note(f"{word.capitalize()}. ", markup.paragraph(said), word)
        return page

    def answer(self) -> Html:
        """Three sentences, the matrix, and how far to trust them: the first screen."""
        said = markup.join(markup.paragraph(s, "answer") for s in answer.sentences(self.found))
        box = trust_section.trust_box(self.found, self.twice, self.steady, self.found.canary)
        return markup.columns(said, tables.matrix(self.found), box)

    def questions(self) -> Html:
        """The declared questions, each with its answer; nothing where none was asked."""
        return questions_section.questions_section(self.found)

    def units(self) -> Html:
        """Joules per unit of work, and rates."""
        return workload_section.units_section(self.found)

    def figures(self) -> Html:
        """All ratios in pictures, the contrasts with their tests, and the joules themselves."""
        found = self.found
        what = words.name_of(self.component)
        caption = (
            f"Change of the {what}'s energy against the baseline, paired within blocks, with 95 % "
            "intervals. Filled: a verdict (differs or equivalent). Hollow: inconclusive. Arrow: "
            "the interval goes on. Each interval stands for itself, not for all of them at once."
        )
        page = markup.join(
            markup.picture(drawn, caption, found.origin, wide=True)
            for drawn in forest.draw(found.summary, found.suite, self.component)
        )
        page += questions_section.contrasts_section(found)
        page += markup.table(
            "Energy of one run without its tail: mean ± 95 % interval (Student t over blocks)",
            [*HEADLINE, f"{what.capitalize()}, ratio", "Verdict"],
            headline_rows(found, columns(found.summary)),
            words=2,
            origin=found.origin,
            group=True,
        )
        single = "Where n = 1 there is no interval." if _single(found) else ""
        baseline = found.suite.label(found.suite.baseline or "") or "the baseline"
        return page + markup.paragraph(
            "System and drive are the meter's, CPU package and RAM RAPL's: two sources, never "
            f"added. {_memory(found)}Verdicts are those of all rows as one family (Holm); ratios "
            f"are against {baseline}. {single}",
            "key",
        )

    def steadiness(self) -> Html:
        """The disks' state, drift, order, canary and flags."""
        return disks_section.disks_section(self.found) + steadiness_section.steadiness_section(
            self.found, self.steady, self.found.canary
        )

    def workloads(self) -> Html:
        """Each workload: time or power, components, phases, figures, one run over time, blocks."""
        names = self.found.suite.workloads
        index = [(words.name_of(name), f"workload-{name}") for name in names]
        parts = (
            workload_section.workload_section(
                self.found, name, steadiness_section.flagged(self.steady, name)
            )
            for name in names
        )
        return markup.links("Workloads", index) + markup.join(parts)

    def trust(self) -> Html:
        """How far to trust this, in full."""
        return trust_section.trust_section(self.found, self.twice)

    def money(self) -> Html:
        """Payback and batteries."""
        return money_section.money_section(self.found)

    def published(self) -> Html:
        """Published figures beside ours, and the paper's own arithmetic."""
        return published_section.published_section(self.found)

    def provenance(self) -> Html:
        """Machine, kernel, packages, plan; where the time went."""
        return provenance.provenance_section(self.found)


def _memory(found: Results) -> str:
    """That a machine's RAPL does not count its memory, as AMD's and many desktops' does not."""
    there = set(found.summary["component"])
    if "dram" in there or not {"package", "package-0"} & there:
        return ""
    return "This machine's RAPL has no DRAM zone: none of its figures holds the memory's joules. "


def _single(found: Results) -> bool:
    return bool((found.summary["n"] < 2).any()) if len(found.summary) else False
