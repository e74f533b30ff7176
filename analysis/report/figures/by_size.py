"""Joules per unit of work against the size of a request: the Polish paper's Figures 6, 8 and 10."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from analysis.report.figures import style
from analysis.report.words import parse, size
from analysis.stats.summary import PerUnit
from analysis.suite.records import Suite

FEWEST = 3  # sizes: fewer make no curve
MOST = 4  # panels


def series(rows: Sequence[PerUnit]) -> dict[str, dict[str, list[tuple[int, PerUnit]]]]:
    """By what is done and configuration: sizes in order, with their figures."""
    found: dict[str, dict[str, list[tuple[int, PerUnit]]]] = {}
    for row in rows:
        name = parse(row.phase)
        if name.number is None or name.unit != "B" or row.energy_j is None:
            continue
        by = found.setdefault(" ".join(name.fields), {})
        by.setdefault(row.configuration, []).append((name.number, row))
    return {
        what: {name: sorted(sizes, key=lambda one: one[0]) for name, sizes in by.items()}
        for what, by in found.items()
        if len({number for sizes in by.values() for number, _ in sizes}) >= FEWEST
    }


def draw(rows: Sequence[PerUnit], suite: Suite, title: str, origin: str) -> Figure | None:
    """A panel for each of what is done, a line a configuration, with 95 % intervals; both scales
    logarithmic. `rows` are phases in one unit; None where there are fewer than three sizes.
    """
    found = series(rows)
    if not 0 < len(found) <= MOST:
        return None
    with style.drawing(7.2, 3.4, grid="both") as figure:
        axes = figure.subplots(1, len(found), squeeze=False, sharey=True)[0]
        for axis, (what, by) in zip(axes, found.items(), strict=True):
            _lines(axis, by, suite)
            axis.set_title(what)
        axes[0].set_ylabel(f"Energy (J/{rows[0].unit.one})")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))
        style.titled(figure, title, origin)
    return figure


def _lines(axis: Axes, by: dict[str, list[tuple[int, PerUnit]]], suite: Suite) -> None:
    looks = style.palette(suite)
    for name, sizes in by.items():
        energies = [row.energy_j for _, row in sizes if row.energy_j]
        axis.errorbar(
            [number for number, _ in sizes],
            [energy.mean for energy in energies],
            yerr=[energy.half_width or 0.0 for energy in energies],
            color=looks[name].colour,
            marker=looks[name].marker,
            markeredgecolor=style.INK,
            markeredgewidth=0.5,
            markersize=4.5,
            capsize=2,
            lw=1.2,
            label=suite.label(name),
        )
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    style.plain_logarithms(axis.yaxis)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: size(round(x))))
    axis.tick_params(axis="x", rotation=45)
    axis.set_xlabel("Size of a request")
