"""Every block's change in the order of time, which shows stray blocks and trends."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.report import words
from analysis.report.figures import style
from analysis.stats.summary import block_values
from analysis.suite import records
from analysis.suite.records import Suite

CROWD = 20  # blocks beyond which markers are smaller


def draw(
    suite: Suite,
    energy: pl.DataFrame,
    workload: str,
    component: str,
    flagged: Collection[tuple[int, str]] = (),
) -> Figure | None:
    """Draw each block's change of joules against the baseline's in the same block.

    `flagged` (block, configuration) are ringed. None with fewer than two pairs.
    """
    joules = {n: block_values(energy, workload, n, component) for n in suite.configurations}
    changes: dict[str, dict[int, float]] = {}
    for name, values in joules.items():
        base = joules.get(suite.base_of(name) or "", {})
        pairs = {
            block: (v / base[block] - 1) * 100 for block, v in values.items() if base.get(block)
        }
        if name != suite.baseline and pairs:
            changes[name] = pairs
    last = max((max(pairs) for pairs in changes.values()), default=0) + 1
    if last < 2:
        return None
    looks = style.palette(suite)
    with style.drawing(7.2, max(2.9, 0.9 + 0.17 * len(changes))) as figure:
        axis = figure.subplots()
        axis.axhline(0, color="#777777", lw=0.8)
        for name, pairs in changes.items():
            axis.plot(
                [block + 1 for block in pairs],
                list(pairs.values()),
                color=looks[name].colour,
                lw=0.9,
                marker=looks[name].marker,
                markersize=4.5 if last <= CROWD else 3.5,
                markeredgecolor=style.INK if last <= CROWD else looks[name].colour,
                markeredgewidth=0.5,
                label=suite.label(name),
            )
            for block in (b for b, flagged_name in flagged if flagged_name == name and b in pairs):
                axis.plot(
                    block + 1,
                    pairs[block],
                    marker="o",
                    markersize=11,
                    markerfacecolor="none",
                    markeredgecolor="#b00020",
                    lw=0,
                    zorder=5,
                )
        axis.set_ylabel(f"Against {suite.base_label} (%)")
        axis.set_xlabel("Block, in the order of time")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_xlim(1 - 0.02 * last, last + 0.02 * last)
        figure.legend(loc="outside right upper", fontsize=7.5)
        title = f"Blocks: {words.name_of(workload)}, {words.name_of(component)} energy"
        in_words = (
            f"{suite.label(name)} "
            + words.interval_of(1 + min(pairs.values()) / 100, 1 + max(pairs.values()) / 100)
            for name, pairs in changes.items()
        )
        rows = energy.filter(workload=workload, component=component)
        style.titled(figure, title, records.worst_origin(rows["origin"].unique()), in_words)
    return figure
