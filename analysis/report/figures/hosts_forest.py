"""The effect on every host and their mean, a row a configuration, in sheets that fit a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.report import words
from analysis.report.figures import intervals, style
from analysis.report.figures.intervals import Limits, Ratio, Tick
from analysis.stats.comparison import Comparison
from analysis.stats.hosts import Effect, Hosts

LINES = 60  # of one picture: more would not fit an upright sheet
LINE_IN = 0.135
MEAN = "D"
Named = Mapping[str, Sequence[Effect]]


def draw(found: Hosts, by_name: Named) -> list[Figure]:
    """Pictures of effects by heading, all with the same scale; none where nothing compares."""
    effects = [e for of in by_name.values() for e in of]
    shown = [c for e in effects for c in (*e.by_host.values(), e.these) if c is not None]
    scale = intervals.limits(map(_ratio, shown), found.margin)
    sheets = list(intervals.sheets(by_name, lambda of: _lines(found, of), LINES))
    return [
        _sheet(found, sheet, scale, f", {number} of {len(sheets)}" if len(sheets) > 1 else "")
        for number, sheet in enumerate(sheets, start=1)
    ]


def _lines(found: Hosts, effects: Sequence[Effect]) -> int:
    return 1 + len(effects) * (len(found.names) + 2)


def _ratio(c: Comparison) -> Ratio:
    return c.ratio, c.low, c.high


def _sheet(found: Hosts, sheet: Named, scale: Limits, part: str) -> Figure:
    lines = sum(_lines(found, effects) for effects in sheet.values())
    baseline = found.first.label(found.first.baseline or "")
    with mpl.rc_context({**style.RC, "axes.grid.axis": "x"}):
        figure, axis = intervals.frame(1.3 + LINE_IN * lines, scale, found.margin)
        ticks: list[Tick] = []
        y = 0.0
        for name, effects in sheet.items():
            ticks.append((y, name, True))
            y += 1
            for effect in effects:
                middle = y + len(found.names) / 2
                ticks.append((middle, found.first.label(effect.other), False))
                y = _effect(axis, y, effect, found.names)
        what = f"Change of the {words.name_of(found.component)}'s energy against {baseline} (%)"
        intervals.label(axis, ticks, (y - 0.3, -0.9), what)
        figure.legend(
            handles=list(_legend(found.names)),
            loc="outside lower left",
            ncols=min(4, len(found.names) + 1),
        )
        title = f"Energy against {baseline} on each host, ±{found.margin * 100:g} % shaded{part}"
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
        if c := effect.by_host.get(name):
            intervals.interval(axis, y, _ratio(c), look(number), c.verdict == "inconclusive")
        y += 1
    if c := effect.these:
        intervals.interval(axis, y, _ratio(c), (style.INK, MEAN), c.verdict == "inconclusive")
        hosts = {"differ": "  ≠", "alike": "  ≈"}.get(effect.hosts, "  ?")
        intervals.remark(axis, y, _ratio(c), hosts)
    return y + 2


def _legend(names: Sequence[str]) -> Iterator[Line2D]:
    looks = [(name, *look(number)) for number, name in enumerate(names)]
    for name, colour, marker in [*looks, ("mean of these hosts", style.INK, MEAN)]:
        yield Line2D(
            [], [], ls="", label=name, marker=marker, markerfacecolor=colour,
            markeredgecolor=style.INK, markersize=5.5,
        )  # fmt: skip
