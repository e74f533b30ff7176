"""Changes with their 95 % intervals, a line each, on sheets of one scale that fit a page.

Of one suite a line a workload × configuration; of several hosts a line each and one for their mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.report import words
from analysis.report.figures import style
from analysis.suite.records import Suite

if TYPE_CHECKING:  # slow to import, and only reports of several hosts need it
    from analysis.stats.comparison import Comparison
    from analysis.stats.hosts import Effect, Hosts
    from analysis.stats.summary import Key

MEAN = "D"  # the marker of the hosts' mean
Ratio = tuple[float, float | None, float | None]  # with the limits of its interval
Limits = tuple[float, float]


class Line(NamedTuple):
    """A ratio, its marker's colour and form, hollow where inconclusive; behind it stands `text`."""

    ratio: Ratio
    look: tuple[str, str]
    hollow: bool
    text: str = ""


class Entry(NamedTuple):
    """Lines below each other under one name; None leaves one free."""

    name: str
    lines: tuple[Line | None, ...]


Group = tuple[str, Sequence[Entry]]  # with its heading


@dataclass(frozen=True)
class Layout:
    """A picture's most lines, heights in inches, and free lines behind entries and above.

    More lines would not fit an upright sheet.
    """

    most: int
    line_in: float
    around_in: float
    free: int
    top: float
    width_in: float = 7.2
    legend: Sequence[Line2D] = field(default=())

    def lines(self, groups: Sequence[Group]) -> int:
        """Of groups with their headings."""
        each = (len(entry.lines) + self.free for _, entries in groups for entry in entries)
        return len(groups) + sum(each)


def draw(
    versus: Mapping[Key, Comparison], suite: Suite, component: str, origin: str
) -> list[Figure]:
    """Change of joules against the baseline, a line a workload × configuration.

    As many pictures as are needed, all with the same scale; none where there is no ratio.
    """
    looks = style.palette(suite)
    by = {key[:2]: c for key, c in versus.items() if key[3] == component}
    groups: list[Group] = []
    for workload in suite.workloads:
        comparisons = {
            name: by[workload, name] for name in suite.configurations if (workload, name) in by
        }
        entries = [
            Entry(
                suite.label(name),
                (_line(c, (looks[name].colour, looks[name].marker), words.change_in(c)),),
            )
            for name, c in comparisons.items()
        ]
        if entries:
            groups.append((words.name_of(workload), entries))
    baseline = suite.base_label
    texts = f"Energy against {baseline}", _axis_of(component, baseline)
    layout = Layout(most=34, line_in=0.19, around_in=1.0, free=0, top=-0.7)
    return _sheets(groups, layout, suite.margin, texts, origin)


def draw_overall(
    suite: Suite, component: str, compared: Mapping[str, Comparison], origin: str
) -> Figure | None:
    """Each configuration over all workloads, on one small picture; None without any comparison."""
    looks = style.palette(suite)
    entries = [
        Entry(
            suite.label(name),
            (_line(c, (looks[name].colour, looks[name].marker), words.change_in(c)),),
        )
        for name, c in compared.items()
    ]
    baseline = suite.label(suite.baseline or "")
    # Room for the axis between the names and the changes.
    width_in = max(4.5, 0.14 * max((len(entry.name) for entry in entries), default=0))
    layout = Layout(most=40, line_in=0.3, around_in=0.85, free=0, top=0.4, width_in=width_in)
    groups = [("", entries)]
    texts = f"Energy against {baseline}", f"{words.name_of(component)} against {baseline} (%)"
    return next(iter(_sheets(groups, layout, suite.margin, texts, origin)), None)


def draw_hosts(group: Hosts, by_name: Mapping[str, Sequence[Effect]]) -> list[Figure]:
    """Return the effect on every host and their mean, by heading; none where nothing compares."""

    def entry(effect: Effect) -> Entry:
        each = [
            _line(effect.by_host.get(name), host_look(number))
            for number, name in enumerate(group.names)
        ]
        sign = {"differ": "  ≠", "alike": "  ≈"}.get(effect.hosts, "  ?")
        mean = _line(effect.these, (style.INK, MEAN), f"{words.change_in(effect.these)}{sign}")
        return Entry(group.first.label(effect.other), (*each, mean))

    groups = [(name, [entry(effect) for effect in effects]) for name, effects in by_name.items()]
    baseline = group.first.label(group.first.baseline or "")
    texts = f"Energy against {baseline} on each host", _axis_of(group.component, baseline)
    legend = list(_hosts_legend(group.names))
    layout = Layout(most=60, line_in=0.135, around_in=1.3, free=1, top=-0.9, legend=legend)
    return _sheets(groups, layout, group.margin, texts, group.origin)


def _line(c: Comparison | None, look: tuple[str, str], text: str = "") -> Line | None:
    """Return what is equivalent has the 90 % interval that decides it."""
    if c is None:
        return None
    shown = c.interval(0.90) if c.verdict == "equivalent" else c.interval()
    return Line((c.ratio, shown.low, shown.high), look, c.verdict == "inconclusive", text)


def host_look(number: int) -> tuple[str, str]:
    """Colour and marker of a host; the mean's diamond is no host's."""
    markers = [m for m in ("o", "s", *style.MARKERS) if m != MEAN]
    colours = (style.SED_COLOUR, *style.COLOURS)
    return colours[number % len(colours)], markers[number % len(markers)]


def _hosts_legend(names: Sequence[str]) -> Iterator[Line2D]:
    looks = [(name, *host_look(number)) for number, name in enumerate(names)]
    for name, colour, marker in [*looks, ("mean of these hosts", style.INK, MEAN)]:
        yield Line2D(
            [], [], ls="", label=name, marker=marker, markerfacecolor=colour,
            markeredgecolor=style.INK, markersize=5.5,
        )  # fmt: skip


def _axis_of(component: str, baseline: str) -> str:
    return f"Change of the {words.name_of(component)}'s energy against {baseline} (%)"


def _sheets(
    groups: Sequence[Group], layout: Layout, margin: float, texts: tuple[str, str], origin: str
) -> list[Figure]:
    """Whole groups, as many as a sheet holds; `texts` are the title and the axis's name."""
    lines = [line for _, rows in groups for row in rows for line in row.lines if line]
    if not lines:
        return []
    scale = _limits([line.ratio for line in lines], margin)
    sheets: list[list[Group]] = [[]]
    for group in groups:
        if sheets[-1] and layout.lines([*sheets[-1], group]) > layout.most:
            sheets.append([])
        sheets[-1].append(group)
    title = f"{texts[0]}, ±{margin * 100:g} % shaded"
    figures = []
    for number, sheet in enumerate(sheets, start=1):
        part = f", {number} of {len(sheets)}" if len(sheets) > 1 else ""
        height_in = layout.around_in + layout.line_in * layout.lines(sheet)
        with style.drawing(layout.width_in, height_in, grid="x") as figure:
            _sheet(figure, sheet, layout, scale, margin)
            figure.axes[0].set_xlabel(texts[1])
            style.titled(figure, title + part, origin)
        figures.append(figure)
    return figures


def _limits(ratios: Sequence[Ratio], margin: float) -> Limits:
    """In %: show every ratio; an interval of the widest kind may run off the edge."""
    mids = [mid for mid, _, _ in ratios]
    lows = [low for _, low, _ in ratios if low is not None]
    highs = [high for _, _, high in ratios if high is not None]
    around = 2.5 * margin
    low = min(1 - around, *mids, max(min([1.0, *lows]), 1 - 1.6 * (1 - min(1.0, *mids))))
    high = max(1 + around, *mids, min(max([1.0, *highs]), 1 + 1.6 * (max(1.0, *mids) - 1)))
    room = 0.04 * (high - low)
    return (low - room - 1) * 100, (high + room - 1) * 100


def _sheet(
    figure: Figure, groups: Sequence[Group], layout: Layout, scale: Limits, margin: float
) -> None:
    """One picture, the margin shaded; headings in bold."""
    axis = figure.subplots()
    axis.axvspan((1 / (1 + margin) - 1) * 100, margin * 100, color=style.BAND, zorder=0, lw=0)
    axis.axvline(0, color="#444444", lw=0.8)
    axis.set_xlim(*scale)
    ticks: list[tuple[float, str, str]] = []
    y = 0
    for heading, entries in groups:
        ticks.append((y, heading, "bold"))
        y += 1
        for entry in entries:
            ticks.append((y + (len(entry.lines) - 1) / 2, entry.name, "normal"))
            for at, line in enumerate(entry.lines, start=y):
                if line is not None:
                    _draw_line(axis, at, line)
            y += len(entry.lines) + layout.free
    axis.set_yticks([at for at, _, _ in ticks], [text for _, text, _ in ticks])
    for name, (_, _, weight) in zip(axis.get_yticklabels(), ticks, strict=True):
        name.set_fontweight(weight)
    axis.tick_params(axis="y", length=0, pad=9)  # room for arrows
    axis.set_ylim(y - 0.3, layout.top)
    if layout.legend:
        columns = min(4, len(layout.legend))
        figure.legend(handles=layout.legend, loc="outside lower left", ncols=columns)


def _draw_line(axis: Axes, y: float, line: Line) -> None:
    """Draw the marker and its interval, which ends in an arrow where it runs off the edge."""
    (mid, *ends), (colour, marker) = line.ratio, line.look
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
        markerfacecolor="white" if line.hollow else colour,
        markeredgecolor=style.INK,
        zorder=3,
    )
    if line.text:
        axis.annotate(
            line.text,
            (1.025, y),
            xycoords=axis.get_yaxis_transform(),
            va="center",
            fontsize=7.5,
            color=style.SOFT,
            annotation_clip=False,
        )
