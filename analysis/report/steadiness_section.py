"""How steady the machine was: scatter, carry-over, the drift check and rare events."""

from __future__ import annotations

import math
from collections.abc import Sequence

from analysis.report import view, words
from analysis.report.provenance import duration
from analysis.report.texts import say
from analysis.report.view import Blocks, Fields
from analysis.stats.drift_check import CANNOT_TELL, MOVED, DriftCheck, Reading
from analysis.stats.rare_events import RareEvents
from analysis.stats.results import Results
from analysis.stats.stats import LEVEL, holm
from analysis.stats.steadiness import Steadiness, steadiness
from analysis.suite.records import Suite

SCATTERS = "the scatter exceeds the change"
FEW_READINGS = "too few readings to show the scatter"
PHASES = {"idle": "at rest", "busy": "under load", "all": "as a whole"}


def steadiness_section(results: Results) -> Blocks:
    """Return the drift check, rare events, scatter and carry-over by workload."""
    component = results.family.component
    steady = steadiness(results.suite, results.energy, results.clock, component)
    page = view.paragraph(drift_check_sentence(results.suite, results.drift_check))
    columns: Fields[Steadiness] = {
        "Workload": lambda s: words.name_of(s.workload),
        "Blocks": lambda s: str(s.n),
        "SD between blocks (%)": lambda s: words.number(s.between_sd_percent, 2),
        "SD of single runs (%)": lambda s: words.number(s.within_sd_percent, 2),
        "Carry-over (p)": lambda s: words.p_value(s.carry_over_p),
    }
    caption = "Scatter of a run's energy without the configurations' effects, and carry-over"
    scatter = view.table_of(caption, steady, columns)
    scatter += view.paragraph(carry_over_sentence(steady)) + view.key("steadiness")
    return page + view.columns(scatter, _events_table(results))


def carry_over_sentence(steady: Sequence[Steadiness]) -> str:
    """Return whether the previous configuration changes a run's joules in any workload (Holm).

    The sentence includes the effect that the test could detect.
    """
    tested = [(s, s.carry_over_p) for s in steady if s.carry_over_p is not None]
    if not tested:
        return say("steadiness.untested")
    p_values = holm([p for _, p in tested])
    names = [words.name_of(s.workload) for s, _ in tested]
    affected = [name for name, p in zip(names, p_values, strict=True) if p < LEVEL]
    least = [
        (size, s.workload) for s, _ in tested if (size := s.carry_over_least_percent) is not None
    ]
    ends = [f"{words.rounded(size)} % ({words.name_of(w)})" for size, w in sorted(least)]
    reach = f"from {ends[0]} to {ends[-1]}" if len(ends) > 1 else "".join(ends) or "unknown"
    could = f"Carry-over that the test detects with 80 % power, by workload: {reach}"
    if not affected:
        return f"{could}. It found none; a smaller one is possible."
    return (
        f"The previous configuration changes the joules of {', '.join(affected)}. "
        f"{could}. A longer rest before each run (settle_s) reduces it."
    )


def drift_check_sentence(suite: Suite, drift_check: DriftCheck | None) -> str:
    """Return whether the drift check moved between its first and its last run."""
    if drift_check is None:
        return "No drift check: nothing ran twice on the baseline."
    subject = f"{words.name_of(drift_check.workload)} on {suite.label(drift_check.configuration)}"
    hours = drift_check.hours
    apart = "" if hours is None else f", {duration(3600 * hours)} apart"
    runs = f"over {drift_check.runs} runs{apart}"
    limit = f"limit ±{words.exact(drift_check.limit * 100)} %"
    worst = drift_check.worst
    if worst.low is None or worst.high is None:
        change = words.percent(1 + worst.change, 2)
    else:
        change = words.change_of(1 + worst.change, 1 + worst.low, 1 + worst.high)
    change = f"{change} ({where(worst)})"
    if drift_check.verdict == MOVED:
        verdict = f"moved by {change} from first to last {runs}; {limit}"
    elif drift_check.verdict == CANNOT_TELL:
        why = SCATTERS if worst.low is not None else FEW_READINGS
        verdict = f"cannot tell {runs}: {why}; {limit}"
    else:
        verdict = f"held: its power changed by {change} {runs}; {limit}"
    return f"The drift check ({subject}) {verdict}."


def where(reading: Reading) -> str:
    """Return the component and the phase of a reading of the drift check."""
    return f"{words.name_of(reading.component)} {PHASES.get(reading.phase, reading.phase)}"


def _events_table(results: Results) -> Blocks:
    """Return the configurations with runs that stand out from the others of their workload."""
    columns: Fields[RareEvents] = {
        "Configuration": lambda e: results.suite.label(e.configuration),
        "Runs that stand out": lambda e: f"{len(e.events)} of {e.runs}",
        "Workloads": lambda e: words.listed(sorted({words.name_of(w) for w, _ in e.events})),
        "Farthest from the median": lambda e: f"{100 * math.expm1(e.largest_log):.0f} %",
        "Widens intervals by": lambda e: f"±{100 * math.expm1(e.allowance):.1f} %",
    }
    rows = [e for e in results.family.events.values() if e.events]
    what = "Rare events: runs far from others of their workload and configuration"
    return view.table_of(what, rows, columns, words=3) + (
        view.key("steadiness.events") if rows else ()
    )


def flagged(results: Results, workload: str) -> set[tuple[int, str]]:
    """Return (block, configuration) of the runs of a workload that stand out."""
    return {
        (block, e.configuration)
        for e in results.family.events.values()
        for name, block in e.events
        if name == workload
    }
