"""The headline table, the matrix of workload × configuration, and other sources on the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean

import polars as pl

from analysis.energy.energy import ALL
from analysis.report import answer, view, words
from analysis.report.figures import forest
from analysis.report.texts import catalogue, say
from analysis.report.view import Blocks, Group, Matrix, MatrixCell, Table
from analysis.stats import disks
from analysis.stats.comparison import Comparison
from analysis.stats.results import Results
from analysis.stats.stats import estimate
from analysis.stats.summary import COMPONENTS, cell_means, compare_pairs, other_channels
from analysis.suite.readers import measures_other_zones
from analysis.suite.records import Run

PYRAPL_COMPONENTS = tuple(f"pyrapl-{name}" for name in COMPONENTS[2:])


def columns(summary: pl.DataFrame) -> tuple[str, ...]:
    """Return the components of the headline table, with the sum of several packages.

    Further channels of a meter, such as `usb`, and PyRAPL's zones follow.
    """
    components = set(summary["component"])
    left_out = "package-0" if "package" in components else "package"
    by_pyrapl = (name for name in PYRAPL_COMPONENTS if name in components)
    names = (*COMPONENTS, *other_channels(summary), *by_pyrapl)
    return tuple(name for name in names if name.removeprefix("pyrapl-") != left_out)


def headline(results: Results) -> Table:
    """Return the headline table for a terminal: joules, seconds and change by configuration."""
    suite, component = results.suite, results.family.component
    cells = product(suite.workloads, suite.configurations)
    rows = [_headline(results, *cell) for cell in cells if cell in suite.planned]
    heads = ["Workload", "Configuration", f"{words.name_of(component)} J", "s", "", "Change"]
    return Table("", heads, rows, words=2, group=True)


def _headline(results: Results, workload: str, configuration: str) -> list[str]:
    suite, component, pair = results.suite, results.family.component, (workload, configuration)
    names = [words.name_of(workload), suite.label(configuration)]
    rows = [row for row in results.summary_rows if (row.workload, row.configuration) == pair]
    if not rows:
        skipped = any(run.workload == workload for run in suite.skipped)
        why = "skipped" if skipped else "no finished run"
        return [*names, words.NOTHING, words.NOTHING, "", why]
    judged = next((row for row in rows if row.component == component), None)
    versus = {key[:2]: c for key, c in results.family.versus.items() if key[3] == component}
    c = versus.get(pair)
    unpaired = "" if configuration == suite.baseline else words.NOTHING
    return [
        *names,
        words.plus_minus(judged.joules if judged else None),
        words.number((judged or rows[0]).mean_s),
        words.sign(c) if c else "",
        words.change_in(c) if c else unpaired,
    ]


NOTHING = MatrixCell(words.NOTHING, hint="no finished run on both sides")


def matrix(results: Results) -> Blocks:
    """Return the matrix and its legend; the longer side is in rows, so that a phone can show it."""
    component = results.family.component
    others = [name for name in results.suite.configurations if name != results.suite.baseline]
    versus = results.family.versus
    seconds = time_ratios(results)
    cells = {
        key[:2]: cell_of(c, seconds.get(key[:2]))
        for key, c in versus.items()
        if key[3] == component
    }
    rows = [w for w in results.suite.workloads if any((w, o) in cells for o in others)]
    if not rows or results.suite.baseline is None:
        return ()
    grid = [(words.name_of(w), tuple(cells.get((w, o), NOTHING) for o in others)) for w in rows]
    heads, corner = [results.suite.label(name) for name in others], "Workload"
    if len(heads) > len(grid) or results.suite.by_disk:
        columns = zip(*(row for _, row in grid), strict=True)
        heads, grid = [name for name, _ in grid], list(zip(heads, columns, strict=True))
        corner = "Configuration"
    caption = say(
        "matrix.caption", component=words.name_of(component), baseline=results.suite.base_label
    )
    if results.suite.by_disk:
        first = results.suite.label(results.suite.baseline)
        caption += f"; a disk without encryption against {first}"
    groups: tuple[Group, ...] = (Group("", tuple(grid)),)
    if results.suite.by_disk:
        on = [(results.suite.disk_of(o), row) for o, row in zip(others, grid, strict=True)]
        groups = tuple(
            Group(f"Disk {disk}", tuple(row for base_disk, row in on if base_disk == disk))
            for disk in dict.fromkeys(map(results.suite.disk_of, results.suite.configurations))
            if any(base_disk == disk for base_disk, _ in on)
        )
    return (Matrix(caption, (corner, *heads), groups), *legend(results))


def legend(results: Results) -> Blocks:
    """Return what the signs of the matrix and of the headline mean, and where they are limited."""
    suite = results.suite
    unequal = [words.name_of(str(note.facts["workload"])) for note in results.work_notes]
    remarks = say("matrix.two-disks") * any(
        disks.across(suite, suite.base_of(name), name)
        for name in suite.configurations
        if name != suite.baseline
    )
    if unequal:
        remarks += say("matrix.same-work", workloads=words.listed(unequal))
    return view.key("matrix", margin=f"±{suite.margin * 100:g} %", remarks=remarks)


def time_ratios(results: Results) -> Mapping[tuple[str, str], float]:
    """Return how many times as long a run takes as on its baseline, by workload × configuration."""
    seconds = cell_means(
        results.energy.filter(phase=ALL, component=results.family.component),
        ("workload", "configuration"),
        seconds=pl.col("duration_s"),
    )
    ratios = {}
    for (workload, name), values in seconds.items():
        base = seconds.get((workload, results.suite.base_of(name) or ""), {}).get("seconds", {})
        if (c := compare_pairs(results.suite, base, values["seconds"])) is not None:
            ratios[workload, name] = c.ratio
    return ratios


def overall_picture(results: Results) -> Blocks:
    """Return the change over all workloads of each configuration, with its interval."""
    component, suite = results.family.component, results.suite
    names = suite.configurations
    contrasts = {name: answer.contrast_of(results, suite.baseline, name) for name in names}
    compared = {name: c.comparison for name, c in contrasts.items() if c and c.comparison}
    drawn = forest.draw_overall(suite, component, compared, results.origin)
    caption = say("answer.picture", over=answer.overall_name(suite))
    if drawn is not None:
        caption += forest.arrow_note(drawn)
    return view.picture(drawn, caption)


def cell_of(c: Comparison | None, time_ratio: float | None = None) -> MatrixCell:
    """Return a comparison as a cell of a table, its time and its power below if they are given."""
    if c is None:
        return NOTHING
    change, _, interval = words.change_in(c).partition(" [")
    verdict = words.verdict_of(c)
    below = [f"[{interval}"] * bool(interval)
    if time_ratio is not None:
        ratios = {"time": time_ratio, "power": c.ratio / time_ratio}
        below += [f"{name} ×\u202f{ratio:.2f}" for name, ratio in ratios.items()]
    text = f"{change} {words.sign(c)}".rstrip()
    return MatrixCell(text, verdict.kind, f"{verdict}, n = {c.n}", tuple(below))


OTHER_HEADERS = ["Source", "What", "Workload", "Configuration", "Energy (J)", "n"]


def other_sources(results: Results) -> Blocks:
    """Return the joules of other sources, and what they see; nothing without any."""
    suite, runs = results.suite, results.suite.compared_runs
    names = dict.fromkeys(name for run in runs for name in run.other_sources)
    sources = [name for name in names if measures_other_zones(name, runs)]
    if not sources:
        return ()
    joules: dict[tuple[str, ...], dict[int, list[float]]] = {}
    for source, *cell in product(sources, suite.workloads, suite.configurations):
        for run in (run for run in runs if [run.workload, run.configuration] == cell):
            for zone in run.zones_of(source):
                if zone.energy_uj is not None:
                    key = source, zone.zone, words.name_of(cell[0]), suite.label(cell[1])
                    by_block = joules.setdefault(key, {})
                    by_block.setdefault(run.block, []).append(zone.energy_uj / 1e6)
    rows = [
        [*key, words.plus_minus(estimate([fmean(js) for js in by.values()])), str(len(by))]
        for key, by in joules.items()
    ]
    caption = "Other sources on the target: energy of whole runs, including the tail"
    page = view.table(caption, OTHER_HEADERS, rows, words=4, group=True)
    notes = [catalogue().tables["sources"].get(name, "") for name in sources]
    notes += ["No verdict rests on them, and no sum includes them."]
    notes += [f"{name}: {why}" for name in sources if (why := _failed(runs, name))]
    return page + view.paragraph(" ".join(filter(None, notes)), "key")


def _failed(runs: Sequence[Run], source: str) -> str:
    """Return in how many runs a source gave no figure, and the first reason."""
    reasons = [
        record.error or "a reading failed"
        for run in runs
        if (record := run.other_sources.get(source)) is not None
        and (record.error or any(zone.energy_uj is None for zone in run.zones_of(source)))
    ]
    return f"no figure in {len(reasons)} runs ({reasons[0].rstrip('.')})." if reasons else ""
