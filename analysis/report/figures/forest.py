"""Every ratio to the baseline with its interval, in rows that fit a sheet of paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import polars as pl
from matplotlib.figure import Figure

from analysis.report import words
from analysis.report.figures import intervals, style
from analysis.report.figures.intervals import Limits, Ratio, Tick
from analysis.suite import records
from analysis.suite.records import Suite

ROWS = 34  # lines of one picture: more would not fit an upright sheet
LINE_IN = 0.19
Row = Mapping[str, Any]


def draw(summary: pl.DataFrame, suite: Suite, component: str) -> list[Figure]:
    """Change of joules against the baseline, a line a workload × configuration.

    As many pictures as are needed, all with the same scale; none where there is no ratio.
    """
    rows = summary.filter(
        (pl.col("component") == component)
        & (pl.col("configuration") != (suite.baseline or ""))
        & pl.col("ratio").is_not_null()
    )
    if rows.is_empty():
        return []
    scale = intervals.limits(map(_ratio, rows.rows(named=True)), suite.margin)
    where = records.joint(rows["origin"].unique())
    by = {name: _of(rows, suite, name) for name in suite.workloads}
    by = {name: found for name, found in by.items() if found}
    sheets = list(intervals.sheets(by, lambda of: len(of) + 1, ROWS))
    parts = [
        f", {n} of {len(sheets)}" if len(sheets) > 1 else "" for n in range(1, 1 + len(sheets))
    ]
    return [
        _sheet(sheet, suite, scale, component, (part, where))
        for sheet, part in zip(sheets, parts, strict=True)
    ]


def _of(rows: pl.DataFrame, suite: Suite, workload: str) -> list[Row]:
    rank = {name: i for i, name in enumerate(suite.configurations)}
    found = rows.filter(pl.col("workload") == workload).rows(named=True)
    return sorted(found, key=lambda row: rank.get(row["configuration"], len(rank)))


def _ratio(row: Row) -> Ratio:
    return row["ratio"], row["ratio_low"], row["ratio_high"]


def _sheet(
    sheet: Mapping[str, Sequence[Row]],
    suite: Suite,
    scale: Limits,
    component: str,
    said: tuple[str, str],
) -> Figure:
    looks = style.palette(suite)
    lines = sum(len(rows) + 1 for rows in sheet.values())
    part, where = said
    baseline = suite.label(suite.baseline or "")
    with mpl.rc_context({**style.RC, "axes.grid.axis": "x"}):
        figure, axis = intervals.frame(1.0 + LINE_IN * lines, scale, suite.margin)
        y = 0
        ticks: list[Tick] = []
        for workload, rows in sheet.items():
            ticks.append((y, words.name_of(workload), True))
            for row in rows:
                y += 1
                look = looks[row["configuration"]]
                ticks.append((y, suite.label(row["configuration"]), False))
                inconclusive = row["verdict"] == "inconclusive"
                marker = look.colour, look.marker
                intervals.interval(axis, y, _ratio(row), marker, inconclusive)
                intervals.remark(axis, y, _ratio(row))
            y += 1
        what = f"Change of the {words.name_of(component)}'s energy against {baseline} (%)"
        intervals.label(axis, ticks, (y - 0.3, -0.7), what)
        style.titled(
            figure, f"Energy against {baseline}, ±{suite.margin * 100:g} % shaded{part}", where
        )
    return figure
