"""A workload's joules by phase and component, its time and rate, and latencies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, product
from statistics import fmean

import polars as pl

from analysis.energy.energy import ALL, BETWEEN
from analysis.report import tables, view, words
from analysis.report.figures import blocks, timeline
from analysis.report.texts import say
from analysis.report.view import Blocks, Fields
from analysis.stats.responsiveness import NAMES, delays
from analysis.stats.results import Results
from analysis.stats.summary import (
    COMPONENTS,
    PerUnit,
    SummaryRow,
    cell_means,
    compare_pairs,
    estimate_of,
    first_component,
    per_unit,
)
from analysis.suite.records import TAIL
from contract.estimates import Estimate

PREFIXES = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def time_section(results: Results) -> Blocks:
    """Return duration, power, rate, CPU use, and joules and disk traffic per unit of work."""
    component = results.family.component
    rows = [row for row in results.summary_rows if row.component == component]
    units = {
        (name, unit.configuration): unit
        for name in results.suite.workloads
        for unit in per_unit(results.suite, results.energy, name, component)
        if unit.unit.work != "idle_s"  # whose joules a second are the mean power
    }

    def by_unit(text: Callable[[PerUnit], str]) -> Callable[[SummaryRow], str]:
        def text_of(row: SummaryRow) -> str:
            unit = units.get((row.workload, row.configuration))
            return words.NOTHING if unit is None else text(unit)

        return text_of

    columns: Fields[SummaryRow] = {
        "Workload": lambda row: words.name_of(row.workload),
        "Configuration": lambda row: results.suite.label(row.configuration),
        "Time (s)": lambda row: words.number(row.mean_s),
        "Mean power (W)": lambda row: words.number(row.mean_w),
        "Rate": by_unit(lambda unit: words.plus_minus(unit.rate, unit.unit.rate)),
        "CPU use": by_unit(lambda unit: _mean(unit.cpu_share, 100, ".1f", "%")),
        "Energy per unit": by_unit(lambda unit: joules(unit.energy_j, unit.unit.singular)),
        "Disk reads": by_unit(lambda unit: _mean(unit.disk_reads, 1, ".2f", "B/B")),
        "Disk writes": by_unit(lambda unit: _mean(unit.disk_writes, 1, ".2f", "B/B")),
    }
    caption = say("time.caption", component=words.name_of(component))
    page = view.table_of(caption, rows, columns, words=2, group=True)
    return page + view.key("time") if rows else ()


def _mean(value: Estimate | None, factor: int, digits: str, unit: str) -> str:
    return f"{value.mean * factor:{digits}} {unit}" if value else words.NOTHING


def joules(value: Estimate | None, unit: str) -> str:
    """Return `1.23 ± 0.04 mJ/MB`, with the prefix that leaves a digit before the point."""
    if value is None:
        return words.NOTHING
    factor, prefix = next(((f, p) for f, p in PREFIXES if abs(value.mean) >= f), PREFIXES[-1])
    return words.plus_minus(value.scaled(1 / factor), f"{prefix}J/{unit}")


def workload_section(results: Results, name: str, flagged: set[tuple[int, str]]) -> Blocks:
    """Return a fold with a workload's pictures, and its joules by phase and component.

    `flagged` (block, configuration) are ringed.
    """
    suite, energy = results.suite, results.energy.filter(workload=name)
    title, anchor = words.name_of(name), f"workload-{name}"
    if energy.is_empty():
        reasons = list(dict.fromkeys(r.reason for r in suite.skipped if r.workload == name))
        why = f"Skipped: {' '.join(reasons)}" if reasons else "No run of this workload finished."
        return view.folded(title, view.paragraph(why), anchor=anchor)
    component = first_component(COMPONENTS, set(energy["component"]))
    trace: Blocks = ()
    if (run := timeline.typical_run(suite, name)) is not None:
        trace = view.picture(timeline.draw(suite, run, timeline.curves(suite, run, results.clock)))
    drawn = blocks.draw(suite, energy, name, component, flagged)
    rings = [f"{suite.label(who)} in block {block + 1}" for block, who in sorted(flagged)]
    caption = say("workload.ringed", runs=words.listed(rings)) if rings else ""
    inside = view.columns(trace, view.picture(drawn, caption))
    return view.folded(title, inside + _joules_table(results, energy, name), anchor=anchor)


def _joules_table(results: Results, energy: pl.DataFrame, name: str) -> Blocks:
    """Return joules by component of whole runs and of their phases; the tail is in no sum."""
    suite = results.suite
    rows_of_workload = [row for row in results.summary_rows if row.workload == name]
    present = {row.component for row in rows_of_workload}
    components = [c for c in tables.columns(results.summary) if c in present]
    components = [c for c in components if not c.startswith("pyrapl-")]
    if not components:
        return ()
    run_rows = {(row.configuration, row.component): row for row in rows_of_workload}
    rows = []
    for configuration in suite.configurations:
        of_run = [run_rows.get((configuration, component)) for component in components]
        if lead := next(filter(None, of_run), None):
            means = [words.plus_minus(row.joules) if row else words.NOTHING for row in of_run]
            ratio = words.change_of(lead.ratio, lead.ratio_low, lead.ratio_high)
            change = "" if configuration == suite.baseline else ratio
            label = suite.label(configuration)
            rows.append([say("workload.whole"), label, words.number(lead.mean_s), *means, change])
    heads = ["Phase", "Configuration", "Time (s)", *(f"{words.name_of(c)} (J)" for c in components)]
    heads.append(f"Change, {words.name_of(components[0])}")
    rows += _phase_rows(results, energy, name, components)
    return view.table(say("workload.joules"), heads, rows, words=2, group=True)


def _phase_rows(
    results: Results, energy: pl.DataFrame, name: str, components: Sequence[str]
) -> Iterator[list[str]]:
    """Yield the rows of a workload's phases, of a single one only its tail's."""
    suite = results.suite
    phases = [p for p in energy["phase"].unique(maintain_order=True) if p not in {ALL, BETWEEN}]
    if len(phases) - (TAIL in phases) < 2:
        phases = [TAIL] * (TAIL in phases)
    columns = {"joules": pl.col("energy_j"), "seconds": pl.col("duration_s")}
    cells = cell_means(energy, ("phase", "configuration", "component"), **columns)
    for phase, configuration in product(phases, suite.configurations):
        joules_of, seconds_of = (
            [cells.get((phase, configuration, c), {}).get(column, {}) for c in components]
            for column in columns
        )
        if not any(joules_of) and not any(seconds_of):
            continue
        change = ""
        base_name = suite.base_of(configuration) or ""
        base = cells.get((phase, base_name, components[0]), {}).get("joules", {})
        c = compare_pairs(suite, base, joules_of[0])
        if c is not None and configuration != suite.baseline:
            change = words.change_in(results.family.shown(c, name, configuration))
        label = say("workload.tail") if phase == TAIL else phase
        means = [words.plus_minus(estimate_of(values)) for values in joules_of]
        seconds = next(filter(None, seconds_of), {})
        mean_s = words.number(fmean(seconds.values()) if seconds else None)
        yield [label, suite.label(configuration), mean_s, *means, change]


def joules_key(results: Results) -> Blocks:
    """Return what the components' joules hold, and which of them are scaled to equal work."""
    components = {row.component for row in results.summary_rows}
    no_memory = "dram" not in components and {"package", "package-0"} & components
    notes = [say("figures.sources")] * bool(results.suite.meters)
    notes += [say("figures.no-memory")] * bool(no_memory and results.suite.meters)
    notes += [say("figures.single")] * any(row.n < 2 for row in results.summary_rows)
    notes += [note.sentence for note in results.work_notes]
    return view.paragraph(" ".join(notes), "key") if notes else ()


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
