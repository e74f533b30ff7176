"""How the joules of a suite changed from one time to the next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import matplotlib.dates as mdates
from matplotlib.figure import Figure

from analysis.report.figures import style
from analysis.stats.compare import Compared


def draw(pairs: Sequence[Compared], origin: str) -> Figure | None:
    """By configuration, B / A over all workloads with its interval at the time of B's plan.

    None where no time can be read, or there is but one suite beside the first.
    """
    try:
        start, *times = [
            datetime.fromisoformat(str(suite.plan["created_wall"]))
            for suite in (pairs[0].a, *(pair.b for pair in pairs))
        ]
    except (KeyError, ValueError):
        return None
    if len(pairs) < 2:
        return None
    looks = style.palette(pairs[0].a)
    names = list(dict.fromkeys(r.configuration for pair in pairs for r in pair.overall))
    with style.drawing(7.2, 3.2) as figure:
        axis = figure.subplots()
        axis.axhline(0, color=style.SOFT, lw=0.8)
        spread = (max([start, *times]) - min([start, *times])) / 60
        for i, name in enumerate(names):
            found = [
                (when + spread * (i - (len(names) - 1) / 2) / max(1, len(names)), ratio)
                for when, pair in zip(times, pairs, strict=True)
                for ratio in pair.overall
                if ratio.configuration == name
            ]
            at = [mdates.date2num(when) for when, _ in found]
            change = [100 * (ratio.ratio - 1) for _, ratio in found]
            bars = [
                [100 * (r.ratio - (r.ratio if r.low is None else r.low)) for _, r in found],
                [100 * ((r.ratio if r.high is None else r.high) - r.ratio) for _, r in found],
            ]
            look = looks[name]
            axis.errorbar(
                *([mdates.date2num(start), *at], [0.0, *change]),
                yerr=[[0.0, *bars[0]], [0.0, *bars[1]]],
                **{"color": look.colour, "marker": look.marker, "markersize": 4.5, "lw": 1},
                **{"capsize": 2, "label": pairs[0].a.label(name)},
            )
        axis.xaxis_date()
        axis.xaxis.set_major_locator(locator := mdates.AutoDateLocator())
        axis.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator))
        axis.set_ylabel("Change of energy (%)")
        figure.legend(*axis.get_legend_handles_labels(), loc="outside right upper", fontsize=7.5)
        style.titled(figure, "Energy over all workloads beside the first suite", origin)
    return figure
