"""The sections of a suite's page, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from analysis.report import (
    answer,
    budget_section,
    disks_section,
    money_section,
    other_sources,
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
from analysis.report.figures import forest
from analysis.report.tables import columns, headline_rows, judged_component
from analysis.report.texts import catalogue, say
from analysis.report.view import Blocks, Link, Meaning, Page, Section, Terms
from analysis.stats.results import Results
from analysis.stats.steadiness import Steadiness, steadiness
from instrumentation.sources.zones import not_counted

HEADLINE = (
    "Workload",
    "Configuration",
    "System (J)",
    "Drive (J)",
    "CPU (J)",
    "RAM (J)",
)
# What the reader of its column has to know (docs/metrology.md).
PYRAPL_KEY = (
    "pyRAPL's columns are the same counters once more, by a library that does not follow a counter "
    "which goes round: such a phase has no figure there. "
)


@dataclass(frozen=True)
class Report:
    """What the report of one suite shows."""

    found: Results

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
        """Cross-checks."""
        return list(trust_section.twice(self.found))

    def page(self) -> Page:
        """The whole page."""
        units = workload_section.units_section(self.found)
        money = money_section.money_section(self.found)
        budget = budget_section.budget_section(self.found)
        published = published_section.published_section(self.found)
        below = (
            _section("figures", self.figures()),
            _section("workloads", self.workloads()),
            _section("units", units),
            _section("money", money),
            *[Section(budget_section.TITLE, "budget", budget, say("section.budget.short"))]
            * bool(budget),
            _section("published", published),
            _section("steadiness", self.steadiness()),
            _section("trust", self.trust()),
            _section("provenance", provenance.provenance_section(self.found)),
            _section("terms", terms()),
        )
        first = _section("answer", self.answer() + view.index(below))
        asked = questions_section.questions_section(self.found)
        questions = [_section("questions", asked)] * bool(asked)
        return Page(
            say("page.title", suite=self.found.suite.suite_id),
            say("page.heading"),
            self.head(),
            (first, *questions, *below),
        )

    def head(self) -> Blocks:
        """Which suite this is, and the banner where figures are not measured."""
        suite = self.found.suite
        when = str(suite.plan.get("created_wall", "")).replace("T", " ")
        lab = words.LAB_MACHINES.get(str(suite.before.get("lab_machine")), "")
        facts = [suite.host, suite.suite_id, when.replace("+00:00", " UTC")]
        facts.append(f"virtual lab on {lab}" if lab else "")
        text = " · ".join(dict.fromkeys(f for f in facts if f))
        return view.paragraph(text, "facts") + answer.banner(self.found.origin)

    def answer(self) -> Blocks:
        """Three paragraphs, a picture, the matrix, and how far to trust them: the first screen."""
        box = trust_section.trust_box(self.found, self.twice, self.steady, self.found.drift_check)
        shown = tables.overall_picture(self.found) + tables.matrix(self.found)
        return view.columns(answer.first_screen(self.found), shown, box)

    def figures(self) -> Blocks:
        """All ratios in pictures, the contrasts with their tests, and the joules themselves."""
        found = self.found
        what = words.name_of(self.component)
        caption = (
            f"Change of the {what}'s energy against the baseline, paired within blocks, with 95 % "
            "intervals. Filled: a verdict (significant change or equivalent). Hollow: "
            "inconclusive. Arrow: the interval continues. Each interval stands for itself, not "
            "for all of them at once."
        )
        page = view.join(
            view.picture(drawn, caption, found.origin, wide=True)
            for drawn in forest.draw(found.summary, found.suite, self.component)
        )
        page += questions_section.contrasts_section(found)
        shown = columns(found.summary)
        by_pyrapl = [f"{words.name_of(name)} (J)" for name in shown[len(HEADLINE) - 2 :]]
        page += view.table(
            "Energy of one run without its tail: mean ± 95 % interval (Student t over blocks)",
            [*HEADLINE, *by_pyrapl, "Time (s)", "n", f"{what.capitalize()}, ratio", "Verdict"],
            headline_rows(found, shown),
            words=2,
            origin=found.origin,
            group=True,
        )
        page += other_sources.section(found)
        first = found.suite.label(found.suite.baseline or "")
        of_disks = f"; of a disk without encryption against {first}" * found.suite.by_disk
        single = "Where n = 1 there is no interval." if (found.summary["n"] < 2).any() else ""
        baseline = found.suite.base_label or "the baseline"
        there = set(found.summary["component"])
        sources = (
            "System and drive are the meter's, CPU package and RAM RAPL's: two sources, never "
            f"added. {_memory(found)}"
            if found.suite.meters or not there
            else f"{not_counted(there)} "
        )
        return page + view.paragraph(
            f"{sources}{PYRAPL_KEY * bool(by_pyrapl)}Verdicts are those of all rows as one family: "
            "an interval is its row's own, and may leave out 1 where the row is not settled among "
            "so many. "
            f"Ratios are against {baseline}{of_disks}. {single}",
            "key",
        )

    def steadiness(self) -> Blocks:
        """The disks' state, drift, order, drift_check and flags."""
        return disks_section.disks_section(self.found) + steadiness_section.steadiness_section(
            self.found, self.steady, self.found.drift_check
        )

    def workloads(self) -> Blocks:
        """Each workload: time or power, components, phases, figures, one run over time, blocks."""
        names = self.found.suite.workloads
        index = (Link(words.name_of(name), f"#workload-{name}") for name in names)
        parts = (
            workload_section.workload_section(
                self.found, name, steadiness_section.flagged(self.steady, name)
            )
            for name in names
        )
        return view.links(index, "Workloads") + view.join(parts)

    def trust(self) -> Blocks:
        """How far to trust this, in full."""
        return trust_section.trust_section(self.found, self.twice)


def _section(name: str, blocks: Blocks) -> Section:
    """A section with its title, and its name in the index, from the catalogue."""
    short = catalogue().texts.get(f"section.{name}.short", "")
    return Section(say(f"section.{name}"), name, blocks, short)


def terms() -> Blocks:
    """The terms explained."""
    found = catalogue()
    meanings = tuple(Meaning(term.name, term.anchor, term.text) for term in found.terms)
    return (Terms(meanings, found.say("term.close")),)


def _memory(found: Results) -> str:
    """That a machine's RAPL does not count its memory, as AMD's and many desktops' does not."""
    there = set(found.summary["component"])
    if "dram" in there or not {"package", "package-0"} & there:
        return ""
    return "This machine's RAPL has no DRAM zone: none of its figures holds the memory's joules. "
