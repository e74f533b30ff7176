"""Changes with their 95 % intervals, a line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.report import words
from analysis.report.figures import style
from analysis.suite.records import Suite

if TYPE_CHECKING:  # slow to import
    from analysis.stats.comparison import Comparison
    from contract.command_results import Ratio as SuiteRatio

Ratio = tuple[float, float | None, float | None]  # with the limits of its interval
Limits = tuple[float, float]


class Line(NamedTuple):
    """A ratio with its name and look; hollow without a verdict; `text` follows it."""

    name: str
    ratio: Ratio
    look: style.Look
    hollow: bool
    text: str


Group = tuple[str, Sequence[Line]]  # with its heading
LINE_IN, AROUND_IN = 0.3, 0.85  # heights of a line, and of title and axis


def draw_overall(
    suite: Suite, component: str, compared: Mapping[str, Comparison], origin: str
) -> Figure | None:
    """Draw each configuration over all workloads; None without any comparison."""
    looks = style.palette(suite)
    lines = []
    for name in suite.configurations:
        if (c := compared.get(name)) is not None:
            hollow = c.verdict in ("inconclusive", "incomplete")
            ratio = c.ratio, c.low, c.high
            lines.append(Line(suite.label(name), ratio, looks[name], hollow, words.change_in(c)))
    baseline = suite.label(suite.baseline or "")
    # Room for the axis between the names and the changes.
    width_in = max(4.5, 0.14 * max((len(line.name) for line in lines), default=0))
    texts = f"Energy against {baseline}", f"{words.name_of(component)} against {baseline} (%)"
    return _draw([("", lines)], width_in, suite.margin, texts, origin)


def draw_ratios(
    suite: Suite, groups: Sequence[tuple[str, Sequence[tuple[str, str, SuiteRatio]]]], origin: str
) -> Figure | None:
    """Draw ratios of joules between suites: groups of (label, configuration, ratio)."""
    looks = style.palette(suite)
    lines: list[Group] = []
    for heading, ratios in groups:
        drawn = [
            Line(label, (r.ratio, r.low, r.high), looks[name], False, words.change_in(r))
            for label, name, r in ratios
            if name in looks
        ]
        lines += [(heading, drawn)] if drawn else []
    texts = "Energy against A", "Change over all workloads (%)"
    return _draw(lines, 5.0, suite.margin, texts, origin)


def arrow_note(figure: Figure) -> str:
    """Return the caption's note on arrows; empty if no interval runs off the edge."""
    markers = {line.get_marker() for line in figure.axes[0].lines}
    return " Arrow: the interval continues." if markers & {"<", ">"} else ""


def _draw(
    groups: Sequence[Group], width_in: float, margin: float, texts: tuple[str, str], origin: str
) -> Figure | None:
    """Draw groups of lines, the margin shaded; `texts` are the title and the axis's name."""
    ratios = [line.ratio for _, lines in groups for line in lines]
    if not ratios:
        return None
    height_in = AROUND_IN + LINE_IN * (len(ratios) + sum(bool(heading) for heading, _ in groups))
    with style.drawing(width_in, height_in, grid="x") as figure:
        axis = figure.subplots()
        axis.axvspan((1 / (1 + margin) - 1) * 100, margin * 100, color=style.BAND, zorder=0, lw=0)
        axis.axvline(0, color="#444444", lw=0.8)
        axis.set_xlim(*limits(ratios, margin))
        axis.set_xlabel(texts[1])
        names: list[tuple[str, str]] = []
        for heading, lines in groups:
            names += [(heading, "bold")] * bool(heading)
            for line in lines:
                _draw_line(axis, len(names), line)
                names.append((line.name, "normal"))
        axis.set_yticks(range(len(names)), [name for name, _ in names])
        for label, (_, weight) in zip(axis.get_yticklabels(), names, strict=True):
            label.set_fontweight(weight)
        axis.tick_params(axis="y", length=0, pad=9)  # room for arrows
        axis.set_ylim(len(names) - 0.3, -0.6)
        in_words = (
            f"{heading}: " * bool(heading) + ", ".join(f"{line.name} {line.text}" for line in lines)
            for heading, lines in groups
        )
        style.titled(figure, f"{texts[0]}, ±{margin * 100:g} % shaded", origin, in_words)
    return figure


def limits(ratios: Sequence[Ratio], margin: float) -> Limits:
    """Return the scale in % that shows every ratio; the widest intervals may run off it."""
    mids = [mid for mid, _, _ in ratios]
    lows = [low for _, low, _ in ratios if low is not None]
    highs = [high for _, _, high in ratios if high is not None]
    least, most = min(1.0, *mids), max(1.0, *mids)
    around, widest = 2.5 * margin, 10 * margin
    low = min(1 - around, *mids, max(min([1.0, *lows]), 1 - max(widest, 1.6 * (1 - least))))
    high = max(1 + around, *mids, min(max([1.0, *highs]), 1 + max(widest, 1.6 * (most - 1))))
    room = 0.04 * (high - low)
    return (low - room - 1) * 100, (high + room - 1) * 100


def _draw_line(axis: Axes, y: float, line: Line) -> None:
    """Draw the marker and its interval, which ends in an arrow if it runs off the edge."""
    mid, *ends = line.ratio
    least, most = axis.get_xlim()
    if ends[0] is not None and ends[1] is not None:
        low, high = (ends[0] - 1) * 100, (ends[1] - 1) * 100
        inside = [min(max(low, least), most), max(min(high, most), least)]
        axis.plot(inside, [y, y], color=style.INK, lw=1.2)
        for cut, edge, arrow in ((low < least, least, "<"), (high > most, most, ">")):
            if cut:
                axis.plot(edge, y, marker=arrow, markersize=5, color=style.INK, clip_on=False)
    axis.plot(
        (mid - 1) * 100,
        y,
        marker=line.look.marker,
        markersize=5.5,
        markeredgewidth=1.0,
        markerfacecolor="white" if line.hollow else line.look.colour,
        markeredgecolor=style.INK,
        zorder=3,
    )
    axis.annotate(
        line.text,
        (1.07, y),
        xycoords=axis.get_yaxis_transform(),
        va="center",
        fontsize=7.5,
        color=style.SOFT,
        annotation_clip=False,
    )
