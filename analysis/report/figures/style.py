"""One look for all pictures: colour-blind safe, fit for print, distinct without colour."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.text import Text

from analysis.report.figures.compact import compact
from analysis.suite.records import MEASURED, Suite

INK, SOFT, GREY = "#222222", "#56616c", "#9a9a9a"
BAND = "#e4eef5"  # a shaded margin
# Okabe and Ito's colours. There are six, and seven markers: these numbers have no common
# divisor, so the first 42 configurations all look different.
COLOURS = ("#E69F00", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#F0E442")
MARKERS = ("D", "P", "X", "p", "h", "*", "8")  # no triangles: these mean more, less, and goes on
SVG_DPI = 72.0  # an SVG's points
NO_DATE = {"Date": None, "Creator": None}  # the same figure gives the same bytes
SED_COLOUR = "#0072B2"

RC: dict[Any, Any] = {
    # Matplotlib takes settings from a matplotlibrc in the current directory, whoever put it there.
    **{key: value for key, value in mpl.rcParamsDefault.items() if "backend" not in key},
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#777777",
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "path.simplify": True,
    "path.simplify_threshold": 0.5,  # of a pixel: nobody sees it, the file does
    "svg.fonttype": "none",  # text stays text: it can be searched, and the page is half as long
    "svg.hashsalt": "fde",
    "text.parse_math": False,  # names come from the suite's folder, and a dollar sign is one
}


class Look(NamedTuple):
    """How a configuration is drawn: the colour and the marker of its points."""

    colour: str
    marker: str


def palette(suite: Suite) -> dict[str, Look]:
    """Return the look of each configuration, the same in every picture of the suite.

    The baseline is grey and plain, the self-encrypting drive blue; the others follow in the plan's
    order.
    """
    fixed = {suite.sed: Look(SED_COLOUR, "s"), suite.baseline: Look(GREY, "o")}
    looks: dict[str, Look] = {}
    for name in suite.configurations:
        i = sum(other not in fixed for other in looks)
        spare = Look(COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)])
        looks[name] = fixed.get(name, spare)
    return looks


@contextmanager
def drawing(width_in: float, height_in: float, grid: str = "y") -> Iterator[Figure]:
    """Yield an empty figure in this look; `grid` names the axis with grid lines."""
    with mpl.rc_context({**RC, "axes.grid.axis": grid}):
        yield Figure(figsize=(width_in, height_in), layout="constrained")


def titled(figure: Figure, title: str, origin: str, data: Iterable[str]) -> None:
    """Set the picture's title, with the origin unless that is measured.

    The figure's label is the text for readers who cannot see it: the title and `data` in words.
    """
    figure.set_label(f"{title}. {'; '.join(data)}.")
    text = title if origin == MEASURED else f"{title} ({origin})"
    figure.suptitle(text, x=0.01, ha="left", fontsize=10, fontweight="bold", color=INK)


def svg(figure: Figure) -> str:
    """Return the picture as SVG, the same text for the same figure."""
    for text in figure.findobj(Text):  # names come from the suite's folder
        text.set_text("".join(c for c in text.get_text() if c.isprintable() or c == "\n"))
    buffer = io.StringIO()
    with mpl.rc_context(RC):
        if (engine := figure.get_layout_engine()) is not None:
            figure.dpi = SVG_DPI
            engine.execute(figure)
            figure.set_layout_engine(None)  # else savefig draws all of it once more to lay it out
        figure.savefig(buffer, format="svg", metadata=NO_DATE, facecolor="none")
    return compact(buffer.getvalue())
