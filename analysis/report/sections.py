"""The sections of a suite's page, in their order."""

from __future__ import annotations

from dataclasses import dataclass
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
from analysis.report.figures import forest
from analysis.report.tables import PYRAPL_COMPONENTS, columns, headline_rows
from analysis.report.texts import catalogue, say
from analysis.report.view import Blocks, Link, Page, Section, Terms
from analysis.stats.results import Results
from instrumentation.sources.zones import not_counted

HEADLINE = ("Workload", "Configuration", "System (J)", "Drive (J)", "CPU (J)", "RAM (J)")


@dataclass(frozen=True)
class Report:
    """The report of one suite."""

    results: Results

    def page(self) -> Page:
        """Return the complete page."""
        results = self.results
        below = _sections(
            figures=self.figures(),
            workloads=self.workloads(),
            units=workload_section.units_section(results),
            responsiveness=workload_section.responsiveness_section(results) or None,
            money=money_section.money_section(results),
            budget=trust_section.budget_section(results) or None,
            published=published_section.published_section(results),
            steadiness=disks_section.disks_section(results)
            + steadiness_section.steadiness_section(results),
            trust=trust_section.trust_section(results),
            provenance=provenance.provenance_section(results),
            terms=terms(),
        )
        above = _sections(
            answer=self.answer() + view.index(below),
            questions=questions_section.questions_section(results) or None,
        )
        title = say("page.title", suite=results.suite.suite_id)
        return Page(title, say("page.heading"), self.head(), above + below)

    def head(self) -> Blocks:
        """Return the suite's facts, and the banner of figures that are not measured."""
        suite = self.results.suite
        when = suite.plan.created_wall.replace("T", " ")
        lab = words.LAB_MACHINES.get(suite.machine.get("lab_machine", ""), "")
        facts = [suite.host, suite.suite_id, when.replace("+00:00", " UTC")]
        facts.append(f"virtual lab on {lab}" if lab else "")
        # The processor's AES instructions change the cost of encryption.
        layers = (layer for run in suite.runs for layer in run.proof.layers)
        drivers = sorted({d for layer in layers if "aes" in (d := layer.cipher_driver or "")})
        facts.append(f"AES: {', '.join(drivers)}" if drivers else "")
        text = " · ".join(dict.fromkeys(f for f in facts if f))
        return view.paragraph(text, "facts") + answer.banner(self.results.origin)

    def answer(self) -> Blocks:
        """Return the first screen (sentence, picture, table, limits), then the answers' lines."""
        results = self.results
        # Commands name the folder without its place on this machine.
        folder, cwd = results.suite.folder.resolve(), Path.cwd()
        folder = folder.relative_to(cwd) if folder.is_relative_to(cwd) else Path(folder.name)
        lines = first_page.lines(results, folder)
        picture, table = tables.overall_picture(results), tables.matrix(results)
        limits = trust_section.limits_box(results)
        shown = view.columns(first_page.sentence(lines) + table, picture, limits)
        answers = first_page.blocks(lines, linked=True)
        unequal = [words.name_of(str(note.facts["workload"])) for note in results.work_notes]
        notes = [say("answer.same-work", workloads=words.listed(unequal))] if unequal else []
        return (
            shown
            + answers
            + view.paragraph(" ".join([answer.measurement_sentence(results), *notes]), "key")
        )

    def figures(self) -> Blocks:
        """Return all ratios in pictures, the contrasts with their tests, and the joules."""
        results = self.results
        component = words.name_of(results.family.component)
        caption = say("figures.picture", component=component)
        drawn = forest.draw(
            results.family.versus, results.suite, results.family.component, results.origin
        )
        page = view.join(
            view.picture(sheet, caption + forest.arrow_note(sheet), results.origin, wide=True)
            for sheet in drawn
        )
        page += questions_section.contrasts_section(results)
        shown = columns(results.summary)
        further = [words.name_of(name) for name in shown[len(HEADLINE) - 2 :]]
        further_heads = [f"{name[0].upper()}{name[1:]} (J)" for name in further]
        caption = say("figures.table")
        heads = [*HEADLINE, *further_heads, "Time (s)", "n", f"{component.capitalize()}, ratio"]
        rows = headline_rows(results, shown)
        page += view.table(
            caption, [*heads, "Verdict"], rows, words=2, origin=results.origin, group=True
        )
        page += tables.other_sources(results)
        first = results.suite.label(results.suite.baseline or "")
        of_disks = f"; of a disk without encryption against {first}" * results.suite.by_disk
        single = "Where n = 1 there is no interval." if (results.summary["n"] < 2).any() else ""
        baseline = results.suite.base_label or "the baseline"
        components = set(results.summary["component"])
        sources = [not_counted(components)]
        if results.suite.meters or not components:
            no_memory = "dram" not in components and {"package", "package-0"} & components
            sources = [say("figures.sources"), *[say("figures.no-memory")] * bool(no_memory)]
        sources += [say("figures.pyrapl")] * any(name in PYRAPL_COMPONENTS for name in shown)
        text = f"{' '.join(sources)} Ratios are against {baseline}{of_disks}. {single}"
        page += view.paragraph(text, "key")
        return page + view.bullets(note.sentence for note in results.work_notes)

    def workloads(self) -> Blocks:
        """Return an index, and each workload's components, phases, pictures and blocks."""
        names = self.results.suite.workloads
        index = (Link(words.name_of(name), f"#workload-{name}") for name in names)
        parts = (
            workload_section.workload_section(
                self.results, name, steadiness_section.flagged(self.results, name)
            )
            for name in names
        )
        return view.links(index, "Workloads") + view.join(parts)


def _sections(**shown: Blocks | None) -> tuple[Section, ...]:
    """Return sections by name, without those of None; the catalogue has their titles."""
    short = catalogue().texts
    return tuple(
        Section(say(f"section.{name}"), name, blocks, short.get(f"section.{name}.short", ""))
        for name, blocks in shown.items()
        if blocks is not None
    )


def terms() -> Blocks:
    """Return the block of explained terms."""
    return (Terms(catalogue().terms, say("term.close")),)
