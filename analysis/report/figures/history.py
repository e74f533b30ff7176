"""How the joules of a suite changed from one time to the next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from analysis.report.figures import style
from analysis.stats.compare import Compared
from contract.command_results import Ratio


def draw(pairs: Sequence[Compared], origin: str) -> Figure | None:
    """By configuration, B / A over all workloads with its interval at the time of B's plan.

    None where no time can be read, or there is but one suite beside the first.
    """
    try:
        start, *times = [
            datetime.fromisoformat(suite.plan.created_wall)
            for suite in (pairs[0].a, *(pair.b for pair in pairs))
        ]
    except ValueError:
        return None
    if len(pairs) < 2:
        return None
    looks = style.palette(pairs[0].a)
    names = list(dict.fromkeys(r.configuration for pair in pairs for r in pair.overall))
    concise = mpl.rc_context({"date.converter": "concise"})
    with concise, style.drawing(7.2, 3.2) as figure:
        axis = figure.subplots()
        axis.axhline(0, color=style.SOFT, lw=0.8)
        apart = (max([start, *times]) - min([start, *times])) / 60
        for i, name in enumerate(names):
            aside = apart * (i - (len(names) - 1) / 2) / len(names)
            points = [(start, 0.0, 0.0, 0.0)] + [
                (when + aside, *_percent(ratio))
                for when, pair in zip(times, pairs, strict=True)
                for ratio in pair.overall
                if ratio.configuration == name
            ]
            at, change, below, above = zip(*points, strict=True)
            look = looks[name]
            axis.errorbar(
                np.array([when.replace(tzinfo=None) for when in at], dtype="datetime64[s]"),
                change,
                yerr=[below, above],
                color=look.colour,
                marker=look.marker,
                markersize=4.5,
                lw=1,
                capsize=2,
                label=pairs[0].a.label(name),
            )
        axis.set_ylabel("Change of energy (%)")
        figure.legend(*axis.get_legend_handles_labels(), loc="outside right upper", fontsize=7.5)
        style.titled(figure, "Energy over all workloads beside the first suite", origin)
    return figure


def _percent(ratio: Ratio) -> tuple[float, float, float]:
    """Return the change in %, and how far its interval reaches below and above."""
    low, high = ratio.low or ratio.ratio, ratio.high or ratio.ratio
    return 100 * (ratio.ratio - 1), 100 * (ratio.ratio - low), 100 * (high - ratio.ratio)
