"""Net saving over the years, with its band: when the dearer disk is repaid, if ever."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.money.course import course
from analysis.money.payback import Payback, repaid_after_years
from analysis.report import payback_text, words
from analysis.report.figures import style
from contract.assumptions import Assumptions

ONE_COLUMN, COLUMNS = 3, 2  # up to so many panels below each other, more of them side by side
LINE, SHADE = "#0072B2", "#bcd7ea"
WIDE, NARROW = 70, 32  # characters of a panel's title in a line
BEYOND_LIFE, FAR = 1.25, 3.0  # how far to look, in lives


def draw(
    paybacks: Sequence[Payback], assumptions: Assumptions, labels: Mapping[str, str], origin: str
) -> Figure | None:
    """Return a panel for each configuration that the disk is compared with; None without any.

    `labels` are the configurations' names for people. All panels share their scales.
    """
    if not paybacks:
        return None
    columns = 1 if len(paybacks) <= ONE_COLUMN else COLUMNS
    rows = math.ceil(len(paybacks) / columns)
    with style.drawing(5.4, 1.3 + 1.75 * rows) as figure:
        axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
        # Beyond the disk's life, and beyond the payback where that is not too far away.
        life = assumptions.life_years
        spans = [repaid_after_years(p.saving_per_year, assumptions) for p in paybacks]
        ends = [1.15 * span.mid for span in spans if span is not None and span.mid <= FAR * life]
        years = np.linspace(0, max([BEYOND_LIFE * life, *ends]), 121)
        for axis, payback in zip(axes, paybacks, strict=False):
            _panel(axis, payback, assumptions, years)
            name = f"beside {labels[payback.against]}"
            axis.set_title(textwrap.fill(name, WIDE if columns == 1 else NARROW), fontsize=9)
            axis.set_ylabel(f"Net saving ({assumptions.currency})")
            axis.set_xlabel("Years since the purchase")
            axis.label_outer()
        for axis, payback in zip(axes, paybacks, strict=False):
            _tell(axis, payback, assumptions)
        for axis in axes[len(paybacks) :]:
            axis.remove()
        for axis in axes[max(0, len(paybacks) - columns) : len(paybacks)]:
            axis.tick_params(labelbottom=True)
            axis.set_xlabel("Years since the purchase")
        style.titled(figure, "Electricity saved, less the drive's extra price", origin)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _panel(axis: Axes, payback: Payback, a: Assumptions, years: np.ndarray) -> None:
    savings = course(payback, a, years)
    if savings.low is not None and savings.high is not None:
        axis.fill_between(
            years, savings.low, savings.high, color=SHADE, lw=0, label="95 % interval"
        )
    axis.plot(years, savings.mid, color=LINE, lw=1.8, label="saved, less the extra price")
    axis.axhline(0, color=style.INK, lw=0.9, label="repaid")
    price = f"extra price, {words.given(a.sed_extra_price)} {a.currency}"
    axis.axhline(-a.sed_extra_price, color="#777777", lw=0.9, ls=":", label=price)
    life = f"end of the drive's life, {words.given(a.life_years)} years"
    axis.axvline(a.life_years, color="#D55E00", lw=1.1, ls="--", label=life)
    axis.set_xlim(0, float(years[-1]))
    axis.margins(y=0.08)


def _tell(axis: Axes, payback: Payback, a: Assumptions) -> None:
    """The net present value in words, below the line of 0 where that is at the top."""
    low, high = axis.get_ylim()
    worth = payback_text.price(payback.net_present_value, replace(a, currency=""))
    axis.annotate(
        f"after {words.given(a.life_years)} years\n{worth}",
        (0.03, 0.97 if high > (high - low) / 4 else 0.84),
        xycoords="axes fraction",
        ha="left",
        va="top",
        fontsize=8,
        color=style.INK,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5},
        zorder=1.5,
    )
