"""Bars with their intervals: the paper's Figures 1–6 from our data, and others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.report import words
from analysis.report.figures import style
from analysis.stats.summary import block_values, estimate_of, other_channels
from analysis.suite import records
from analysis.suite.records import SYSTEM, Suite
from contract.estimates import Estimate

PARTS = ("package", "package-0", "dram", "drive")
HEIGHT = 0.8  # of a row, for a bar
DOTS = 12  # most blocks that have dots; more would hide the bar
# Positions of n dots across a bar of width 1.
SPREADS = {n: np.linspace(-0.22, 0.22, n).tolist() if n > 1 else [0.0] for n in range(DOTS + 1)}
Quantity = Literal["energy_j", "power_w"]
UNITS: Mapping[Quantity, str] = {"energy_j": "Energy (J)", "power_w": "Mean power (W)"}


@dataclass(frozen=True)
class Plot:
    """A bar figure. `paper` is its number in the paper, 0 if it has none."""

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
    Plot(0, "idle", "all", "power_w", True, "Power per component, idle"),
)


@dataclass(frozen=True)
class Bar:
    """The blocks' values of one configuration in one component, and their mean."""

    configuration: str
    values: tuple[float, ...]
    mean: Estimate


def plots_of(workload: str) -> tuple[Plot, ...]:
    """Return a workload's pictures: the paper's figures of it, else energy by component."""
    plots = tuple(plot for plot in PLOTS if plot.workload == workload)
    title = f"Energy per component, {words.name_of(workload)}"
    return plots or (Plot(0, workload, "all", "energy_j", True, title),)


def draw(plot: Plot, energy: pl.DataFrame, suite: Suite) -> Figure | None:
    """Draw bars with 95 % intervals and, for few blocks, dots; None without values."""
    rows = energy.filter(workload=plot.workload, phase=plot.phase)
    components = set(rows.filter(pl.col(plot.quantity).is_not_null())["component"])
    parts = [*PARTS, *other_channels(rows)] if plot.parts else []
    panels = [c for c in parts if c in components]
    if "package" in panels:  # of several packages or dies: what they take together
        panels = [c for c in panels if c != "package-0"]
    panels += [SYSTEM] if SYSTEM in components else []
    by_component = {c: bars for c in panels if (bars := _bars_of(plot, energy, suite, c))}
    if not by_component:
        return None
    shown = rows.filter(pl.col("component").is_in(panels))
    drawn = {bar.configuration for bars in by_component.values() for bar in bars}
    names = [name for name in suite.configurations if name in drawn]
    with style.drawing(7.2, 1.1 + 0.23 * max(4, len(names)), grid="x") as figure:
        _panels(figure, plot, by_component, suite, names)
        origin = records.worst_origin(shown["origin"].unique())
        unit = UNITS[plot.quantity].partition("(")[2].rstrip(")")
        in_words = (
            f"{words.name_of(component)}: "
            + ", ".join(
                f"{suite.label(bar.configuration)} {words.plus_minus(bar.mean, unit)}"
                for bar in bars
            )
            for component, bars in by_component.items()
        )
        style.titled(figure, plot.title, origin, in_words)
    return figure


def _bars_of(plot: Plot, energy: pl.DataFrame, suite: Suite, component: str) -> list[Bar]:
    bars = []
    for name in suite.configurations:
        values = block_values(
            energy, plot.workload, name, component, phase=plot.phase, column=plot.quantity
        )
        mean = estimate_of(values)
        if mean is not None:
            bars.append(Bar(name, tuple(values.values()), mean))
    return bars


def _panels(
    figure: Figure,
    plot: Plot,
    by_component: Mapping[str, list[Bar]],
    suite: Suite,
    names: Sequence[str],
) -> None:
    """Draw a panel for each component, with a row for each configuration."""
    looks = style.palette(suite)
    axes: Sequence[Axes] = figure.subplots(1, len(by_component), squeeze=False, sharey=True)[0]
    for axis, (component, bars) in zip(axes, by_component.items(), strict=True):
        for bar in bars:
            look = looks[bar.configuration]
            axis.barh(
                names.index(bar.configuration),
                bar.mean.mean,
                HEIGHT * 0.92,
                color=look.colour,
                hatch=look.hatch,
                edgecolor=look.hatch_colour,
                linewidth=0.5,
            )
        _whiskers_and_dots(axis, [(bar, names.index(bar.configuration)) for bar in bars])
        axis.set_xlim(left=0)
        axis.locator_params(axis="x", nbins=4)
        title = words.name_of(component)
        axis.set_title(title[0].upper() + title[1:])
        axis.set_xlabel(UNITS[plot.quantity])
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(names)), [suite.label(name) for name in names])
    axes[0].invert_yaxis()


def _whiskers_and_dots(axis: Axes, placed: Sequence[tuple[Bar, int]]) -> None:
    """Draw those of all bars at once, because single calls take most of a picture's time."""
    whiskers = [
        (place, bar.mean.mean, half)
        for bar, place in placed
        if (half := bar.mean.half_width) is not None
    ]
    if whiskers:
        places, means, halves = zip(*whiskers, strict=True)
        axis.errorbar(
            means, places, xerr=halves, fmt="none", ecolor=style.INK, capsize=2.5, elinewidth=1
        )
    dots = [
        (place + shift * HEIGHT, value)
        for bar, place in placed
        if len(bar.values) <= DOTS
        for shift, value in zip(SPREADS[len(bar.values)], bar.values, strict=True)
    ]
    if dots:
        along, values = zip(*dots, strict=True)
        axis.plot(
            values,
            along,
            linestyle="none",
            marker="o",
            markersize=2.6,
            markerfacecolor="white",
            markeredgecolor=style.INK,
            markeredgewidth=0.6,
        )
