"""The effect on every host and their mean, a row a configuration, in sheets that fit a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.report import words
from analysis.report.figures import style
from analysis.stats.hosts import Effect, Hosts
from analysis.stats.stats import Comparison

LINES = 60  # of one picture: more would not fit an upright sheet
WIDTH_IN, LINE_IN = 7.2, 0.135
MEAN = "D"
Named = Mapping[str, Sequence[Effect]]


def draw(found: Hosts, by_name: Named) -> list[Figure]:
    """Pictures of effects by heading, all with the same scale; none where nothing compares."""
    limits = _limits([e for effects in by_name.values() for e in effects], found.margin)
    sheets = list(_sheets(by_name, len(found.names) + 2))
    return [
        _sheet(found, sheet, limits, f", {number} of {len(sheets)}" if len(sheets) > 1 else "")
        for number, sheet in enumerate(sheets, start=1)
    ]


def _sheets(by_name: Named, lines_each: int) -> Iterator[dict[str, Sequence[Effect]]]:
    sheet: dict[str, Sequence[Effect]] = {}
    used = 0
    for name, effects in by_name.items():
        lines = 1 + len(effects) * lines_each
        if sheet and used + lines > LINES:
            yield sheet
            sheet, used = {}, 0
        sheet[name] = effects
        used += lines
    if sheet:
        yield sheet


def _sheet(found: Hosts, sheet: Named, limits: tuple[float, float], part: str) -> Figure:
    lines = sum(1 + len(effects) * (len(found.names) + 2) for effects in sheet.values())
    baseline = found.first.label(found.first.baseline or "")
    with mpl.rc_context({**style.RC, "axes.grid.axis": "x"}):
        figure = Figure(figsize=(WIDTH_IN, 1.3 + LINE_IN * lines), layout="constrained")
        axis = figure.subplots()
        margin = found.margin
        axis.axvspan((1 / (1 + margin) - 1) * 100, margin * 100, color=style.BAND, zorder=0, lw=0)
        axis.axvline(0, color="#444444", lw=0.8)
        axis.set_xlim(*limits)
        ticks: list[tuple[float, str, bool]] = []
        y = 0.0
        for name, effects in sheet.items():
            ticks.append((y, name, True))
            y += 1
            for effect in effects:
                middle = y + len(found.names) / 2
                ticks.append((middle, found.first.label(effect.other), False))
                y = _effect(axis, y, effect, found.names)
        axis.set_yticks([at for at, _, _ in ticks], [text for _, text, _ in ticks])
        for label, (_, _, bold) in zip(axis.get_yticklabels(), ticks, strict=True):
            label.set_fontweight("bold" if bold else "normal")
        axis.tick_params(axis="y", length=0, pad=9)  # room for arrows
        axis.set_ylim(y - 0.3, -0.9)
        what = words.name_of(found.component)
        axis.set_xlabel(f"Change of the {what}'s energy against {baseline} (%)")
        figure.legend(
            handles=list(_legend(found.names)),
            loc="outside lower left",
            ncols=min(4, len(found.names) + 1),
        )
        title = f"Energy against {baseline} on each host, ±{margin * 100:g} % shaded{part}"
        style.titled(figure, title, found.origin)
    return figure


def look(number: int) -> tuple[str, str]:
    """Colour and marker of a host; the mean's diamond is nobody's."""
    markers = [m for m in ("o", "s", *style.MARKERS) if m != MEAN]
    colours = (style.SED_COLOUR, *style.COLOURS)
    return colours[number % len(colours)], markers[number % len(markers)]


def _effect(axis: Axes, y: float, effect: Effect, names: Sequence[str]) -> float:
    """Draw the hosts below each other and their mean last; the y that comes next."""
    for number, name in enumerate(names):
        colour, marker = look(number)
        if name in effect.by_host:
            _interval(axis, y, effect.by_host[name], colour, marker)
        y += 1
    if effect.these is not None:
        _interval(axis, y, effect.these, style.INK, MEAN)
        text = words.change_of(effect.these.ratio, effect.these.low, effect.these.high)
        hosts = {"differ": "  ≠", "alike": "  ≈"}.get(effect.hosts, "  ?")
        axis.annotate(
            text + hosts,
            (1.025, y),
            xycoords=axis.get_yaxis_transform(),
            va="center",
            fontsize=7.5,
            color=style.SOFT,
            annotation_clip=False,
        )
    return y + 2


def _interval(axis: Axes, y: float, c: Comparison, colour: str, marker: str) -> None:
    left, right = axis.get_xlim()
    if c.low is not None and c.high is not None:
        low, high = (c.low - 1) * 100, (c.high - 1) * 100
        ends = [min(max(low, left), right), max(min(high, right), left)]
        axis.plot(ends, [y, y], color=style.INK, lw=1.1)
        for cut, edge, arrow in ((low < left, left, "<"), (high > right, right, ">")):
            if cut:
                axis.plot(edge, y, marker=arrow, markersize=4, color=style.INK, clip_on=False)
    axis.plot(
        (c.ratio - 1) * 100,
        y,
        marker=marker,
        markersize=5,
        markeredgewidth=0.9,
        markerfacecolor="white" if c.verdict == "inconclusive" else colour,
        markeredgecolor=style.INK,
        zorder=3,
    )


def _legend(names: Sequence[str]) -> Iterator[Line2D]:
    looks = [(name, *look(number)) for number, name in enumerate(names)]
    for name, colour, marker in [*looks, ("mean of these hosts", style.INK, MEAN)]:
        yield Line2D(
            [], [], ls="", label=name, marker=marker, markerfacecolor=colour,
            markeredgecolor=style.INK, markersize=5.5,
        )  # fmt: skip


def _limits(effects: Sequence[Effect], margin: float) -> tuple[float, float]:
    """In %: show every ratio; an interval of the widest kind may run off the edge."""
    said = [c for e in effects for c in (*e.by_host.values(), e.these) if c is not None]
    ratios = [c.ratio for c in said]
    lows = [c.low for c in said if c.low is not None]
    highs = [c.high for c in said if c.high is not None]
    around = 2.5 * margin
    low = min(1 - around, *ratios, max(min([1.0, *lows]), 1 - 1.6 * (1 - min(1.0, *ratios))))
    high = max(1 + around, *ratios, min(max([1.0, *highs]), 1 + 1.6 * (max(1.0, *ratios) - 1)))
    room = 0.04 * (high - low)
    return (low - room - 1) * 100, (high + room - 1) * 100
