"""Every block in the order of time, which shows drift and stray blocks."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.report import words
from analysis.report.figures import style
from analysis.stats.summary import block_values
from analysis.suite import records
from analysis.suite.records import Suite

Series = Mapping[str, Mapping[int, float]]  # by configuration and block
CROWD = 5  # more lines than these have no markers beside their mean


def draw(
    suite: Suite,
    energy: pl.DataFrame,
    workload: str,
    component: str,
    flagged: Collection[tuple[int, str]] = (),
) -> Figure | None:
    """Draw each block's joules against the configuration's mean and the baseline's block.

    `flagged`: (block, configuration), ringed. None with fewer than two blocks.
    """
    by: Series = {
        name: values
        for name in suite.configurations
        if (values := block_values(energy, workload, name, component))
    }
    if max((len(values) for values in by.values()), default=0) < 2:
        return None
    means = {name: sum(values.values()) / len(values) for name, values in by.items()}
    changes = {
        name: {block: (value / means[name] - 1) * 100 for block, value in values.items()}
        for name, values in by.items()
        if means[name]
    }
    bases = {n: by.get(suite.base_of(n) or "", {}) for n in by if n != suite.baseline}
    ratio = {
        n: {block: (v / base[block] - 1) * 100 for block, v in by[n].items() if base.get(block)}
        for n, base in bases.items()
        if base
    }
    panels: list[tuple[str, Series]] = [("Against own mean (%)", changes)]
    panels += [(f"Against {suite.base_label} (%)", ratio)] if ratio else []
    rows = energy.filter(workload=workload, component=component)
    height = max(1.75 * len(panels) + 0.7, 0.9 + 0.17 * len(by))
    with style.drawing(7.2, height) as figure:
        axes = figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]
        looks = style.palette(suite)
        for axis, (title, series) in zip(axes, panels, strict=True):
            axis.axhline(0, color="#777777", lw=0.8)
            crowded = series is changes and len(series) > CROWD
            for name, points in series.items():
                _line(axis, points, looks[name], suite.label(name), crowded)
            if series is changes:
                _together(axis, changes)
            axis.set_ylabel(title)
            _ring(axis, series, flagged)
        axes[-1].set_xlabel("Block, in the order of time")
        axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        last = max(block for values in by.values() for block in values) + 1
        axes[-1].set_xlim(1 - 0.02 * last, last + 0.02 * last)
        # Each label once, as the last panel that has it draws it: there all have markers.
        artists: dict[str, Artist] = {}
        for axis in axes:
            handles, labels = axis.get_legend_handles_labels()
            artists |= zip(labels, handles, strict=True)
        figure.legend(
            list(artists.values()), list(artists), loc="outside right upper", fontsize=7.5
        )
        title = f"Blocks: {words.name_of(workload)}, {words.name_of(component)} energy"
        in_words = (
            f"{suite.label(name)} {words.interval_of(1 + min(c) / 100, 1 + max(c) / 100)}"
            for name, points in changes.items()
            if (c := points.values())
        )
        style.titled(figure, title, records.worst_origin(rows["origin"].unique()), in_words)
    return figure


def _together(axis: Axes, changes: Series) -> None:
    """Draw the mean of all configurations by block: the machine's own course."""
    blocks = sorted({block for values in changes.values() for block in values})
    by_block = [
        [values[block] for values in changes.values() if block in values] for block in blocks
    ]
    axis.plot(
        [block + 1 for block in blocks],
        [sum(values) / len(values) for values in by_block],
        color=style.INK,
        lw=2.2,
        zorder=3,
        label="all together",
    )


def _line(
    axis: Axes, values: Mapping[int, float], look: style.Look, label: str, crowded: bool
) -> None:
    axis.plot(
        [block + 1 for block in values],
        list(values.values()),
        color=look.colour,
        lw=0.6 if crowded else 0.9,
        marker="" if crowded else look.marker,
        markersize=4.5 if len(values) <= 20 else 3.5,
        markeredgecolor=style.INK if len(values) <= 20 else look.colour,
        markeredgewidth=0.5,
        label=label,
    )


def _ring(axis: Axes, series: Series, flagged: Collection[tuple[int, str]]) -> None:
    """Draw a ring at each flagged point of this panel."""
    points = [(b, name) for b, name in sorted(flagged) if b in series.get(name, {})]
    for block, name in points:
        at = (block + 1, series[name][block])
        axis.plot(
            *at,
            marker="o",
            markersize=11,
            markerfacecolor="none",
            markeredgecolor="#b00020",
            lw=0,
            zorder=5,
        )
