"""The output of `fde summary` for a suite in any state: its course, and the answer."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

from analysis.energy.energy import energy_table, reference_rows
from analysis.report import first_page, provenance, render, words
from analysis.report.provenance import duration
from analysis.report.steadiness_section import drift_check_sentence
from analysis.stats.drift_check import drift_check
from analysis.stats.results import energy_of, results_of, uncovered
from analysis.suite import manifest
from analysis.suite.clocks import TargetClock
from analysis.suite.incidents import IncidentLog, incident_log
from analysis.suite.records import DRIFT_CHECK, MEASURED, Suite
from analysis.suite.suite_folder import read
from contract.command_results import SuiteSummary
from contract.timing import PARTS


def summary(folder: Path, derive: bool = False) -> SuiteSummary:
    """Return what happened, then the first page's lines of the report, all at 80 columns.

    If the report is outdated, only the next step follows, unless joules are to be derived again
    (`derive`). Raises SuiteError if there is no suite.
    """
    suite = read(folder)
    energy = energy_of(folder) if derive or manifest.is_current(folder / "energy.parquet") else None
    incidents = incident_log(suite)
    answer = (
        (first_page.without_report(suite, incidents, folder),)
        if energy is None
        else first_page.lines(results_of(suite, energy), folder)
    )
    sentences = (line.replace("\u202f", "") for line in _happened(suite, incidents, energy))
    lines = [part for line in sentences for part in textwrap.wrap(line, render.WIDTH)]
    lines += render.text(first_page.blocks(answer)).splitlines()
    return SuiteSummary(str(folder), tuple(lines), answer)


def _happened(suite: Suite, incidents: IncidentLog, energy: pl.DataFrame | None) -> Iterator[str]:
    mark = f" ({suite.plan.origin})" if suite.plan.origin != MEASURED else ""
    yield f"{suite.suite_id} on {suite.host}{mark}"
    yield _when(suite)
    finished = {run.run_id for run in suite.runs}
    blocks: dict[int, bool] = {}
    for run in suite.plan.runs:
        if run.workload != DRIFT_CHECK:
            blocks[run.block] = blocks.get(run.block, True) and run.run_id in finished
    yield (
        f"{sum(blocks.values())} of {len(blocks)} blocks complete; {len(finished)} of "
        f"{len(suite.plan.runs)} runs finished, {len(incidents.void_to_end)} void to the end, "
        f"{incidents.never} never made"
    )
    yield from provenance.interruption_lines(incidents)
    missed = len(uncovered(energy)) if energy is not None else 0
    yield f"Coverage below the limit: {words.count(missed, 'run')}" if missed else ""
    yield provenance.missing_sentence(suite)
    if energy is None:  # without a report only its runs have joules
        plan = suite.plan.drift_check
        runs = tuple(run for run in suite.runs if plan and run.workload == plan.workload)
        energy = reference_rows(suite, energy_table(replace(suite, runs=runs)))
    yield drift_check_sentence(suite, drift_check(suite, energy, TargetClock.fit(suite.clock)))
    wall_s = suite.timing.wall_s
    if not wall_s > 0:
        yield "How the time was spent is unknown: timing.json is written when the suite is fetched."
        return
    shares = {name: getattr(suite.timing, key) / wall_s for key, name in PARTS.items()}
    most = sorted(shares.items(), key=lambda item: -item[1])
    parts = [f"{name} {share:.0%}" for name, share in most if share > 0.005]
    yield f"Of {duration(wall_s)}: {', '.join(parts)}."


def _when(suite: Suite) -> str:
    began = [(t, run) for run in suite.runs if (t := _instant(run.started_wall))]
    ended = [t + timedelta(microseconds=(r.t_end_ns - r.t_start_ns) / 1000) for t, r in began]
    planned = _instant(suite.plan.created_wall)
    start = planned or min((t for t, _ in began), default=None)
    end = max(ended, default=None)
    seal = "all files as sealed" if suite.seal_holds else "files changed after sealing"
    seal = seal if suite.sealed else "not sealed"
    if start is None or end is None:
        return f"no run finished; {seal}"
    wall = duration((end - start).total_seconds())
    last = f"{end:%H:%M}" if end.date() == start.date() else f"{end:%Y-%m-%d %H:%M}"
    return f"{start:%Y-%m-%d %H:%M} to {last} UTC ({wall}); {seal}"


def _instant(text: str) -> datetime | None:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)
