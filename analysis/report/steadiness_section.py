"""How steady the machine was: scatter, drift, order, the drift check, and what stands out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.report import view, words
from analysis.report.view import Blocks, Fields
from analysis.stats.change_points import LEAST, ChangePoint, change_points
from analysis.stats.comparison import Comparison, holm
from analysis.stats.drift_check import CANNOT_TELL, MOVED, DriftCheck, Reading
from analysis.stats.results import Results
from analysis.stats.stats import LEVEL, Estimate
from analysis.stats.steadiness import Beside, Outlier, Stalls, Steadiness, stalls

SCATTERS = "it scatters by more than it changed"
FEW_READINGS = "so few readings do not tell how much they scatter"
PHASES = {"idle": "at rest", "busy": "under load", "all": "as a whole"}


def steadiness_section(
    found: Results, steady: Sequence[Steadiness], drift_check: DriftCheck | None
) -> Blocks:
    """Tables by workload, flagged runs, and the comparisons with and without them."""
    page = view.paragraph(drift_check_sentence(found, drift_check))
    page += drift_check_table(found, drift_check)
    page += _change_points(found, steady, drift_check)
    columns: Fields[Steadiness] = {
        "Workload": lambda s: words.name_of(s.workload),
        "Blocks": lambda s: str(s.n),
        "SD between blocks (%)": lambda s: words.number(s.between_sd_percent, 2),
        "Long-run mean (± %)": lambda s: words.number(s.long_run_percent, 2),
        "SD of single runs (%)": lambda s: words.number(s.within_sd_percent, 2),
        "Drift (%/h)": lambda s: _slope(s.drift_percent_per_hour),
        "A place later in the block (%)": lambda s: _slope(s.place_percent),
        "Carry-over (p)": lambda s: words.p_value(s.carry_over_p),
        "Flagged": lambda s: str(len(s.outliers)),
    }
    what = "Scatter, drift and order of one run's energy, the configurations' effects removed"
    page += view.table_of(what, steady, columns, origin=found.origin)
    page += view.paragraph(carry_over_sentence(steady, len(found.suite.configurations)))
    page += view.paragraph(
        "Drift and order with 95 % intervals: one that holds 0 shows nothing. Blocks in random "
        "order keep both out of the verdicts; they only widen the intervals. Carry-over: F test "
        "that no configuration matters for the one that runs after it, beside the place. Long-run "
        "mean: how far the joules of these blocks may lie from those that the machine takes in "
        "many nights, if it drifts slowly and at random (95 %); their own intervals are of these "
        "blocks alone.",
        "key",
    )
    return page + _outliers(found, steady) + _stalls(found, steady) + _beside(found, steady)


def _outliers(found: Results, steady: Sequence[Steadiness]) -> Blocks:
    columns: Fields[tuple[str, Outlier]] = {
        "Workload": lambda of: words.name_of(of[0]),
        "Configuration": lambda of: found.suite.label(of[1].configuration),
        "Block": lambda of: str(of[1].block + 1),
        "Off by (%)": lambda of: _off(of[1].off_percent),
        "In standard errors": lambda of: words.number(abs(of[1].deviations), 1),
    }
    rows = [(s.workload, outlier) for s in steady for outlier in s.outliers]
    what = "Runs that stand out: flagged only, nothing is left out of any verdict"
    return view.table_of(what, rows, columns, words=2, origin=found.origin, group=True)


def _beside(found: Results, steady: Sequence[Steadiness]) -> Blocks:
    """The comparisons with the flagged runs and without them."""
    columns: Fields[tuple[str, Beside]] = {
        "Workload": lambda of: words.name_of(of[0]),
        "Configuration": lambda of: found.suite.label(of[1].configuration),
        "With all blocks": lambda of: _judged(of[1].with_all),
        "Without the flagged": lambda of: _judged(of[1].without),
        "Blocks left out": lambda of: ", ".join(str(block + 1) for block in of[1].left_out),
    }
    rows = [(s.workload, beside) for s in steady for beside in s.beside]
    what = "What the flagged runs do to the comparisons (each by itself)"
    return view.table_of(what, rows, columns, words=2, origin=found.origin, group=True)


def _stalls(found: Results, steady: Sequence[Steadiness]) -> Blocks:
    """How often runs took far more than expected; too rare for any mean to tell."""
    rows = stalls(steady, found.suite.configurations)
    columns: Fields[Stalls] = {
        "Configuration": lambda one: found.suite.label(one.configuration),
        "Runs": lambda one: str(one.runs),
        "Stalled": lambda one: str(one.stalled),
        "Share of runs [95 %]": lambda one: (
            f"{words.number(100 * one.stalled / one.runs, 1)} % "
            f"[{words.number(100 * one.low, 1)}, {words.number(100 * one.high, 1)}]"
        ),
        "Largest (%)": lambda one: _off(one.most_percent),
    }
    caption = "Stalled runs: flagged, and above what their block and configuration lead to expect"
    return view.table_of(caption, rows, columns, origin=found.origin)


def carry_over_sentence(steady: Sequence[Steadiness], configurations: int) -> str:
    """Whether the configuration before changes a run's joules, in any workload (Holm).

    None follows itself within a block, so that random order leaves a share of it in the ratios.
    """
    tested = [(s.workload, s.carry_over_p) for s in steady if s.carry_over_p is not None]
    if not tested:
        return "Carry-over from one configuration to the next was not tested: too few blocks."
    p_values = holm(np.array([p for _, p in tested]))
    found = [words.name_of(w) for (w, _), p in zip(tested, p_values, strict=True) if p < LEVEL]
    least = f"smallest p by Holm over {len(tested)} workloads: {words.p_value(min(p_values))}"
    if not found:
        return f"No carry-over from one configuration to the next was found ({least})."
    return (
        f"The configuration that ran just before changes the joules of {', '.join(found)} "
        f"({least}): 1/{configurations} of that is left in the ratios of {configurations} "
        "configurations in random order. A longer rest before each run (settle_s) makes it smaller."
    )


def drift_check_sentence(found: Results, drift_check: DriftCheck | None) -> str:
    """Whether the drift check moved between its first and its last run."""
    if drift_check is None:
        return "There is no drift check: nothing ran twice on the baseline to tell."
    of = f"{words.name_of(drift_check.workload)} on {found.suite.label(drift_check.configuration)}"
    apart = "" if drift_check.hours is None else f", {_hours(drift_check.hours)} apart"
    runs = f"over {drift_check.runs} runs{apart}"
    limit = f"limit ±{words.given(drift_check.limit * 100)} %"
    worst = drift_check.worst
    change = f"{_change(worst)} ({where(worst)})"
    if drift_check.verdict == MOVED:
        said = f"moved by {change} from first to last {runs}; {limit}"
    elif drift_check.verdict == CANNOT_TELL:
        why = SCATTERS if worst.low is not None else FEW_READINGS
        said = f"cannot tell {runs}: {why}; {limit}"
    else:
        said = f"held: its power changed by {change} {runs}; {limit}"
    return f"The drift check ({of}) {said}."


def _change(reading: Reading) -> str:
    if reading.low is None or reading.high is None:
        return words.percent(1 + reading.change, 2)
    return words.change_of(1 + reading.change, 1 + reading.low, 1 + reading.high)


def drift_check_table(found: Results, drift_check: DriftCheck | None) -> Blocks:
    """All that was held against each other of the drift_check."""
    if drift_check is None:
        return ()
    rows = drift_check.readings
    columns: Fields[Reading] = {
        "Component": lambda r: f"{words.name_of(r.component)} ({r.source})",
        "Phase": lambda r: PHASES.get(r.phase, r.phase),
        "Runs": lambda r: str(len(r.powers_w)),
        "First (W)": lambda r: words.number(r.powers_w[0], 3),
        "Last (W)": lambda r: words.number(r.powers_w[-1], 3),
        "Change [95 %]": _change,
        "Verdict": drift_check.verdict_of,
    }
    caption = "The drift check's mean power, first run to last"
    return view.table_of(caption, rows, columns, words=2, origin=found.origin, group=True)


def _change_points(
    found: Results, steady: Sequence[Steadiness], drift_check: DriftCheck | None
) -> Blocks:
    """Steps of joules and of the drift check's power, with when they came."""
    points, looked = change_points(found.suite, steady, drift_check)
    if not looked:
        return view.paragraph(
            f"Change points were not looked for: that takes {LEAST} blocks or drift checks.", "key"
        )
    what = "Change points: from when on the machine took more or less"
    heads = ["What", "Between", "Target's time (UTC)", "Change [95 %]", "p"]
    page = view.table(what, heads, list(map(_point, points)), words=3, origin=found.origin)
    said = "were found" if points else "found: none"
    return page + view.paragraph(
        f"Change points {said} in {looked} series (joules of all workloads with the "
        "configurations' effects removed, system power of the drift check): the split that "
        "explains most, against the same values in random order, and more than a straight line "
        "explains; at most 5 % risk of a false one among all. Ratios within blocks hold anyway.",
        "key",
    )


def _point(point: ChangePoint) -> list[str]:
    of, step = point.of, point.step
    if of is None:
        what, each = "Joules of all workloads", "blocks"
    else:
        what, each = f"Drift check, {where(of)} ({of.source})", "drift checks"
    ratios = (1 + part / 100 for part in (step.change_percent, step.low_percent, step.high_percent))
    since, until = (wall.removesuffix("+00:00").replace("T", " ") for wall in point.walls)
    return [
        what,
        f"{each} {point.places[0]} and {point.places[1]}",
        f"{since} to {until}" if since and until else words.NOTHING,
        words.change_of(*ratios),
        words.p_value(step.p_value),
    ]


def where(reading: Reading) -> str:
    """Component and phase of a reading of the drift_check."""
    return f"{words.name_of(reading.component)} {PHASES.get(reading.phase, reading.phase)}"


def _hours(hours: float) -> str:
    return f"{words.rounded(hours)} h" if hours >= 1 else f"{words.rounded(hours * 60)} min"


def flagged(steady: Sequence[Steadiness], workload: str) -> set[tuple[int, str]]:
    """(block, configuration) of the runs of a workload that stand out."""
    return {
        (o.block, o.configuration) for s in steady if s.workload == workload for o in s.outliers
    }


def _slope(value: Estimate | None) -> str:
    if value is None or value.low is None or value.high is None:
        return words.NOTHING
    places = words.decimals(value.half_width, value.mean)
    low, high = (words.number(limit, places) for limit in (value.low, value.high))
    return f"{words.number(value.mean, places)} [{low}, {high}]"


def _judged(c: Comparison | None) -> str:
    return words.NOTHING if c is None else f"{words.change_in(c)}, {c.verdict}"


def _off(percent: float | None) -> str:
    if percent is None:
        return words.NOTHING
    return words.percent(1 + percent / 100).removesuffix(" %")
