"""How steady the machine was: scatter, carry-over, the drift check and levels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.report import view, words
from analysis.report.view import Blocks, Fields
from analysis.stats.comparison import holm
from analysis.stats.drift_check import CANNOT_TELL, MOVED, DriftCheck, Reading
from analysis.stats.levels import LEAST, Level, Levels
from analysis.stats.results import Results
from analysis.stats.stats import LEVEL
from analysis.stats.steadiness import Steadiness
from analysis.suite.records import Suite

SCATTERS = "it scatters by more than it changed"
FEW_READINGS = "so few readings do not show how much they scatter"
PHASES = {"idle": "at rest", "busy": "under load", "all": "as a whole"}


def steadiness_section(
    results: Results, steady: Sequence[Steadiness], drift_check: DriftCheck | None
) -> Blocks:
    """Return the drift check, levels of runs, and scatter and carry-over by workload."""
    page = view.paragraph(drift_check_sentence(results.suite, drift_check))
    page += _levels_table(results)
    columns: Fields[Steadiness] = {
        "Workload": lambda s: words.name_of(s.workload),
        "Blocks": lambda s: str(s.n),
        "SD between blocks (%)": lambda s: words.number(s.between_sd_percent, 2),
        "SD of single runs (%)": lambda s: words.number(s.within_sd_percent, 2),
        "Carry-over (p)": lambda s: words.p_value(s.carry_over_p),
    }
    what = "Scatter of one run's energy, the configurations' effects removed, and carry-over"
    page += view.table_of(what, steady, columns, origin=results.origin)
    page += view.paragraph(carry_over_sentence(steady))
    page += view.paragraph(
        "Blocks in random order keep drift and the place in a block out of the verdicts; they only "
        "widen the intervals. Carry-over: F test that no configuration matters for the one that "
        "runs after it, beside the place.",
        "key",
    )
    return page


def carry_over_sentence(steady: Sequence[Steadiness]) -> str:
    """Return whether the configuration before changes a run's joules, in any workload (Holm).

    And what the test could have found.
    """
    tested = [
        (s.workload, s.carry_over_p, s.carry_over_least_percent)
        for s in steady
        if s.carry_over_p is not None
    ]
    if not tested:
        return (
            "Carry-over from one configuration to the next was not tested: too few blocks, or the "
            "order leaves it open. A plan of this version lets each configuration follow itself as "
            "often as any other, so that it cancels in ratios."
        )
    p_values = holm(np.array([p for _, p, _ in tested]))
    affected = [words.name_of(w) for (w, *_), p in zip(tested, p_values, strict=True) if p < LEVEL]
    least = [(size, w) for w, _, size in tested if size is not None]
    ends = [f"{words.rounded(size)} % ({words.name_of(w)})" for size, w in sorted(least)]
    reach = f"from {ends[0]} to {ends[-1]}" if len(ends) > 1 else "".join(ends) or "unknown"
    could = f"A carry-over that the test finds with 80 % power, by workload: {reach}"
    if not affected:
        return f"{could}. It found none; a smaller one may be there."
    return (
        f"The configuration that ran just before changes the joules of {', '.join(affected)}. "
        f"{could}. A longer rest before each run (settle_s) makes it smaller."
    )


def drift_check_sentence(suite: Suite, drift_check: DriftCheck | None) -> str:
    """Whether the drift check moved between its first and its last run."""
    if drift_check is None:
        return "There is no drift check: nothing ran twice on the baseline."
    subject = f"{words.name_of(drift_check.workload)} on {suite.label(drift_check.configuration)}"
    apart = "" if drift_check.hours is None else f", {_hours(drift_check.hours)} apart"
    runs = f"over {drift_check.runs} runs{apart}"
    limit = f"limit ±{words.exact(drift_check.limit * 100)} %"
    worst = drift_check.worst
    change = f"{_change(worst)} ({where(worst)})"
    if drift_check.verdict == MOVED:
        verdict = f"moved by {change} from first to last {runs}; {limit}"
    elif drift_check.verdict == CANNOT_TELL:
        why = SCATTERS if worst.low is not None else FEW_READINGS
        verdict = f"cannot tell {runs}: {why}; {limit}"
    else:
        verdict = f"held: its power changed by {change} {runs}; {limit}"
    return f"The drift check ({subject}) {verdict}."


def _change(reading: Reading) -> str:
    if reading.low is None or reading.high is None:
        return words.percent(1 + reading.change, 2)
    return words.change_of(1 + reading.change, 1 + reading.low, 1 + reading.high)


def where(reading: Reading) -> str:
    """Component and phase of a reading of the drift_check."""
    return f"{words.name_of(reading.component)} {PHASES.get(reading.phase, reading.phase)}"


def _hours(hours: float) -> str:
    return f"{words.rounded(hours)} h" if hours >= 1 else f"{words.rounded(hours * 60)} min"


def _levels_table(results: Results) -> Blocks:
    """Return the levels of each workload and configuration that has more than one."""
    columns: Fields[tuple[Levels, Level]] = {
        "Workload": lambda row: words.name_of(row[0].workload),
        "Configuration": lambda row: results.suite.label(row[0].configuration),
        "Level (J)": lambda row: words.number(row[1].mean_j),
        "Runs": lambda row: f"{row[1].runs} of {row[0].runs}",
        "Share of runs [95 %]": lambda row: (
            f"{words.number(100 * row[1].low, 0)} to {words.number(100 * row[1].high, 0)} %"
        ),
    }
    rows = [(cell, level) for cell in results.family.levels for level in cell.levels]
    what = "More than one level: the gap is wider than the scatter explains (5 % risk in all)"
    page = view.table_of(what, rows, columns, words=2, origin=results.origin, group=True)
    short = [cell for cell in results.family.levels if cell.p_adjusted is None]
    if short:
        page += view.paragraph(
            f"Whether runs have more than one level takes {LEAST} of them: of "
            f"{words.count(len(short), 'cell')} of the table of workloads it is unknown.",
            "key",
        )
    return page


def flagged(results: Results, workload: str) -> set[tuple[int, str]]:
    """(block, configuration) of the runs of a workload that are on its smaller level."""
    return {
        (block, cell.configuration)
        for cell in results.family.levels
        if cell.workload == workload
        for block in cell.blocks
    }
