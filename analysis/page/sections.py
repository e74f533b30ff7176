"""The report's sections, from the answer to the provenance; the notebook only calls them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from analysis import words
from analysis.derive import derive
from analysis.energy import ALL, BETWEEN
from analysis.figures import bars, timeline
from analysis.inference.stats import Estimate
from analysis.money import costs
from analysis.page import answer, markup, provenance, tradeoffs, trust_section
from analysis.page.markup import Html
from analysis.page.tables import headline_rows
from analysis.records import BASELINE, TAIL
from analysis.results import Results
from analysis.summary import block_values, compare_blocks, estimate_of, joint_origin

COLUMNS = ("system", "drive", "package-0", "dram")
HEADLINE = (
    "Workload",
    "Configuration",
    "System (J)",
    "Drive (J)",
    "CPU (J)",
    "RAM (J)",
    "Time (s)",
    "n",
    "System, ratio to plain",
    "Verdict",
)


@dataclass(frozen=True)
class Report:
    """All sections of the report of one suite; each returns HTML."""

    found: Results

    @classmethod
    def open(cls, folder: Path) -> Report:
        """Derive the suite's tables and write them. Raises SuiteError."""
        return cls(derive(folder))

    def head(self) -> Html:
        """Which suite this is, and the banner where figures are modelled."""
        suite = self.found.suite
        plan = suite.plan
        facts = [
            suite.host,
            f"blocks planned: {plan.get('blocks', '?')}",
            f"runs finished: {len(suite.runs)}, void: {len(suite.void)}",
            str(plan.get("created_wall", "")),
        ]
        page = markup.heading("What disk encryption costs in joules", 1, "top")
        page += markup.paragraph(f"Suite {suite.suite_id}", "suite")
        page += markup.paragraph(" · ".join(fact for fact in facts if fact), "facts")
        if self.found.origin == "modelled":
            page += markup.note("Modelled. ", markup.paragraph(answer.BANNER), "modelled")
        return page

    def answer(self) -> Html:
        """Three sentences, the headline table, the ratios in one picture, and what is missing."""
        found = self.found
        page = markup.join(markup.paragraph(s, "answer") for s in answer.sentences(found))
        if found.suite.problems:
            page += markup.note(
                "What this suite cannot say", markup.bullets(found.suite.problems), "warning"
            )
        page += self.headline()
        page += markup.picture(
            bars.forest(found.summary, found.suite),
            "Ratio of system energy to plain, paired within blocks, with 95 % intervals. Filled: "
            "a verdict (differs or equivalent). Hollow: inconclusive. Arrow: the interval goes on. "
            "Each interval stands for itself, not for all of them at once.",
            found.origin,
        )
        return page + self.contrasts()

    def contrasts(self) -> Html:
        """The comparisons that were declared before the first run, over all workloads."""
        found = self.found
        rows = []
        for base, other in found.suite.contrasts:
            over = costs.overall(found.suite, found.energy, base, other)
            rows.append(
                [
                    f"{words.name_of(other)} beside {words.name_of(base)}",
                    words.ratio(over.comparison if over else None),
                    str(over.comparison.n if over else 0),
                    str(len(over.workloads) if over else 0),
                    over.comparison.verdict if over else "inconclusive",
                ]
            )
        return markup.table(
            "Contrasts declared before the first run: system energy over all workloads but idle "
            "(geometric mean within each block)",
            ["Contrast", "Ratio [95 % interval]", "n", "Workloads", "Verdict"],
            rows,
            origin=found.origin,
        )

    def headline(self) -> Html:
        """Workload × configuration: joules of each source, ratio, verdict."""
        found = self.found
        page = markup.table(
            "Energy of one run without its tail: mean ± 95 % interval (Student t over blocks)",
            HEADLINE,
            headline_rows(found, COLUMNS),
            words=2,
            origin=found.origin,
            group=True,
        )
        margin = f"±{found.suite.margin * 100:g} %"
        page += markup.paragraph(
            "System and drive are the meter's, CPU package and RAM RAPL's: two sources, never "
            "added. Ratios carry their 95 % interval. differs: the interval excludes 1. "
            f"equivalent: the 90 % interval lies within {margin}. inconclusive: neither. "
            + ("Where n = 1 there is no interval." if _single(found) else ""),
            "key",
        )
        return page

    def workloads(self) -> Html:
        """Each workload: components, phases, figures, one run over time."""
        return markup.join(self.workload(name) for name in self.found.suite.workloads)

    def workload(self, name: str) -> Html:
        """One workload's tables and figures."""
        found = self.found
        energy = found.energy.filter(pl.col("workload") == name)
        page = markup.heading(words.name_of(name), 3, f"workload-{name}")
        if energy.is_empty():
            return page + markup.paragraph("No run of this workload finished.")
        page += self._components(name)
        page += self._phases(name)
        shown = []
        for plot in bars.PLOTS:
            if plot.workload != name:
                continue
            number = f"As the paper's Figure {plot.paper}. " if plot.paper else ""
            origin = joint_origin(energy)
            caption = f"{number}{plot.title}. Bars: means; whiskers: 95 % intervals; dots: blocks."
            shown.append(markup.picture(bars.draw(plot, energy, found.suite), caption, origin))
        page += markup.gallery(shown)
        run = timeline.typical_run(found.suite, name)
        if run is not None:
            caption = f"Power over the time of run {run.run_id}; phases shaded, the tail last."
            drawn = timeline.draw(found.suite, run, found.clock)
            page += markup.picture(drawn, caption, joint_origin(energy), wide=True)
        return page

    def _components(self, name: str) -> Html:
        rows = self.found.summary.filter(pl.col("workload") == name).rows(named=True)
        rank = {component: i for i, component in enumerate(COLUMNS)}
        order = {
            configuration: i for i, configuration in enumerate(self.found.suite.configurations)
        }
        rows.sort(key=lambda r: (order.get(r["configuration"], 99), rank.get(r["component"], 99)))
        return markup.table(
            f"{words.name_of(name)}: every component",
            [
                "Configuration",
                "Component (source)",
                "Energy (J)",
                "Mean power (W)",
                "Time (s)",
                "Ratio to plain",
                "Verdict",
            ],
            [
                [
                    words.name_of(row["configuration"]),
                    f"{words.name_of(row['component'])} ({row['source']})",
                    words.plus_minus(
                        Estimate(row["n"], row["mean_j"], row["ci_low_j"], row["ci_high_j"])
                    ),
                    words.number(row["mean_w"]),
                    words.number(row["mean_s"]),
                    "1"
                    if row["configuration"] == BASELINE
                    else words.ratio_of(row["ratio"], row["ratio_low"], row["ratio_high"]),
                    row["verdict"],
                ]
                for row in rows
            ],
            words=2,
            origin=self.found.origin,
            group=True,
        )

    def _phases(self, name: str) -> Html:
        """Energy and time by phase; the tail stands apart, it is in no sum."""
        found = self.found
        energy = found.energy.filter(pl.col("workload") == name)
        there = set(energy["component"])
        component = next((c for c in COLUMNS if c in there), energy["component"][0])
        phases = [p for p in energy["phase"].unique(maintain_order=True) if p not in {ALL, BETWEEN}]
        if len(phases) - (TAIL in phases) < 2:
            return markup.EMPTY
        rows = []
        for phase in phases:
            label = f"{phase} (in no sum)" if phase == TAIL else phase
            base = block_values(energy, name, BASELINE, component, phase=phase)
            for configuration in found.suite.configurations:
                own = block_values(energy, name, configuration, component, phase=phase)
                took = block_values(
                    energy, name, configuration, component, phase=phase, column="duration_s"
                )
                if not own and not took:
                    continue
                ratio = words.ratio(compare_blocks(base, own, found.suite.margin))
                rows.append(
                    [
                        label,
                        words.name_of(configuration),
                        words.plus_minus(estimate_of(own)),
                        words.plus_minus(estimate_of(took)),
                        "1" if configuration == BASELINE else ratio,
                    ]
                )
        return markup.table(
            f"{words.name_of(name)}: phases, energy of {words.name_of(component)}",
            ["Phase", "Configuration", "Energy (J)", "Time (s)", "Energy, ratio to plain"],
            rows,
            words=2,
            origin=joint_origin(energy),
            group=True,
        )

    def trust(self) -> Html:
        """How far to trust this."""
        return trust_section.trust_section(self.found)

    def money(self) -> Html:
        """Payback and batteries."""
        return tradeoffs.money_section(self.found)

    def published(self) -> Html:
        """The paper's figures beside ours, and its own arithmetic."""
        return tradeoffs.published_section(self.found)

    def provenance(self) -> Html:
        """Machine, kernel, packages, plan; where the time went."""
        return provenance.provenance_section(self.found)


def _single(found: Results) -> bool:
    return bool((found.summary["n"] < 2).any()) if len(found.summary) else False
