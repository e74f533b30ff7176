"""Changes with their intervals, a line each, on sheets of one scale: what both forests share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.report import words
from analysis.report.figures import style

WIDTH_IN = 7.2
Ratio = tuple[float, float | None, float | None]  # with the limits of its interval
Limits = tuple[float, float]
Tick = tuple[float, str, bool]  # where, what, and whether it is a heading
Row = TypeVar("Row")


def sheets(
    by: Mapping[str, Sequence[Row]], lines: Callable[[Sequence[Row]], int], most: int
) -> Iterator[dict[str, Sequence[Row]]]:
    """Whole groups, as many as a sheet of `most` lines holds."""
    sheet: dict[str, Sequence[Row]] = {}
    used = 0
    for name, rows in by.items():
        if sheet and used + lines(rows) > most:
            yield sheet
            sheet, used = {}, 0
        sheet[name] = rows
        used += lines(rows)
    if sheet:
        yield sheet


def limits(ratios: Iterable[Ratio], margin: float) -> Limits:
    """In %: show every ratio; an interval of the widest kind may run off the edge."""
    found = list(ratios)
    mids = [mid for mid, _, _ in found]
    lows = [low for _, low, _ in found if low is not None]
    highs = [high for _, _, high in found if high is not None]
    around = 2.5 * margin
    low = min(1 - around, *mids, max(min([1.0, *lows]), 1 - 1.6 * (1 - min(1.0, *mids))))
    high = max(1 + around, *mids, min(max([1.0, *highs]), 1 + 1.6 * (max(1.0, *mids) - 1)))
    room = 0.04 * (high - low)
    return (low - room - 1) * 100, (high + room - 1) * 100


def frame(height_in: float, scale: Limits, margin: float) -> tuple[Figure, Axes]:
    """An empty sheet with the margin shaded."""
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    axis = figure.subplots()
    axis.axvspan((1 / (1 + margin) - 1) * 100, margin * 100, color=style.BAND, zorder=0, lw=0)
    axis.axvline(0, color="#444444", lw=0.8)
    axis.set_xlim(*scale)
    return figure, axis


def interval(axis: Axes, y: float, ratio: Ratio, look: tuple[str, str], inconclusive: bool) -> None:
    """A ratio as a marker (`look`: colour, marker), hollow where inconclusive, and its interval.

    An interval that runs off the edge ends in an arrow.
    """
    (mid, *ends), (colour, marker) = ratio, look
    left, right = axis.get_xlim()
    if ends[0] is not None and ends[1] is not None:
        low, high = (ends[0] - 1) * 100, (ends[1] - 1) * 100
        inside = [min(max(low, left), right), max(min(high, right), left)]
        axis.plot(inside, [y, y], color=style.INK, lw=1.2)
        for cut, edge, arrow in ((low < left, left, "<"), (high > right, right, ">")):
            if cut:
                axis.plot(edge, y, marker=arrow, markersize=5, color=style.INK, clip_on=False)
    axis.plot(
        (mid - 1) * 100,
        y,
        marker=marker,
        markersize=5.5,
        markeredgewidth=1.0,
        markerfacecolor="white" if inconclusive else colour,
        markeredgecolor=style.INK,
        zorder=3,
    )


def remark(axis: Axes, y: float, ratio: Ratio, more: str = "") -> None:
    """The change in words, right of its line."""
    axis.annotate(
        words.change_of(*ratio) + more,
        (1.025, y),
        xycoords=axis.get_yaxis_transform(),
        va="center",
        fontsize=7.5,
        color=style.SOFT,
        annotation_clip=False,
    )


def label(axis: Axes, ticks: Sequence[Tick], ends: Limits, what: str) -> None:
    """Names of the lines, headings in bold; `what` names the horizontal axis."""
    axis.set_yticks([at for at, _, _ in ticks], [text for _, text, _ in ticks])
    for name, (_, _, bold) in zip(axis.get_yticklabels(), ticks, strict=True):
        name.set_fontweight("bold" if bold else "normal")
    axis.tick_params(axis="y", length=0, pad=9)  # room for arrows
    axis.set_ylim(*ends)
    axis.set_xlabel(what)
