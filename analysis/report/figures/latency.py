"""Joules against latency, a point a configuration."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from analysis.report import words
from analysis.report.figures import forest, style
from analysis.stats.comparison import Comparison
from analysis.stats.responsiveness import TAIL_LATENCY, Overall
from analysis.suite.records import Suite


def draw(suite: Suite, rows: Sequence[Overall], component: str, origin: str) -> Figure | None:
    """Change of a byte's joules against that of p99, with 95 % intervals; None without any."""
    points = [(row.configuration, row.latency[TAIL_LATENCY], row.joules) for row in rows]
    placed = [(name, delay, joules) for name, delay, joules in points if joules is not None]
    if not placed:
        return None
    looks, base = style.palette(suite), suite.baseline or ""
    with style.drawing(4.8, 3.5 + 0.17 * len(placed), grid="both") as figure:
        axis = figure.subplots()
        axis.axhline(0, color=style.SOFT, lw=0.8)
        axis.axvline(0, color=style.SOFT, lw=0.8)
        nowhere: _Mark = 0.0, None
        marks = [(base, suite.base_label, nowhere, nowhere)]
        marks += [(n, suite.label(n), _percent(d), _percent(j)) for n, d, j in placed]
        for name, label, along, up in marks:
            axis.errorbar(
                along[0],
                up[0],
                xerr=along[1],
                yerr=up[1],
                label=label,
                marker=looks[name].marker,
                markersize=7,
                markeredgecolor=style.INK,
                markeredgewidth=0.8,
                color=looks[name].colour,
                elinewidth=1.4,
                zorder=3,
            )
        axis.set_xlim(*forest.limits([_limits(delay) for _, delay, _ in placed], suite.margin))
        axis.set_ylim(*forest.limits([_limits(joules) for _, _, joules in placed], suite.margin))
        axis.set_xlabel(f"{TAIL_LATENCY} of the latency, change (%)")
        axis.set_ylabel(f"{words.name_of(component)}'s energy a byte, change (%)")
        figure.legend(loc="outside lower left", fontsize=8)
        style.titled(figure, "Energy against latency", origin)
    return figure


def _limits(ratio: Comparison) -> forest.Ratio:
    return ratio.ratio, ratio.low, ratio.high


_Mark = tuple[float, list[list[float]] | None]


def _percent(ratio: Comparison) -> _Mark:
    """Return the change, and how far its interval reaches below and above."""
    mid, low, high = _limits(ratio)
    if low is None or high is None:
        return 100 * (mid - 1), None
    return 100 * (mid - 1), [[100 * (mid - low)], [100 * (high - mid)]]
