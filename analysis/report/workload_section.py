"""One workload's joules by component, phase, time and power, per unit of work, and latencies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import polars as pl

from analysis.energy.energy import ALL, BETWEEN
from analysis.report import view, words
from analysis.report.figures import bars, blocks, timeline
from analysis.report.texts import say
from analysis.report.view import Blocks, Fields
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

HEADERS = [
    "Configuration",
    "Per",
    "Energy",
    "Energy, change [95 %]",
    "Rate",
    "CPU use",
    "Disk reads",
    "Disk writes",
]
PREFIXES = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def units_section(results: Results) -> Blocks:
    """Workload × configuration × unit, then the phases of each workload that has several."""
    component = results.family.component
    rows_of_all: list[list[str]] = []
    for name in results.suite.workloads:
        rows = per_unit(results.suite, results.energy, name, component)
        of_all = [row for row in rows if row.phase == ALL]
        first = [row for row in of_all if row.unit == of_all[0].unit]
        rows_of_all += [[words.name_of(name), *cells] for cells in _cells(results, first)]
    if not rows_of_all:
        return view.paragraph("No run counted the work that it did.")
    what = f"Energy of the {words.name_of(component)} per unit of work, and how fast it went"
    origin = joint_origin(results.energy.filter(component=component))
    heads = ["Workload", *HEADERS]
    page = view.table(what, heads, rows_of_all, words=3, origin=origin, group=True)
    return page + view.key("units")


def _cells(results: Results, rows: Sequence[PerUnit]) -> list[list[str]]:
    return [
        [
            results.suite.label(row.configuration),
            row.unit.singular,
            joules(row.energy_j, row.unit.singular),
            "" if row.ratio is None else words.change_in(row.ratio),
            words.plus_minus(row.rate, row.unit.rate),
            f"{row.cpu_share.mean * 100:.1f} %" if row.cpu_share else words.NOTHING,
            *(
                f"{b.mean:.2f} B/B" if b else words.NOTHING
                for b in (row.disk_reads, row.disk_writes)
            ),
        ]
        for row in rows
    ]


def joules(value: Estimate | None, unit: str) -> str:
    """`1.23 ± 0.04 mJ/MB`: in the prefix that leaves a digit before the point."""
    if value is None:
        return words.NOTHING
    factor, prefix = next(((f, p) for f, p in PREFIXES if abs(value.mean) >= f), PREFIXES[-1])
    return words.plus_minus(value.scaled(1 / factor), f"{prefix}J/{unit}")


def workload_section(results: Results, name: str, flagged: set[tuple[int, str]]) -> Blocks:
    """Sentences, tables and pictures; `flagged` are the (block, configuration) to be ringed."""
    energy = results.energy.filter(workload=name)
    page = view.heading(words.name_of(name), 3, f"workload-{name}")
    if energy.is_empty():
        reasons = list(dict.fromkeys(r.reason for r in results.suite.skipped if r.workload == name))
        why = f"Skipped: {' '.join(reasons)}" if reasons else "No run of this workload finished."
        return page + view.paragraph(why)
    component = first_component(COMPONENTS, set(energy["component"]))
    page += _bars(results, energy, name)
    page += _over_time(results, energy, name)
    page += _blocks(results, energy, name, component, flagged)
    page += view.folded("Every component", _components(results, name))
    return page + view.folded("Every phase", _phases(results, energy, name, component))


def _bars(results: Results, energy: pl.DataFrame, name: str) -> Blocks:
    """Return the bars of a workload, as the paper's figures where it has some."""
    page: Blocks = ()
    for plot in bars.plots_of(name):
        number = f"As the paper's Figure {plot.paper}. " if plot.paper else ""
        dots = "; dots: blocks" if energy["block"].n_unique() <= bars.DOTS else ""
        caption = f"{number}{plot.title}. Bars: means; whiskers: 95 % intervals{dots}."
        drawn = bars.draw(plot, energy, results.suite)
        page += view.picture(drawn, caption, joint_origin(energy), wide=True)
    return page


def _over_time(results: Results, energy: pl.DataFrame, name: str) -> Blocks:
    run = timeline.typical_run(results.suite, name)
    if run is None:
        return ()
    caption = (
        f"Power over the time of run {run.run_id}; phases shaded, the tail last, gaps left open."
    )
    curves = timeline.curves(results.suite, run, results.clock)
    drawn = timeline.draw(results.suite, run, curves)
    shown = timeline.as_json(run, curves)
    return view.picture(drawn, caption, joint_origin(energy), True, shown)


def _blocks(
    results: Results, energy: pl.DataFrame, name: str, component: str, flagged: set[tuple[int, str]]
) -> Blocks:
    drawn = blocks.draw(results.suite, energy, name, component, flagged)
    ringed = " Ringed: flagged as standing out; they count like all others." if flagged else ""
    caption = (
        f"Energy of the {words.name_of(component)} in each block, against the configuration's own "
        "mean (bold: all of them together, where drift shows) and against the baseline's in the "
        f"same block.{ringed}"
    )
    return view.picture(drawn, caption, joint_origin(energy), wide=True)


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
    """Energy and time by phase; the tail stands apart, it is in no sum. Intervals, no verdicts."""
    suite = results.suite
    phases = [p for p in energy["phase"].unique(maintain_order=True) if p not in {ALL, BETWEEN}]
    if len(phases) - (TAIL in phases) < 2:
        return ()
    rows = []
    for phase in phases:
        label = f"{phase} (in no sum)" if phase == TAIL else phase
        for configuration in suite.configurations:
            of_base = suite.base_of(configuration) or ""
            base = block_values(energy, name, of_base, component, phase=phase)
            joules_by_block, took = (
                block_values(energy, name, configuration, component, phase=phase, column=column)
                for column in ("energy_j", "duration_s")
            )
            if not joules_by_block and not took:
                continue
            c = compare_pairs(suite, base, joules_by_block)
            plain = configuration == suite.baseline or c is None
            change = "" if plain else words.change_in(c)
            means = (words.plus_minus(estimate_of(values)) for values in (joules_by_block, took))
            rows.append([label, suite.label(configuration), *means, change])
    caption = f"{words.name_of(name)}: phases, energy of the {words.name_of(component)}"
    heads = ["Phase", "Configuration", "Energy (J)", "Time (s)", "Energy, change [95 % interval]"]
    return view.table(caption, heads, rows, words=2, origin=joint_origin(energy), group=True)


def responsiveness_section(results: Results) -> Blocks:
    """Return the table of percentiles; nothing where no run kept a report of fio's."""
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
