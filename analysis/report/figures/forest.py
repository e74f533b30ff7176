"""Changes with their 95 % intervals, a line each, on sheets of one scale that fit a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.report import words
from analysis.report.figures import style
from analysis.suite.records import Suite

if TYPE_CHECKING:  # slow to import
    from analysis.stats.comparison import Comparison
    from analysis.stats.summary import Key
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


@dataclass(frozen=True)
class Layout:
    """A picture's most lines, heights in inches, and free lines above.

    More lines would not fit an upright sheet.
    """

    most: int
    line_in: float
    around_in: float
    top: float
    width_in: float = 7.2
    labelled: bool = True  # with each line's figures in words


def draw(
    versus: Mapping[Key, Comparison], suite: Suite, component: str, origin: str
) -> list[Figure]:
    """Draw changes of joules against the baseline, a line for each workload × configuration.

    As many pictures as needed, all with the same scale; none without any ratio.
    """
    groups: list[Group] = []
    for workload in suite.workloads:
        compared = {key[1]: c for key, c in versus.items() if key[::3] == (workload, component)}
        if lines := _lines(suite, compared):
            groups.append((words.name_of(workload), lines))
    baseline = suite.base_label
    axis = f"Change of the {words.name_of(component)}'s energy against {baseline} (%)"
    # The page's first table has the figures.
    layout = Layout(most=34, line_in=0.19, around_in=1.0, top=-0.7, width_in=6.0, labelled=False)
    return _sheets(groups, layout, suite.margin, (f"Energy against {baseline}", axis), origin)


def draw_overall(
    suite: Suite, component: str, compared: Mapping[str, Comparison], origin: str
) -> Figure | None:
    """Draw each configuration over all workloads; None without any comparison."""
    lines, baseline = _lines(suite, compared), suite.label(suite.baseline or "")
    # Room for the axis between the names and the changes.
    width_in = max(4.5, 0.14 * max((len(line.name) for line in lines), default=0))
    layout = Layout(most=40, line_in=0.3, around_in=0.85, top=0.4, width_in=width_in)
    texts = f"Energy against {baseline}", f"{words.name_of(component)} against {baseline} (%)"
    return next(iter(_sheets([("", lines)], layout, suite.margin, texts, origin)), None)


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
    layout = Layout(most=1000, line_in=0.3, around_in=0.85, top=0.4, width_in=5.0)
    texts = "Energy against A", "Change over all workloads (%)"
    return next(iter(_sheets(lines, layout, suite.margin, texts, origin)), None)


def arrow_note(figure: Figure) -> str:
    """Return the caption's note on arrows; empty if no interval runs off the edge."""
    markers = {line.get_marker() for line in figure.axes[0].lines}
    return " Arrow: the interval continues." if markers & {"<", ">"} else ""


def _lines(suite: Suite, compared: Mapping[str, Comparison]) -> list[Line]:
    """Return a line for each configuration, with the interval that decides."""
    looks = style.palette(suite)
    lines = []
    for name in suite.configurations:
        if (c := compared.get(name)) is not None:
            hollow = c.verdict in ("inconclusive", "incomplete")
            ratio = c.ratio, c.low, c.high
            lines.append(Line(suite.label(name), ratio, looks[name], hollow, words.change_in(c)))
    return lines


def _sheets(
    groups: Sequence[Group], layout: Layout, margin: float, texts: tuple[str, str], origin: str
) -> list[Figure]:
    """Draw sheets of whole groups; `texts` are the title and the axis's name."""
    ratios = [line.ratio for _, lines in groups for line in lines]
    if not ratios:
        return []
    scale = limits(ratios, margin)
    sheets: list[list[Group]] = [[]]
    for group in groups:
        if sheets[-1] and _height([*sheets[-1], group]) > layout.most:
            sheets.append([])
        sheets[-1].append(group)
    title = f"{texts[0]}, ±{margin * 100:g} % shaded"
    figures = []
    for number, sheet in enumerate(sheets, start=1):
        part = f", {number} of {len(sheets)}" if len(sheets) > 1 else ""
        height_in = layout.around_in + layout.line_in * _height(sheet)
        with style.drawing(layout.width_in, height_in, grid="x") as figure:
            _sheet(figure.subplots(), sheet, layout, scale, margin)
            figure.axes[0].set_xlabel(texts[1])
            shown = (
                f"{heading}: {in_words}" if heading else in_words
                for heading, lines in sheet
                if (in_words := ", ".join(f"{line.name} {line.text}" for line in lines))
            )
            style.titled(figure, title + part, origin, shown)
        figures.append(figure)
    return figures


def _height(groups: Sequence[Group]) -> int:
    """Count the lines of groups with their headings."""
    return sum(1 + len(lines) for _, lines in groups)


def limits(ratios: Sequence[Ratio], margin: float) -> Limits:
    """Return the scale in % that shows every ratio; the widest intervals may run off it."""
    mids = [mid for mid, _, _ in ratios]
    lows = [low for _, low, _ in ratios if low is not None]
    highs = [high for _, _, high in ratios if high is not None]
    around = 2.5 * margin
    low = min(1 - around, *mids, max(min([1.0, *lows]), 1 - 1.6 * (1 - min(1.0, *mids))))
    high = max(1 + around, *mids, min(max([1.0, *highs]), 1 + 1.6 * (max(1.0, *mids) - 1)))
    room = 0.04 * (high - low)
    return (low - room - 1) * 100, (high + room - 1) * 100


def _sheet(
    axis: Axes, groups: Sequence[Group], layout: Layout, scale: Limits, margin: float
) -> None:
    """Draw one sheet, with the margin shaded and headings in bold."""
    axis.axvspan((1 / (1 + margin) - 1) * 100, margin * 100, color=style.BAND, zorder=0, lw=0)
    axis.axvline(0, color="#444444", lw=0.8)
    axis.set_xlim(*scale)
    names: list[tuple[str, str]] = []
    for heading, lines in groups:
        names.append((heading, "bold"))
        for line in lines:
            _draw_line(axis, len(names), line, layout.labelled)
            names.append((line.name, "normal"))
    axis.set_yticks(range(len(names)), [name for name, _ in names])
    for label, (_, weight) in zip(axis.get_yticklabels(), names, strict=True):
        label.set_fontweight(weight)
    axis.tick_params(axis="y", length=0, pad=9)  # room for arrows
    axis.set_ylim(len(names) - 0.3, layout.top)


def _draw_line(axis: Axes, y: float, line: Line, labelled: bool) -> None:
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
    if not labelled:
        return
    axis.annotate(
        line.text,
        (1.07, y),
        xycoords=axis.get_yaxis_transform(),
        va="center",
        fontsize=7.5,
        color=style.SOFT,
        annotation_clip=False,
    )
