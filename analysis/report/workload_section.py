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
    per_unit,
)
from analysis.suite.records import TAIL
from contract.estimates import Estimate
from instrumentation.sources.zones import not_counted

PREFIXES = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def time_section(results: Results) -> Blocks:
    """Return how long runs take, at which power, and how fast and busy they are."""
    component = results.family.component
    rows = [row for row in results.summary_rows if row.component == component]
    units = {
        (name, unit.configuration): unit
        for name in results.suite.workloads
        for unit in _units(results, name)
    }
    columns: Fields[SummaryRow] = {
        "Workload": lambda row: words.name_of(row.workload),
        "Configuration": lambda row: results.suite.label(row.configuration),
        "Time (s)": lambda row: words.number(row.mean_s),
        f"{words.name_of(component).capitalize()}, mean power (W)": lambda row: words.number(
            row.mean_w
        ),
        "Rate": lambda row: (
            words.plus_minus(unit.rate, unit.unit.rate)
            if (unit := units.get((row.workload, row.configuration)))
            else words.NOTHING
        ),
        "CPU use": lambda row: (
            _mean(unit.cpu_share, 100, ".1f", "%")
            if (unit := units.get((row.workload, row.configuration)))
            else words.NOTHING
        ),
    }
    page = view.table_of(say("time.caption"), rows, columns, words=2, group=True)
    return page + view.key("time") if rows else ()


def _units(results: Results, workload: str) -> list[PerUnit]:
    """Return the figures of whole runs of a workload, per unit of its first kind of work."""
    units = per_unit(results.suite, results.energy, workload, results.family.component)
    whole_runs = [row for row in units if row.phase == ALL]
    return [row for row in whole_runs if row.unit == whole_runs[0].unit]


def units_section(results: Results) -> Blocks:
    """Return the energy per unit of work by workload and configuration."""
    rows = [(name, unit) for name in results.suite.workloads for unit in _units(results, name)]
    if not rows:
        return view.paragraph(say("units.none"))
    columns: Fields[tuple[str, PerUnit]] = {
        "Workload": lambda row: words.name_of(row[0]),
        "Configuration": lambda row: results.suite.label(row[1].configuration),
        "Energy per unit": lambda row: joules(row[1].energy_j, row[1].unit.singular),
        "Disk reads": lambda row: _mean(row[1].disk_reads, 1, ".2f", "B/B"),
        "Disk writes": lambda row: _mean(row[1].disk_writes, 1, ".2f", "B/B"),
    }
    caption = say("units.caption", component=words.name_of(results.family.component))
    return view.table_of(caption, rows, columns, words=2, group=True) + view.key("units")


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
    """Return a fold with a workload's pictures and phases.

    `flagged` (block, configuration) are ringed.
    """
    title, anchor = words.name_of(name), f"workload-{name}"
    energy = results.energy.filter(workload=name)
    if energy.is_empty():
        reasons = list(dict.fromkeys(r.reason for r in results.suite.skipped if r.workload == name))
        why = f"Skipped: {' '.join(reasons)}" if reasons else "No run of this workload finished."
        return view.folded(title, view.paragraph(why), anchor=anchor)
    component = first_component(COMPONENTS, set(energy["component"]))
    drawn_bars: Blocks = ()
    for plot in bars.plots_of(name):
        caption = say("workload.paper", number=str(plot.paper)) if plot.paper else ""
        drawn_bars += view.picture(bars.draw(plot, energy, results.suite), caption)
    trace: Blocks = ()
    if (run := timeline.typical_run(results.suite, name)) is not None:
        curves = timeline.curves(results.suite, run, results.clock)
        drawn = timeline.draw(results.suite, run, curves)
        trace = view.picture(drawn, "", timeline.as_json(run, curves))
    drawn = blocks.draw(results.suite, energy, name, component, flagged)
    rings = (
        words.listed(
            [f"{results.suite.label(who)} in block {block + 1}" for block, who in sorted(flagged)]
        )
        if flagged
        else ""
    )
    course = view.picture(drawn, say("workload.ringed", runs=rings) if flagged else "")
    inside = view.columns(drawn_bars, trace + course)
    return view.folded(title, inside + _phases(results, energy, name, component), anchor=anchor)


def components_table(results: Results) -> Blocks:
    """Return joules, power and time of every workload, configuration and component."""
    suite = results.suite
    rank = {component: i for i, component in enumerate(COMPONENTS)}
    order = {name: i for i, name in enumerate((*suite.workloads, *suite.configurations))}
    rows = sorted(
        results.summary_rows,
        key=lambda r: (
            order.get(r.workload, len(order)),
            order.get(r.configuration, len(order)),
            rank.get(r.component, len(rank)),
        ),
    )
    columns: Fields[SummaryRow] = {
        "Workload": lambda row: words.name_of(row.workload),
        "Configuration": lambda row: suite.label(row.configuration),
        "Component (source)": lambda row: f"{words.name_of(row.component)} ({row.source})",
        "Energy (J)": lambda row: words.plus_minus(row.joules),
        "Mean power (W)": lambda row: words.number(row.mean_w),
        "n": lambda row: str(row.n),
        "Change [interval]": lambda row: (
            ""
            if row.configuration == suite.baseline
            else words.change_of(row.ratio, row.ratio_low, row.ratio_high)
        ),
    }
    components = {row.component for row in rows}
    notes = [not_counted(components)]
    if suite.meters or not components:
        no_memory = "dram" not in components and {"package", "package-0"} & components
        notes = [say("figures.sources"), *[say("figures.no-memory")] * bool(no_memory)]
    notes += [say("figures.pyrapl")] * any(name.startswith("pyrapl") for name in components)
    notes += [say("figures.single")] * any(row.n < 2 for row in rows)
    notes += [note.sentence for note in results.work_notes]
    page = view.table_of(say("figures.table"), rows, columns, words=3, group=True)
    return page + view.paragraph(" ".join(notes), "key")


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
    caption = say("workload.phases", component=words.name_of(component))
    heads = ["Phase", "Configuration", "Energy (J)", "Time (s)", "Energy, change [95 % interval]"]
    return view.table(caption, heads, rows, words=2, group=True)


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
    page = view.table(caption, heads, rows, words=3, group=True)
    return page + view.key("responsiveness")
