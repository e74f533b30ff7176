"""Joules per unit of work, rates and the CPU's share: a table of all, and every phase folded."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from analysis.energy.energy import ALL
from analysis.report import markup, words
from analysis.report.markup import Html
from analysis.report.tables import judged_component
from analysis.stats.per_unit import PerUnit, per_unit
from analysis.stats.results import Results
from analysis.stats.stats import Estimate
from analysis.stats.summary import joint_origin

HEADERS = ("Configuration", "Per", "Energy", "Energy, change [95 %]", "Rate", "CPU use")
PREFIXES = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def units_section(found: Results) -> Html:
    """Workload × configuration × unit, then the phases of each workload that has several."""
    component = judged_component(found.summary)
    whole: list[list[str]] = []
    folded = markup.EMPTY
    for name in found.suite.workloads:
        rows = per_unit(found.suite, found.energy, name, component)
        of_all = [row for row in rows if row.phase == ALL]
        first = [row for row in of_all if row.unit == of_all[0].unit]
        whole += [[words.name_of(name), *cells] for cells in _cells(found, first)]
        if len(rows) > len(first):
            folded += markup.folded(
                f"{words.name_of(name)}: every phase, every unit of work",
                _phases(found, name, rows, component),
            )
    if not whole and not folded.text:
        return markup.paragraph("No run counted the work that it did.")
    page = markup.table(
        f"Energy of the {words.name_of(component)} per unit of work, and how fast it went",
        ["Workload", *HEADERS],
        whole,
        words=3,
        origin=joint_origin(found.energy.filter(pl.col("component") == component)),
        group=True,
    )
    page += markup.paragraph(
        "Mean ± 95 % interval (Student t over blocks; repeats within a block are averaged first). "
        "1 MB is 2²⁰ bytes, as in the papers. Phases of a workload taken together, without the "
        "tail; a unit that not every phase counts stands with its phases only. CPU use is of all "
        "processors together.",
        "key",
    )
    return page + folded


def _phases(found: Results, name: str, rows: Sequence[PerUnit], component: str) -> Html:
    cells = [
        [phase, *line]
        for phase in dict.fromkeys(row.phase for row in rows)
        for line in _cells(found, [row for row in rows if row.phase == phase])
    ]
    own = found.energy.filter((pl.col("workload") == name) & (pl.col("component") == component))
    caption = f"{words.name_of(name)}: energy of the {words.name_of(component)} by phase"
    return markup.table(
        caption, ["Phase", *HEADERS], cells, words=3, origin=joint_origin(own), group=True
    )


def _cells(found: Results, rows: Sequence[PerUnit]) -> list[list[str]]:
    return [
        [
            found.suite.label(row.configuration),
            row.unit.one,
            joules(row.energy_j, row.unit.one),
            ""
            if row.ratio is None
            else words.change_of(row.ratio.ratio, row.ratio.low, row.ratio.high),
            words.plus_minus(row.rate, row.unit.rate),
            f"{row.cpu_share.mean * 100:.1f} %" if row.cpu_share else words.NOTHING,
        ]
        for row in rows
    ]


def joules(value: Estimate | None, one: str) -> str:
    """`1.23 ± 0.04 mJ/MB`: in the prefix that leaves a digit before the point."""
    if value is None:
        return words.NOTHING
    factor, prefix = next(((f, p) for f, p in PREFIXES if abs(value.mean) >= f), PREFIXES[-1])
    return words.plus_minus(value.scaled(1 / factor), f"{prefix}J/{one}")
