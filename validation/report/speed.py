"""Time of the report of a suite of the paper's size, and size of the page.

The suite is the one of `make synthetic`, with all the blocks of the paper. Measured as in
validation.inference.scale: `fde report` as a separate process, with the byte code of all modules
kept from a first report, as pip leaves it where it installs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from contract.places import module_command, python_path
from contract.suite_files import DERIVED
from validation.bench import Figure, at_most
from validation.inference.scale import PAGES, Took, run
from validation.synthetic.paper import write_paper_suite

MOST_S, MOST_MB = 6.0, 0.6


def measure(quick: bool = False) -> list[Figure]:
    """Return the figures of the paper's suite; of two of its blocks if `quick`."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "suite"
        write_paper_suite(folder, blocks=2 if quick else 20)
        took = report(folder)
        size_mb = (folder / "report.html").stat().st_size / 1e6
    return [
        at_most("report of a suite of the paper's size", took.wall_s, "s", MOST_S),
        Figure("its CPU time", took.cpu_s, "s"),
        at_most("size of the page", size_mb, "MB", MOST_MB),
    ]


def report(folder: Path) -> Took:
    """Make a suite's report without files of an earlier one, and return its cost."""
    with tempfile.TemporaryDirectory() as cache:
        cached = ["env", "-u", "PYTHONDONTWRITEBYTECODE", f"PYTHONPYCACHEPREFIX={cache}"]
        python = [f"PYTHONPATH={python_path()}", sys.executable, "-P"]
        modules = "analysis.report.build, controller.cli.results, scipy.stats"
        run([*cached, *python, "-c", f"import {modules}"])
        for name in (*DERIVED, *PAGES):
            (folder / name).unlink(missing_ok=True)
        return run([*cached, *module_command("controller", "report", str(folder))])
