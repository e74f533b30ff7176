"""Joules per unit of work by phase: what encrypts with what, where no disks are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.report.figures import style
from analysis.report.words import PhaseName, parse
from analysis.stats.stats import Estimate
from analysis.stats.summary import PerUnit

FEWEST = 2  # rows
FAR = 20.0  # beyond this ratio the scale is logarithmic


@dataclass(frozen=True)
class Point:
    """Joules of one unit: in the row `head`, of the kind `what`."""

    head: str
    what: str
    energy_j: Estimate


def points(rows: Sequence[PerUnit]) -> list[Point]:
    """One a row and kind, in the order of the phases: that of the largest number."""
    largest: dict[tuple[str, str], tuple[PhaseName, PerUnit]] = {}
    for row in rows:
        if row.energy_j is None or row.energy_j.mean <= 0:
            continue
        name = parse(row.phase)
        key = name.fields[0], " ".join(name.fields[1:])
        known = largest.get(key)
        if known is None or (name.number or 0) > (known[0].number or 0):
            largest[key] = name, row
    return _named({key: row for key, (_, row) in largest.items()})


def _named(rows: Mapping[tuple[str, str], PerUnit]) -> list[Point]:
    """Move what a single row alone has, as the settings of one function, to its name."""
    heads, kinds = (Counter(key[i] for key in rows) for i in (0, 1))
    return [
        Point(f"{head} {what}", "", row.energy_j)
        if what and heads[head] == kinds[what] == 1 and len(heads) > 1
        else Point(head, what, row.energy_j)
        for (head, what), row in rows.items()
        if row.energy_j is not None
    ]


def draw(rows: Sequence[PerUnit], title: str, origin: str) -> Figure | None:
    """Draw a row a cipher (or hash), a marker a direction (and kind of file), with 95 % intervals.

    `rows` are the phases of one configuration in one unit; None where they are few.
    """
    drawn = points(rows)
    heads = list(dict.fromkeys(point.head for point in drawn))
    kinds = list(dict.fromkeys(point.what for point in drawn))
    if len(heads) < FEWEST or len(kinds) > len(style.COLOURS):
        return None
    height = 1.3 + max(0.23, 0.09 * len(kinds)) * len(heads)
    with style.drawing(7.2, height, grid="x") as figure:
        axis = figure.subplots()
        for i, kind in enumerate(kinds):
            of_kind = [point for point in drawn if point.what == kind]
            shift = 0.5 * ((i + 0.5) / len(kinds) - 0.5)
            axis.errorbar(
                [point.energy_j.mean for point in of_kind],
                [heads.index(point.head) + shift for point in of_kind],
                xerr=[point.energy_j.half_width or 0.0 for point in of_kind],
                linestyle="none",
                marker=style.MARKERS[i],
                markersize=5,
                color=style.COLOURS[i],
                markeredgecolor=style.INK,
                markeredgewidth=0.5,
                ecolor=style.INK,
                elinewidth=1,
                label=kind,
            )
        _scales(axis, drawn, heads, rows[0].unit.one)
        if kinds != [""]:
            figure.legend(loc="outside lower center", ncols=min(3, len(kinds)))
        style.titled(figure, title, origin)
    return figure


def _scales(axis: Axes, drawn: Sequence[Point], heads: Sequence[str], unit: str) -> None:
    means = [point.energy_j.mean for point in drawn]
    if max(means) > FAR * min(means):
        axis.set_xscale("log")
        style.plain_logarithms(axis.xaxis)
    else:
        axis.set_xlim(left=0)
    axis.set_xlabel(f"Energy (J/{unit})")
    axis.set_yticks(range(len(heads)), list(heads))
    axis.set_ylim(len(heads) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
