"""The sections of a suite's page, in their order."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from analysis.report import (
    answer,
    disks_section,
    first_page,
    money_section,
    provenance,
    published_section,
    questions_section,
    steadiness_section,
    tables,
    trust_section,
    view,
    words,
    workload_section,
)
from analysis.report.texts import catalogue, say
from analysis.report.view import Blocks, Page, Section
from analysis.stats.results import Results


@dataclass(frozen=True)
class Report:
    """The report of one suite."""

    results: Results

    def page(self) -> Page:
        """Return the complete page."""
        results = self.results
        sections = {
            "workloads": self.workloads(),
            "time": workload_section.time_section(results)
            + workload_section.responsiveness_section(results),
            "money": money_section.money_section(results),
            "trust": disks_section.disks_section(results)
            + steadiness_section.steadiness_section(results)
            + trust_section.trust_section(results),
            "published": published_section.published_section(results),
            "figures": self.figures(),
        }
        return Page(
            say("page.title", suite=results.suite.suite_id),
            say("page.heading"),
            self.facts(),
            self.head(),
            tuple(Section(say(f"section.{n}"), n, shown) for n, shown in sections.items() if shown),
            results.origin,
            catalogue().terms,
        )

    def head(self) -> Blocks:
        """Return the first screen: answers with a picture, trust, the next step and a table."""
        results = self.results
        # Commands name the folder without its place on this machine.
        folder, cwd = results.suite.folder.resolve(), Path.cwd()
        folder = folder.relative_to(cwd) if folder.is_relative_to(cwd) else Path(folder.name)
        lines = first_page.lines(results, folder)
        answers = tuple(line for line in lines if line.question not in first_page.ASKED)
        others = tuple(line for line in lines if line.question in first_page.ASKED)
        return (
            *view.columns(view.join(map(view.answer, answers)), tables.overall_picture(results)),
            *first_page.blocks(others, trust_section.remarks(results), "question"),
            *tables.matrix(results),
        )

    def facts(self) -> Blocks:
        """Return the machine, the date, the meters, and a mark if nothing was measured."""
        suite = self.results.suite
        when = suite.plan.created_wall
        try:
            when = f"{datetime.fromisoformat(when):%-d %b %Y}"
        except ValueError:
            when = when[:10]
        sources = [meter.kind for meter in suite.meters]
        sources += ["RAPL"] * any(run.phases and run.phases[0].counters for run in suite.runs)
        by = f"by {words.listed(list(dict.fromkeys(sources)))}" if sources else "by no meter"
        text = " · ".join(filter(None, [suite.host, when, by]))
        return (view.Facts(text, answer.mark(self.results.origin)),)

    def workloads(self) -> Blocks:
        """Return the declared questions, the contrasts, and a fold for each workload."""
        results = self.results
        page = questions_section.questions_section(results)
        page += questions_section.contrasts_section(results)
        page += questions_section.contrasts_notes(results) + workload_section.joules_key(results)
        for name in results.suite.workloads:
            flagged = steadiness_section.flagged(results, name)
            page += workload_section.workload_section(results, name, flagged)
        return page

    def figures(self) -> Blocks:
        """Return the files with all figures, other sources, meters, disks and provenance."""
        results = self.results
        return (
            *view.key("figures"),
            *tables.other_sources(results),
            *trust_section.meters_section(results),
            *provenance.provenance_section(results),
        )
