"""How long the report of a suite of the paper's size takes, and how large the page is.

The suite is the one of `make synthetic`, with all the blocks of the paper. Measured as in
validation.inference.scale: `fde report` as a process of its own.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from validation.bench import Figure, at_most
from validation.inference.scale import run
from validation.synthetic.paper import write_paper_suite

MOST_S, MOST_MB = 6.0, 3.0


def measure(quick: bool = False) -> list[Figure]:
    """The figures of the paper's suite; of two of its blocks where `quick`."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "suite"
        write_paper_suite(folder, blocks=2 if quick else 20)
        took = run([sys.executable, "-m", "controller", "report", str(folder)])
        size_mb = (folder / "report.html").stat().st_size / 1e6
    return [
        at_most("report of a suite of the paper's size", took.wall_s, "s", MOST_S),
        Figure("its CPU time", took.cpu_s, "s"),
        at_most("size of the page", size_mb, "MB", MOST_MB),
    ]
