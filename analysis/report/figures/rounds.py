"""The rounds of preconditioning, with the window that the specification judges by."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.report.figures import style
from analysis.suite.preconditioned import Preconditioned
from contract.steady_state import Window


def draw(done: Preconditioned, origin: str) -> Figure | None:
    """Return what each round wrote a second, the window shaded; None without rounds."""
    rates = done.rounds_mib_s
    if not rates:
        return None
    with style.drawing(7.2, 2.6) as figure:
        axis = figure.subplots()
        rounds = range(1, len(rates) + 1)
        axis.plot(rounds, rates, color=style.INK, lw=1.2, marker="o", markersize=4, label="rounds")
        if done.window is not None:
            _window(axis, done.window)
        axis.set_ylim(0, 1.15 * max(rates))
        axis.set_xlim(0.5, len(rates) + 0.5)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_xlabel("Round")
        axis.set_ylabel("Written (MiB/s)")
        figure.legend(*axis.get_legend_handles_labels(), loc="outside right upper", fontsize=7.5)
        style.titled(figure, f"Preconditioning of disk {done.role}", origin)
    return figure


def _window(axis: Axes, window: Window) -> None:
    """The five rounds; their mean with a tenth on both sides, and the line that fits them best."""
    ends = (window.first, window.last)
    axis.axvspan(window.first - 0.4, window.last + 0.4, color=style.BAND, lw=0, label="window")
    axis.hlines(window.mean, *ends, color=style.SOFT, lw=1, label="its mean")
    bounds = [window.mean * share for share in (0.9, 1.1)]
    axis.hlines(bounds, *ends, color=style.SOFT, lw=1, ls=":", label="mean ± 10 %")
    fitted = (window.fit_first, window.fit_last)
    axis.plot(ends, fitted, color="#b00020", lw=1, ls="--", label="best line")
