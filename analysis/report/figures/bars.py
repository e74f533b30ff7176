"""Bars with their intervals: the paper's Figures 1–6 from our data, and the like for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from analysis.report import words
from analysis.report.figures import style
from analysis.stats.stats import Estimate
from analysis.stats.summary import block_values, estimate_of
from analysis.suite import records
from analysis.suite.records import SYSTEM, Suite

PARTS = ("package", "package-0", "dram", "drive")
UPRIGHT = 5  # up to so many configurations stand beside each other; more lie one below the other
DOTS = 12  # up to so many blocks each has its dot; more would hide the bar
# Where so many dots stand across a bar of width 1.
SPREADS = {n: np.linspace(-0.22, 0.22, n).tolist() if n > 1 else [0.0] for n in range(DOTS + 1)}
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
    Plot(0, "idle", "all", "power_w", True, "Power per component, idle"),
)


@dataclass(frozen=True)
class Bar:
    """The blocks' values of one configuration in one component, and their mean."""

    configuration: str
    values: tuple[float, ...]
    mean: Estimate


Placed = tuple[Bar, float, float]  # with its place and width along the axis of names


def plots_of(workload: str) -> tuple[Plot, ...]:
    """What is drawn of a workload: the paper's figures of it, else the energy of its components."""
    known = tuple(plot for plot in PLOTS if plot.workload == workload)
    title = f"Energy per component, {words.name_of(workload)}"
    return known or (Plot(0, workload, "all", "energy_j", True, title),)


def draw(plot: Plot, energy: pl.DataFrame, suite: Suite) -> Figure | None:
    """Bars with 95 % intervals and, for few blocks, a dot each; None where there is nothing."""
    rows = energy.filter((pl.col("workload") == plot.workload) & (pl.col("phase") == plot.phase))
    components = set(rows.filter(pl.col(plot.quantity).is_not_null())["component"])
    panels = [c for c in PARTS if c in components] if plot.parts else []
    if "package" in panels:  # of several packages or dies: what they take together
        panels = [c for c in panels if c != "package-0"]
    panels += [SYSTEM] if SYSTEM in components else []
    by_component = {c: bars for c in panels if (bars := _bars_of(plot, energy, suite, c))}
    if not by_component:
        return None
    shown = rows.filter(pl.col("component").is_in(panels))
    upright = max(map(len, by_component.values())) <= UPRIGHT
    components = {bar.configuration for bars in by_component.values() for bar in bars}
    size_in = (5.4, 3.3) if upright else (7.2, 1.1 + 0.23 * len(components))
    with style.drawing(*size_in, grid="y" if upright else "x") as figure:
        (_upright if upright else _lying)(figure, plot, by_component, suite)
        style.titled(figure, plot.title, records.joint(shown["origin"].unique()))
    return figure


def has_dots(plot: Plot, energy: pl.DataFrame) -> bool:
    """Whether each block has its dot in the picture."""
    return int(energy.filter(pl.col("workload") == plot.workload)["block"].n_unique()) <= DOTS


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


def _upright(
    figure: Figure, plot: Plot, by_component: Mapping[str, list[Bar]], suite: Suite
) -> None:
    """Groups by component beside each other; the whole system has a scale of its own."""
    looks = style.palette(suite)
    groups = [[c for c in by_component if c != SYSTEM], [c for c in by_component if c == SYSTEM]]
    groups = [group for group in groups if group]
    widths = [max(1.0, len(group)) for group in groups]
    axes = figure.subplots(1, len(groups), squeeze=False, width_ratios=widths)[0]
    containers: dict[str, BarContainer] = {}
    for axis, group in zip(axes, groups, strict=True):
        placed = [
            (bar, j + (i - (len(by_component[component]) - 1) / 2) * width, width)
            for j, component in enumerate(group)
            for width in (0.8 / len(by_component[component]),)
            for i, bar in enumerate(by_component[component])
        ]
        for one in placed:
            name = one[0].configuration
            containers.setdefault(name, _bar(axis, one, looks[name], True))
        _whiskers_and_dots(axis, placed, True)
        axis.set_xticks(range(len(group)), [words.name_of(c) for c in group])
        axis.tick_params(axis="x", length=0)
        axis.set_ylim(bottom=0)
        axis.set_ylabel(UNITS[plot.quantity])
    labels = [suite.label(name) for name in containers]
    columns = 2 if max(map(len, labels)) > 20 else min(4, len(labels))
    figure.legend(
        [bar[0] for bar in containers.values()], labels, loc="outside lower center", ncols=columns
    )


def _lying(figure: Figure, plot: Plot, by_component: Mapping[str, list[Bar]], suite: Suite) -> None:
    """A row a configuration, named at its left, a panel a component."""
    looks = style.palette(suite)
    drawn = {bar.configuration for bars in by_component.values() for bar in bars}
    names = [name for name in suite.configurations if name in drawn]
    axes: Sequence[Axes] = figure.subplots(1, len(by_component), squeeze=False, sharey=True)[0]
    for axis, (component, bars) in zip(axes, by_component.items(), strict=True):
        placed = [(bar, float(names.index(bar.configuration)), 0.8) for bar in bars]
        for one in placed:
            _bar(axis, one, looks[one[0].configuration], False)
        _whiskers_and_dots(axis, placed, False)
        axis.set_xlim(left=0)
        axis.locator_params(axis="x", nbins=4)
        title = words.name_of(component)
        axis.set_title(title[0].upper() + title[1:])
        axis.set_xlabel(UNITS[plot.quantity])
    axes[0].set_yticks(range(len(names)), [suite.label(name) for name in names])
    axes[0].invert_yaxis()
    for axis in axes:
        axis.tick_params(axis="y", length=0)


def _bar(axis: Axes, placed: Placed, look: style.Look, upright: bool) -> BarContainer:
    bar, place, width = placed
    return (axis.bar if upright else axis.barh)(
        place,
        bar.mean.mean,
        width * 0.92,
        color=look.colour,
        hatch=look.hatch,
        edgecolor=look.hatch_colour,
        linewidth=0.5,
    )


def _whiskers_and_dots(axis: Axes, all_placed: Sequence[Placed], upright: bool) -> None:
    """Of all bars at once: one by one they take most of the time that a picture takes."""
    whiskers = [
        (place, bar.mean.mean, half)
        for bar, place, _ in all_placed
        if (half := bar.mean.half_width) is not None
    ]
    if whiskers:
        places, means, halves = zip(*whiskers, strict=True)
        x, y = (places, means) if upright else (means, places)
        axis.errorbar(
            x,
            y,
            xerr=None if upright else halves,
            yerr=halves if upright else None,
            fmt="none",
            ecolor=style.INK,
            capsize=2.5,
            elinewidth=1,
        )
    dots = [
        (place + shift * width, value)
        for bar, place, width in all_placed
        if len(bar.values) <= DOTS
        for shift, value in zip(SPREADS[len(bar.values)], bar.values, strict=True)
    ]
    if dots:
        along, values = zip(*dots, strict=True)
        axis.plot(
            *((along, values) if upright else (values, along)),
            linestyle="none",
            marker="o",
            markersize=2.6,
            markerfacecolor="white",
            markeredgecolor=style.INK,
            markeredgewidth=0.6,
        )
