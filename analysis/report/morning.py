"""What `fde summary` says of a suite, whatever state it is in: how it went, and the answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

from analysis.energy.energy import energy_table, of_references
from analysis.report import first_page, missing_section, render, words
from analysis.report.provenance import duration, interruptions, times
from analysis.report.steadiness_section import FEW_READINGS, SCATTERS, where
from analysis.report.texts import catalogue
from analysis.stats.drift_check import CANNOT_TELL, MOVED, drift_check
from analysis.stats.results import energy_of, results_of, uncovered
from analysis.suite import manifest
from analysis.suite.clocks import TargetClock
from analysis.suite.incidents import IncidentLog, incident_log
from analysis.suite.manifest import MANIFEST, check
from analysis.suite.records import DRIFT_CHECK, MEASURED, Suite
from analysis.suite.suite_folder import read
from contract.command_results import SuiteSummary

WIDTH = 80


def summary(folder: Path, derive: bool = False) -> SuiteSummary:
    """Eight lines at most of what happened, then the first page's lines, all at 80 columns.

    These are the report's; where it is not up to date, the next step alone, unless `derive` has its
    joules made again. Raises SuiteError where there is no suite.
    """
    suite = read(folder)
    energy = energy_of(folder) if derive or manifest.current(folder / "energy.parquet") else None
    incidents = incident_log(suite)
    mark = f" ({suite.plan.origin})" if suite.plan.origin != MEASURED else ""
    waits = [f"{w.cause} {duration(w.seconds)} ({times(w.times)})" for w in incidents.waits]
    waited = f"waited for: {', '.join(waits)}" if waits else ""
    happened = [
        f"{suite.suite_id} on {suite.host}{mark}",
        _when(suite),
        _runs(suite, incidents),
        _voids(suite, incidents),
        _interrupted(incidents, energy),
        "; ".join(filter(None, [missing_section.sentence(suite), waited])),
        _drift_check(suite, energy),
        _time(suite),
    ]
    answer = (
        (first_page.without_report(suite, incidents, folder),)
        if energy is None
        else first_page.lines(results_of(suite, energy), folder)
    )
    lines = [fitted(line) for line in happened if line]
    lines += render.text(first_page.blocks(answer), WIDTH).splitlines()
    return SuiteSummary(str(folder), tuple(lines), answer)


def fitted(line: str, width: int = WIDTH) -> str:
    """Return a line cut at a word so that it fits."""
    line = " ".join(line.replace("\u202f", "").split())
    if len(line) <= width:
        return line
    kept = line[: width - 1]
    return f"{(kept[: kept.rfind(' ')] if ' ' in kept[20:] else kept).rstrip(' ,;:')}…"


def _when(suite: Suite) -> str:
    began = [(t, run) for run in suite.runs if (t := _instant(run.started_wall))]
    ended = [t + timedelta(microseconds=(r.t_end_ns - r.t_start_ns) / 1000) for t, r in began]
    planned = _instant(suite.plan.created_wall)
    start = planned or min((t for t, _ in began), default=None)
    end = max(ended, default=None)
    if start is None or end is None:
        return f"no run finished; {_seal(suite)}"
    wall = duration((end - start).total_seconds())
    last = f"{end:%H:%M}" if end.date() == start.date() else f"{end:%Y-%m-%d %H:%M}"
    return f"{start:%Y-%m-%d %H:%M} to {last} UTC ({wall}); {_seal(suite)}"


def _instant(text: str) -> datetime | None:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)


def _seal(suite: Suite) -> str:
    if not suite.sealed:
        return "its seal is unreadable" if (suite.folder / MANIFEST).exists() else "not sealed"
    sealed = check(suite.folder)
    if sealed.problems:
        number = len(sealed.problems)
        which = "1 file is not as it was" if number == 1 else f"{number} files are not as they were"
        return f"sealed, but {which}"
    return f"sealed, all {sealed.files} sums are right"


def _runs(suite: Suite, incidents: IncidentLog) -> str:
    done = {run.run_id for run in suite.runs}
    blocks: dict[int, bool] = {}
    for run in suite.plan.runs:
        if run.workload != DRIFT_CHECK:
            blocks[run.block] = blocks.get(run.block, True) and run.run_id in done
    planned = len(suite.plan.runs)
    return (
        f"{sum(blocks.values())} of {len(blocks)} blocks whole; {len(done)} of {planned} runs "
        f"finished, {len(incidents.void_to_end)} void to the end, {incidents.never} never made"
    )


def _voids(suite: Suite, incidents: IncidentLog) -> str:
    if not incidents.voids:
        why = Counter(run.reason.rstrip(".") for run in suite.void)
        reasons = "; ".join(f"{number}× {reason}" for reason, number in why.most_common())
        return f"void: {reasons}" if reasons else "no try was void"
    reasons = "; ".join(f"{group.tries}× {group.reason.rstrip('.')}" for group in incidents.voids)
    repeated = incidents.at_once + incidents.later
    return f"void tries {incidents.tries_void}, repeated {repeated}: {reasons}"


def _interrupted(incidents: IncidentLog, energy: pl.DataFrame | None) -> str:
    parts = list(interruptions(incidents))
    missed = len(uncovered(energy)) if energy is not None else 0
    parts += [f"{words.count(missed, 'run')} not seen whole by a meter"] * bool(missed)
    parts += [f"it gave up: {incidents.failed}"] * bool(incidents.failed)
    return f"faults: {', '.join(parts)}" if parts else "no faults"


def _drift_check(suite: Suite, energy: pl.DataFrame | None) -> str:
    if energy is None:  # no report: the joules of its own runs alone are derived
        plan = suite.plan.drift_check
        runs = tuple(run for run in suite.runs if plan and run.workload == plan.workload)
        energy = of_references(suite, energy_table(replace(suite, runs=runs)))
    checked = drift_check(suite, energy, TargetClock.fit(suite.clock))
    if checked is None:
        return "drift check: nothing to say, it did not finish twice"
    if checked.verdict == CANNOT_TELL:
        why = FEW_READINGS if checked.worst.low is None else SCATTERS
        return f"drift check cannot tell: {why}"
    worst = f"{where(checked.worst)} {words.percent(1 + checked.worst.change, 2)}"
    most = "" if checked.verdict == MOVED else "at most "
    return f"drift check {checked.verdict}: {most}{worst}, limit ±{checked.limit * 100:g} %"


def _time(suite: Suite) -> str:
    wall_s = suite.timing.get("wall_s", 0.0)
    if not wall_s > 0:
        return "where the time went is not known: timing.json is made when the suite is fetched"
    shares = [
        (suite.timing[key] / wall_s, name)
        for key, name in catalogue().tables["times_short"].items()
        if key not in ("measuring_s", "wall_s") and key in suite.timing
    ]
    rest = [f"{name} {share:.0%}" for share, name in sorted(shares, reverse=True) if share > 0.005]
    measuring = suite.timing.get("measuring_s", 0.0) / wall_s
    return f"measuring {measuring:.0%} of {duration(wall_s)}; {', '.join(rest)}"
