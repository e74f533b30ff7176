"""A workload's joules by component, phase, time and unit of work, and latencies."""

from __future__ import annotations

from itertools import groupby

import polars as pl

from analysis.energy.energy import ALL, BETWEEN
from analysis.report import view, words
from analysis.report.figures import bars, blocks, timeline
from analysis.report.texts import say
from analysis.report.view import Blocks, Fields
from analysis.stats.comparison import Comparison
from analysis.stats.responsiveness import NAMES, delays
from analysis.stats.results import Results
from analysis.stats.summary import (
    COMPONENTS,
    PerUnit,
    SummaryRow,
    block_values,
    compare_pairs,
    estimate_of,
    first_component,
    joint_origin,
    per_unit,
)
from analysis.suite.records import TAIL
from contract.estimates import Estimate

PREFIXES = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def units_section(results: Results) -> Blocks:
    """Return the energy per unit of work by workload and configuration."""
    component = results.family.component
    rows: list[tuple[str, PerUnit]] = []
    for name in results.suite.workloads:
        units = per_unit(results.suite, results.energy, name, component)
        whole_runs = [row for row in units if row.phase == ALL]
        rows += [(name, row) for row in whole_runs if row.unit == whole_runs[0].unit]
    if not rows:
        return view.paragraph("No run counted the work that it did.")
    columns: Fields[tuple[str, PerUnit]] = {
        "Workload": lambda row: words.name_of(row[0]),
        "Configuration": lambda row: results.suite.label(row[1].configuration),
        "Per": lambda row: row[1].unit.singular,
        "Energy": lambda row: joules(row[1].energy_j, row[1].unit.singular),
        "Energy, change [95 %]": lambda row: _change(
            results, row[1].ratio, row[0], row[1].configuration
        ),
        "Rate": lambda row: words.plus_minus(row[1].rate, row[1].unit.rate),
        "CPU use": lambda row: _mean(row[1].cpu_share, 100, ".1f", "%"),
        "Disk reads": lambda row: _mean(row[1].disk_reads, 1, ".2f", "B/B"),
        "Disk writes": lambda row: _mean(row[1].disk_writes, 1, ".2f", "B/B"),
    }
    caption = f"Energy of the {words.name_of(component)} per unit of work, and how fast it went"
    origin = joint_origin(results.energy.filter(component=component))
    page = view.table_of(caption, rows, columns, words=3, origin=origin, group=True)
    return page + view.key("units")


def _change(results: Results, c: Comparison | None, workload: str, configuration: str) -> str:
    """Return a change with the interval of its row; empty for the baseline."""
    if c is None or configuration == results.suite.baseline:
        return ""
    return words.change_in(results.family.shown(c, workload, configuration))


def _mean(value: Estimate | None, factor: int, digits: str, unit: str) -> str:
    return f"{value.mean * factor:{digits}} {unit}" if value else words.NOTHING


def joules(value: Estimate | None, unit: str) -> str:
    """Return `1.23 ± 0.04 mJ/MB`, with the prefix that leaves a digit before the point."""
    if value is None:
        return words.NOTHING
    factor, prefix = next(((f, p) for f, p in PREFIXES if abs(value.mean) >= f), PREFIXES[-1])
    return words.plus_minus(value.scaled(1 / factor), f"{prefix}J/{unit}")


def workload_section(results: Results, name: str, flagged: set[tuple[int, str]]) -> Blocks:
    """Return a workload's pictures and tables; `flagged` (block, configuration) are ringed."""
    energy = results.energy.filter(workload=name)
    page = view.heading(words.name_of(name), 3, f"workload-{name}")
    if energy.is_empty():
        reasons = list(dict.fromkeys(r.reason for r in results.suite.skipped if r.workload == name))
        why = f"Skipped: {' '.join(reasons)}" if reasons else "No run of this workload finished."
        return page + view.paragraph(why)
    component = first_component(COMPONENTS, set(energy["component"]))
    origin = joint_origin(energy)
    dots = "; dots: blocks" if energy["block"].n_unique() <= bars.DOTS else ""
    for plot in bars.plots_of(name):
        number = f"As the paper's Figure {plot.paper}. " if plot.paper else ""
        caption = f"{number}{plot.title}. Bars: means; whiskers: 95 % intervals{dots}."
        page += view.picture(bars.draw(plot, energy, results.suite), caption, origin, wide=True)
    if (run := timeline.typical_run(results.suite, name)) is not None:
        curves = timeline.curves(results.suite, run, results.clock)
        drawn = timeline.draw(results.suite, run, curves)
        caption = f"Power over the time of run {run.run_id}; phases shaded, the tail last, "
        caption += "gaps left open."
        page += view.picture(drawn, caption, origin, True, timeline.as_json(run, curves))
    ringed = " Ringed: flagged as standing out; they count like all others." if flagged else ""
    caption = (
        f"Energy of the {words.name_of(component)} in each block, against the configuration's own "
        "mean (bold: all of them together, where drift shows) and against the baseline's in the "
        f"same block.{ringed}"
    )
    drawn = blocks.draw(results.suite, energy, name, component, flagged)
    page += view.picture(drawn, caption, origin, wide=True)
    page += view.folded("Every component", _components(results, name))
    return page + view.folded("Every phase", _phases(results, energy, name, component))


def _components(results: Results, name: str) -> Blocks:
    rows = [row for row in results.summary_rows if row.workload == name]
    rank = {component: i for i, component in enumerate(COMPONENTS)}
    order = {configuration: i for i, configuration in enumerate(results.suite.configurations)}
    rows.sort(key=lambda r: (order.get(r.configuration, 99), rank.get(r.component, 99)))
    columns: Fields[SummaryRow] = {
        "Configuration": lambda row: results.suite.label(row.configuration),
        "Component (source)": lambda row: f"{words.name_of(row.component)} ({row.source})",
        "Energy (J)": lambda row: words.plus_minus(row.joules),
        "Mean power (W)": lambda row: words.number(row.mean_w),
        "Time (s)": lambda row: words.number(row.mean_s),
        "Change [95 % interval]": lambda row: (
            ""
            if row.configuration == results.suite.baseline
            else words.change_of(row.ratio, row.ratio_low, row.ratio_high)
        ),
    }
    caption = f"{words.name_of(name)}: every component"
    return view.table_of(caption, rows, columns, words=2, origin=results.origin, group=True)


def _phases(results: Results, energy: pl.DataFrame, name: str, component: str) -> Blocks:
    """Return energy and time by phase with intervals; the tail is in no sum."""
    suite = results.suite
    phases = [p for p in energy["phase"].unique(maintain_order=True) if p not in {ALL, BETWEEN}]
    if len(phases) - (TAIL in phases) < 2:
        return ()
    rows = []
    for phase in phases:
        label = f"{phase} (in no sum)" if phase == TAIL else phase
        for configuration in suite.configurations:
            base_name = suite.base_of(configuration) or ""
            base = block_values(energy, name, base_name, component, phase=phase)
            joules_by_block, seconds_by_block = (
                block_values(energy, name, configuration, component, phase=phase, column=column)
                for column in ("energy_j", "duration_s")
            )
            if not joules_by_block and not seconds_by_block:
                continue
            c = compare_pairs(suite, base, joules_by_block)
            change = _change(results, c, name, configuration)
            means = [
                words.plus_minus(estimate_of(values))
                for values in (joules_by_block, seconds_by_block)
            ]
            rows.append([label, suite.label(configuration), *means, change])
    caption = f"{words.name_of(name)}: phases, energy of the {words.name_of(component)}"
    heads = ["Phase", "Configuration", "Energy (J)", "Time (s)", "Energy, change [95 % interval]"]
    return view.table(caption, heads, rows, words=2, origin=joint_origin(energy), group=True)


def responsiveness_section(results: Results) -> Blocks:
    """Return the table of percentiles; nothing if no run has a report of fio."""
    rows = []
    for (work, name), same in groupby(
        delays(results.suite), lambda delay: (delay.work, delay.configuration)
    ):
        by_name = {delay.percentile: delay for delay in same}
        row = [words.name_of(work[0]), words.parse(work[1]).shown, results.suite.label(name)]
        for percentile in NAMES:
            delay = by_name.get(percentile)
            row += (
                ["", ""]
                if delay is None
                else [words.number(delay.median_ms), words.change_in(delay.ratio)]
            )
        rows.append(row)
    if not rows:
        return ()
    heads = [text for name in NAMES for text in (f"{name} (ms)", f"{name}, change")]
    heads = ["Workload", "Phase", "Configuration", *heads]
    caption = say("responsiveness.caption")
    page = view.table(caption, heads, rows, words=3, origin=results.origin, group=True)
    return page + view.key("responsiveness")
