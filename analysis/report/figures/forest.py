"""Every ratio to the baseline with its interval, in rows that fit a sheet of paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.report import words
from analysis.report.figures import style
from analysis.suite import records
from analysis.suite.records import Suite

ROWS = 34  # lines of one picture: more would not fit an upright sheet
WIDTH_IN, LINE_IN = 7.2, 0.19
Row = Mapping[str, Any]
Limits = tuple[float, float]


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
    limits = _limits(rows, suite.margin)
    where = records.joint(rows["origin"].unique())
    by = {name: _of(rows, suite, name) for name in suite.workloads}
    sheets = list(_sheets({name: found for name, found in by.items() if found}))
    drawn = []
    for number, sheet in enumerate(sheets, start=1):
        part = f", {number} of {len(sheets)}" if len(sheets) > 1 else ""
        drawn.append(_sheet(sheet, suite, limits, component, (part, where)))
    return drawn


def _of(rows: pl.DataFrame, suite: Suite, workload: str) -> list[Row]:
    rank = {name: i for i, name in enumerate(suite.configurations)}
    found = rows.filter(pl.col("workload") == workload).rows(named=True)
    return sorted(found, key=lambda row: rank.get(row["configuration"], len(rank)))


def _sheets(by: Mapping[str, Sequence[Row]]) -> Iterator[dict[str, Sequence[Row]]]:
    """Whole workloads, as many as a sheet holds."""
    sheet: dict[str, Sequence[Row]] = {}
    used = 0
    for name, rows in by.items():
        if sheet and used + len(rows) + 1 > ROWS:
            yield sheet
            sheet, used = {}, 0
        sheet[name] = rows
        used += len(rows) + 1
    if sheet:
        yield sheet


def _sheet(
    sheet: Mapping[str, Sequence[Row]],
    suite: Suite,
    limits: Limits,
    component: str,
    said: tuple[str, str],
) -> Figure:
    looks = style.palette(suite)
    lines = sum(len(rows) + 1 for rows in sheet.values())
    part, where = said
    baseline = suite.label(suite.baseline or "")
    with mpl.rc_context({**style.RC, "axes.grid.axis": "x"}):
        figure = Figure(figsize=(WIDTH_IN, 1.0 + LINE_IN * lines), layout="constrained")
        axis = figure.subplots()
        low, high = ((1 / (1 + suite.margin) - 1) * 100, suite.margin * 100)
        axis.axvspan(low, high, color=style.BAND, zorder=0, lw=0)
        axis.axvline(0, color="#444444", lw=0.8)
        axis.set_xlim(*limits)
        y = 0
        ticks: list[tuple[int, str, bool]] = []
        for workload, rows in sheet.items():
            ticks.append((y, words.name_of(workload), True))
            for row in rows:
                y += 1
                ticks.append((y, suite.label(row["configuration"]), False))
                _interval(axis, y, row, looks[row["configuration"]])
            y += 1
        axis.set_yticks([at for at, _, _ in ticks], [text for _, text, _ in ticks])
        for label, (_, _, bold) in zip(axis.get_yticklabels(), ticks, strict=True):
            label.set_fontweight("bold" if bold else "normal")
        axis.tick_params(axis="y", length=0, pad=9)  # room for arrows
        axis.set_ylim(y - 0.3, -0.7)
        what = words.name_of(component)
        axis.set_xlabel(f"Change of the {what}'s energy against {baseline} (%)")
        style.titled(
            figure, f"Energy against {baseline}, ±{suite.margin * 100:g} % shaded{part}", where
        )
    return figure


def _interval(axis: Axes, y: int, row: Row, look: style.Look) -> None:
    mid = (row["ratio"] - 1) * 100
    left, right = axis.get_xlim()
    if row["ratio_low"] is not None and row["ratio_high"] is not None:
        low, high = ((row[key] - 1) * 100 for key in ("ratio_low", "ratio_high"))
        axis.plot([max(low, left), min(high, right)], [y, y], color=style.INK, lw=1.3)
        for cut, edge, arrow in ((low < left, left, "<"), (high > right, right, ">")):
            if cut:
                axis.plot(edge, y, marker=arrow, markersize=5, color=style.INK, clip_on=False)
    axis.plot(
        mid,
        y,
        marker=look.marker,
        markersize=5.5,
        markeredgewidth=1.0,
        markerfacecolor="white" if row["verdict"] == "inconclusive" else look.colour,
        markeredgecolor=style.INK,
        zorder=3,
    )
    text = words.change_of(row["ratio"], row["ratio_low"], row["ratio_high"])
    axis.annotate(
        text,
        (1.025, y),
        xycoords=axis.get_yaxis_transform(),
        va="center",
        fontsize=7.5,
        color=style.SOFT,
        annotation_clip=False,
    )


def _limits(rows: pl.DataFrame, margin: float) -> Limits:
    """In %: show every ratio; an interval of the widest kind may run off the edge."""
    ratios = rows["ratio"].to_list()
    lows, highs = (rows[c].drop_nulls().to_list() for c in ("ratio_low", "ratio_high"))
    around = 2.5 * margin
    low = min(1 - around, *ratios, max(min([1.0, *lows]), 1 - 1.6 * (1 - min(1.0, *ratios))))
    high = max(1 + around, *ratios, min(max([1.0, *highs]), 1 + 1.6 * (max(1.0, *ratios) - 1)))
    room = 0.04 * (high - low)
    return (low - room - 1) * 100, (high + room - 1) * 100
