"""Joules and seconds per unit of work against a number in the phases' names.

The size of a request (the Polish paper's Figures 6, 8 and 10), threads, requests in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from analysis.report.figures import style
from analysis.report.words import parse, size
from analysis.stats.stats import Estimate
from analysis.stats.summary import PerUnit
from analysis.suite.records import Suite

FEWEST = 3  # sizes: fewer make no curve
MOST = 4  # panels


# What the number is, by its unit, on the axis below.
AXES = {"B": "Size of request", "t": "Threads", "q": "Requests in flight"}


def series(
    rows: Sequence[PerUnit], unit: str = "B"
) -> dict[str, dict[str, list[tuple[int, PerUnit]]]]:
    """By what is done and configuration: numbers of the unit in order, with their figures."""
    by_kind: dict[str, dict[str, list[tuple[int, PerUnit]]]] = {}
    for row in rows:
        name = parse(row.phase)
        if name.number is None or name.unit != unit or row.energy_j is None:
            continue
        by = by_kind.setdefault(" ".join(name.fields), {})
        by.setdefault(row.configuration, []).append((name.number, row))
    return {
        what: {name: sorted(sizes, key=lambda point: point[0]) for name, sizes in by.items()}
        for what, by in by_kind.items()
        if len({number for sizes in by.values() for number, _ in sizes}) >= FEWEST
    }


def draw(
    rows: Sequence[PerUnit], suite: Suite, title: str, origin: str, unit: str = "B"
) -> Figure | None:
    """Return a panel for each of what is done, a line a configuration, with 95 % intervals.

    Both scales logarithmic. Below those of joules, unless it is of sizes, one of seconds, which go
    down where a higher power is worth it. `rows` are phases in one unit of work; None where there
    are fewer than three numbers of `unit`.
    """
    by_kind = series(rows, unit)
    if not 0 < len(by_kind) <= MOST:
        return None
    timed = unit != "B"
    with style.drawing(7.2, 5.8 if timed else 3.4, grid="both") as figure:
        grid = figure.subplots(1 + timed, len(by_kind), squeeze=False, sharey="row")
        work = rows[0].unit.one
        for quantity, axes in zip(
            (lambda row: row.energy_j and _ends(row.energy_j), _time), grid, strict=False
        ):
            for axis, (what, by) in zip(axes, by_kind.items(), strict=True):
                _lines(axis, by, suite, quantity)
                _below(axis, unit)
                axis.set_title(what)
        grid[0, 0].set_ylabel(f"Energy (J/{work})")
        if timed:
            grid[1, 0].set_ylabel(f"Time (s/{work})")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))
        style.titled(figure, title, origin)
    return figure


Ends = tuple[float, float, float]  # a mean, and its interval


def _time(row: PerUnit) -> Ends | None:
    """From units a second; an interval that reaches 0 of them has no end here."""
    if row.rate is None or row.rate.mean <= 0:
        return None
    mean, low, high = _ends(row.rate)
    return 1 / mean, 1 / high, 1 / (low if low > 0 else mean)


def _ends(value: Estimate) -> Ends:
    half = value.half_width or 0.0
    return value.mean, value.mean - half, value.mean + half


def _lines(
    axis: Axes,
    by: dict[str, list[tuple[int, PerUnit]]],
    suite: Suite,
    quantity: Callable[[PerUnit], Ends | None],
) -> None:
    looks = style.palette(suite)
    for name, numbers in by.items():
        points = [(number, q) for number, row in numbers if (q := quantity(row)) is not None]
        axis.errorbar(
            [number for number, _ in points],
            [mean for _, (mean, _, _) in points],
            yerr=[
                [mean - low for _, (mean, low, _) in points],
                [high - mean for _, (mean, _, high) in points],
            ],
            color=looks[name].colour,
            marker=looks[name].marker,
            markeredgecolor=style.INK,
            markeredgewidth=0.5,
            markersize=4.5,
            capsize=2,
            lw=1.2,
            label=suite.label(name),
        )


def _below(axis: Axes, unit: str) -> None:
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    style.plain_logarithms(axis.yaxis)
    as_size = unit == "B"
    axis.xaxis.set_major_formatter(
        FuncFormatter(lambda x, _: size(round(x)) if as_size else f"{x:g}")
    )
    if as_size:
        axis.tick_params(axis="x", rotation=45)
    axis.set_xlabel(AXES[unit])
