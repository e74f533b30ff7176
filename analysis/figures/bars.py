"""The paper's Figures 1–6 from our data, and the ratios: colour-blind safe, fit for print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import words
from analysis.inference.stats import Estimate
from analysis.records import BASELINE, Suite
from analysis.summary import block_values, estimate_of, joint_origin

# Okabe and Ito's colours; the hatches keep the bars apart where there is no colour at all.
COLOURS = {
    "plain": ("#9a9a9a", ""),
    "opal": ("#0072B2", "//"),
    "dmcrypt-aes128": ("#E69F00", ".."),
    "dmcrypt-aes256": ("#D55E00", "xx"),
}
SPARE = (("#009E73", "\\\\"), ("#CC79A7", "++"), ("#56B4E9", "--"), ("#F0E442", "oo"))
PARTS = ("package-0", "dram", "drive")
SYSTEM = "system"
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "svg.hashsalt": "fde",
}
Quantity = Literal["energy_j", "power_w"]
UNITS: Mapping[Quantity, str] = {"energy_j": "Energy (J)", "power_w": "Mean power (W)"}


@dataclass(frozen=True)
class Plot:
    """What one bar figure shows. `paper` is the paper's number of it, 0 where it has none."""

    paper: int
    workload: str
    phase: str
    quantity: Quantity
    parts: bool
    title: str


PLOTS = (
    Plot(1, "file_io", "write-small", "power_w", True, "Power per component, small-file writes"),
    Plot(2, "file_io", "read-small", "energy_j", True, "Energy per component, small-file reads"),
    Plot(3, "file_io", "read-small", "power_w", True, "Power per component, small-file reads"),
    Plot(4, "kernel_tree", "all", "energy_j", False, "System energy, kernel tree, all phases"),
    Plot(5, "kernel_grep", "all", "energy_j", True, "Energy per component, kernel grep"),
    Plot(6, "video", "all", "energy_j", False, "System energy, video"),
    Plot(0, "sql", "all", "energy_j", True, "Energy per component, SQL"),
    Plot(0, "idle", "all", "power_w", True, "Power per component, idle"),
)


def draw(plot: Plot, energy: pl.DataFrame, suite: Suite) -> Figure | None:
    """Bars with 95 % intervals and one dot a block; None where the suite has nothing to show."""
    rows = energy.filter((pl.col("workload") == plot.workload) & (pl.col("phase") == plot.phase))
    there = set(rows.filter(pl.col(plot.quantity).is_not_null())["component"])
    parts = [c for c in PARTS if c in there] if plot.parts else []
    panels = [group for group in (parts, [SYSTEM] if SYSTEM in there else []) if group]
    if not panels:
        return None
    shown = rows.filter(pl.col("component").is_in([c for group in panels for c in group]))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.4, 3.3), layout="constrained")
        axes = figure.subplots(
            1, len(panels), squeeze=False, width_ratios=[max(1.0, len(g)) for g in panels]
        )[0]
        configurations = [c for c in suite.configurations if c in set(shown["configuration"])]
        for axis, group in zip(axes, panels, strict=True):
            _bars(axis, plot, energy, configurations, group)
        axes[0].set_ylabel(UNITS[plot.quantity])
        figure.suptitle(
            with_origin(plot.title, joint_origin(shown)),
            x=0.01,
            ha="left",
            fontsize=10,
            fontweight="bold",
        )
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))
    return figure


def with_origin(title: str, origin: str) -> str:
    """The title, with the word *modelled* where the figures are."""
    return f"{title} (modelled)" if origin == "modelled" else title


def colour(configuration: str) -> tuple[str, str]:
    """Colour and hatch of a configuration, the same in every figure."""
    if configuration in COLOURS:
        return COLOURS[configuration]
    return SPARE[sum(configuration.encode()) % len(SPARE)]


def _bars(
    axis: Axes, plot: Plot, energy: pl.DataFrame, configurations: list[str], components: list[str]
) -> None:
    width = 0.8 / max(1, len(configurations))
    for i, configuration in enumerate(configurations):
        face, hatch = colour(configuration)
        for j, component in enumerate(components):
            values = block_values(
                energy,
                plot.workload,
                configuration,
                component,
                phase=plot.phase,
                column=plot.quantity,
            )
            mean = estimate_of(values)
            if mean is None:
                continue
            x = j + (i - (len(configurations) - 1) / 2) * width
            label = words.name_of(configuration) if j == 0 else None
            axis.bar(
                x,
                mean.mean,
                width * 0.92,
                color=face,
                hatch=hatch,
                edgecolor="white",
                linewidth=0.5,
                label=label,
            )
            _whisker(axis, x, mean)
            spread = np.linspace(-0.22, 0.22, len(values)) * width if len(values) > 1 else [0.0]
            axis.plot(
                x + np.asarray(spread),
                list(values.values()),
                linestyle="none",
                marker="o",
                markersize=2.6,
                markerfacecolor="white",
                markeredgecolor="#222222",
                markeredgewidth=0.6,
            )
    axis.set_xticks(range(len(components)), [words.name_of(c) for c in components])
    axis.tick_params(axis="x", length=0)
    axis.set_ylim(bottom=0)


def _whisker(axis: Axes, x: float, mean: Estimate) -> None:
    if mean.half_width is not None:
        axis.errorbar(x, mean.mean, yerr=mean.half_width, color="#222222", capsize=2.5, lw=1)


def forest(summary: pl.DataFrame, suite: Suite, component: str = SYSTEM) -> Figure | None:
    """Ratio of joules to plain with its 95 % interval, one line a workload × configuration."""
    rows = summary.filter(
        (pl.col("component") == component)
        & (pl.col("configuration") != BASELINE)
        & pl.col("ratio").is_not_null()
    )
    if rows.is_empty():
        return None
    workloads = [w for w in suite.workloads if w in set(rows["workload"])]
    configurations = [c for c in suite.configurations if c in set(rows["configuration"])]
    with mpl.rc_context({**STYLE, "axes.grid.axis": "x"}):
        figure = Figure(
            figsize=(5.4, 1.3 + 0.2 * len(workloads) * (len(configurations) + 1)),
            layout="constrained",
        )
        axis = figure.subplots()
        axis.axvspan(1 / (1 + suite.margin), 1 + suite.margin, color="#e4eef5", zorder=0)
        axis.axvline(1, color="#444444", lw=0.8)
        _limits(axis, rows)
        for row in rows.iter_rows(named=True):
            lane = workloads.index(row["workload"]) * (len(configurations) + 1)
            y = lane + configurations.index(row["configuration"])
            _interval(axis, y, row)
        ticks = [
            w * (len(configurations) + 1) + (len(configurations) - 1) / 2
            for w in range(len(workloads))
        ]
        axis.set_yticks(ticks, [words.name_of(w) for w in workloads])
        axis.tick_params(axis="y", length=0)
        axis.invert_yaxis()
        axis.set_xlabel(f"{words.name_of(component).capitalize()} energy, ratio to plain")
        title = f"Energy beside plain, ±{suite.margin * 100:g} % shaded"
        axis.set_title(with_origin(title, joint_origin(rows)))
        for configuration in configurations:
            axis.plot(
                [],
                [],
                marker="o",
                ms=5,
                color=colour(configuration)[0],
                label=words.name_of(configuration),
            )
        figure.legend(loc="outside lower center", ncols=min(3, len(configurations)))
    return figure


def _interval(axis: Axes, y: float, row: Mapping[str, Any]) -> None:
    face = colour(str(row["configuration"]))[0]
    low, high = row["ratio_low"], row["ratio_high"]
    if low is not None and high is not None:
        left, right = axis.get_xlim()
        axis.plot([low, high], [y, y], color=face, lw=1.8, solid_capstyle="butt")
        for cut, edge, arrow in ((low < left, left, "<"), (high > right, right, ">")):
            if cut:
                axis.plot(edge, y, marker=arrow, markersize=6, color=face, clip_on=False)
    filled = row["verdict"] != "inconclusive"
    axis.plot(
        row["ratio"],
        y,
        marker="o",
        markersize=5,
        markeredgewidth=1.3,
        markerfacecolor=face if filled else "white",
        markeredgecolor=face,
    )


def _limits(axis: Axes, rows: pl.DataFrame) -> None:
    """Show every ratio; an interval of the widest kind may run off the edge."""
    ratios = [v for v in rows["ratio"].to_list() if v is not None]
    lows = [v for v in rows["ratio_low"].to_list() if v is not None]
    highs = [v for v in rows["ratio_high"].to_list() if v is not None]
    low = min(0.95, *ratios, max(min([1.0, *lows]), 0.7 * min(ratios)))
    high = max(1.05, *ratios, min(max([1.0, *highs]), 1.5 * max(ratios)))
    room = 0.04 * (high - low)
    axis.set_xlim(low - room, high + room)
