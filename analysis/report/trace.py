"""The power over the time of any run, as a picture."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

from analysis.report.figures import style, timeline
from analysis.suite.clocks import TargetClock
from analysis.suite.records import Run, Suite, SuiteError
from analysis.suite.suite_folder import read
from contract import files
from contract.schema import nearest

DPI = 150
SHOWN = 8  # run ids that are offered where none is named


@dataclass(frozen=True)
class Traced:
    """Where the picture is."""

    svg: Path
    png: Path


def trace(suite_folder: Path, run_id: str, out: Path) -> Traced:
    """Draw one run into `out`. Raises SuiteError where there is no such run, or no sample of it."""
    suite = read(suite_folder)
    run = find(suite, run_id)
    figure = timeline.draw(suite, run, TargetClock.fit(suite.clock))
    if figure is None:
        raise SuiteError("run-without-samples", run=run.run_id)
    out.mkdir(parents=True, exist_ok=True)
    traced = Traced(*(out / f"{suite.suite_id}-{run.run_id}.{kind}" for kind in ("svg", "png")))
    pixels = io.BytesIO()
    with mpl.rc_context(style.RC):
        figure.savefig(pixels, format="png", dpi=DPI)
    files.write(traced.svg, [style.svg(figure).encode()])
    files.write(traced.png, [pixels.getvalue()])
    return traced


def find(suite: Suite, run_id: str) -> Run:
    """Return the finished run of that id or number, or the only one that holds it."""
    if not suite.runs:
        raise SuiteError("no-run-finished")
    ids = [run.run_id for run in suite.runs]
    for fitting in (
        [i for i in ids if i == run_id],
        [i for i in ids if run_id.isdigit() and i.startswith(f"{run_id:0>4}-")],
        [i for i in ids if run_id and i.startswith(run_id)],
        [i for i in ids if run_id and run_id in i],
    ):
        if len(fitting) == 1:
            return next(run for run in suite.runs if run.run_id == fitting[0])
    for runs, how in ((suite.skipped, "was skipped"), (suite.void, "is void")):
        if match := next((run for run in runs if run.run_id == run_id), None):
            raise SuiteError("run-not-drawn", run=run_id, how=how, reason=match.reason.rstrip("."))
    if run_id:
        raise SuiteError(
            "unknown-name", what="finished run", name=run_id, nearest=nearest(run_id, ids)
        )
    raise SuiteError("name-one-run", runs=len(ids), examples=", ".join(ids[:SHOWN]))
