"""How steady the machine was: scatter, drift, order, the drift check, and what stands out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from analysis.report import view, words
from analysis.report.view import Blocks
from analysis.stats.comparison import holm
from analysis.stats.results import Results
from analysis.stats.stalls import stalls
from analysis.stats.stats import LEVEL, Estimate
from analysis.stats.steadiness import CANNOT_TELL, HELD, MOVED, DriftCheck, Reading, Steadiness

PHASES = {"idle": "at rest", "busy": "under load", "all": "as a whole"}


def steadiness_section(
    found: Results, steady: Sequence[Steadiness], drift_check: DriftCheck | None
) -> Blocks:
    """Tables by workload, flagged runs, and the comparisons with and without them."""
    page = view.paragraph(drift_check_sentence(found, drift_check))
    page += drift_check_table(found, drift_check)
    page += view.table(
        "Scatter, drift and order of one run's energy, the configurations' effects removed",
        [
            "Workload",
            "Blocks",
            "SD between blocks (%)",
            "Long-run mean (± %)",
            "SD of single runs (%)",
            "Drift (%/h)",
            "A place later in the block (%)",
            "Carry-over (p)",
            "Flagged",
        ],
        [_row(s) for s in steady],
        origin=found.origin,
    )
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
    page += view.table(
        "Runs that stand out: flagged only, nothing is left out of any verdict",
        ["Workload", "Configuration", "Block", "Off by (%)", "In standard errors"],
        [
            [
                words.name_of(s.workload),
                found.suite.label(o.configuration),
                str(o.block + 1),
                words.percent(1 + o.off_percent / 100).removesuffix(" %"),
                words.number(abs(o.deviations), 1),
            ]
            for s in steady
            for o in s.outliers
        ],
        words=2,
        origin=found.origin,
        group=True,
    )
    page += _stalls(found, steady)
    return page + view.table(
        "What the flagged runs do to the comparisons (each by itself)",
        ["Workload", "Configuration", "With all blocks", "Without the flagged", "Blocks left out"],
        list(_beside(found, steady)),
        words=2,
        origin=found.origin,
        group=True,
    )


def _stalls(found: Results, steady: Sequence[Steadiness]) -> Blocks:
    """How often runs took far more than expected; too rare for any mean to tell."""
    return view.table(
        "Stalled runs: flagged, and above what their block and configuration lead to expect",
        ["Configuration", "Runs", "Stalled", "Share of runs [95 %]", "Largest (%)"],
        [
            [
                found.suite.label(one.configuration),
                str(one.runs),
                str(one.stalled),
                f"{words.number(100 * one.stalled / one.runs, 1)} % "
                f"[{words.number(100 * one.low, 1)}, {words.number(100 * one.high, 1)}]",
                words.NOTHING
                if one.most_percent is None
                else words.percent(1 + one.most_percent / 100).removesuffix(" %"),
            ]
            for one in stalls(steady, found.suite.configurations)
        ],
        origin=found.origin,
    )


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
        return "There is no drift check: nothing ran both first and last on the baseline."
    name = (
        f"{words.name_of(drift_check.workload)} on {found.suite.label(drift_check.configuration)}"
    )
    apart = "" if drift_check.hours is None else f", {_hours(drift_check.hours)} apart"
    limit = f"limit ±{words.given(drift_check.limit * 100)} %"
    worst = f"{words.percent(1 + drift_check.worst.change, 2)} at most ({where(drift_check.worst)})"
    if drift_check.verdict == MOVED:
        return f"The drift check ({name}) moved by {worst} from first to last{apart}; {limit}."
    if drift_check.verdict == CANNOT_TELL:
        uncertainty = words.given(round(drift_check.worst.uncertainty * 100, 2))
        return (
            f"The drift check ({name}) cannot tell: {worst} from first to last{apart}, {limit}; "
            f"the instruments alone may be off by ±{uncertainty} %."
        )
    return f"The drift check ({name}) held: its power changed by {worst}{apart}; {limit}."


def drift_check_table(found: Results, drift_check: DriftCheck | None) -> Blocks:
    """All that was held against each other of the drift_check."""
    return view.table(
        "The drift check's mean power, first run against last",
        [
            "Component",
            "Phase",
            "First (W)",
            "Last (W)",
            "Change (%)",
            "Instruments' uncertainty (± %)",
            "Verdict",
        ],
        [
            [
                f"{words.name_of(r.component)} ({r.source})",
                PHASES.get(r.phase, r.phase),
                words.number(r.first_w, 3),
                words.number(r.last_w, 3),
                words.percent(1 + r.change, 2).removesuffix(" %"),
                words.number(r.uncertainty * 100, 2),
                MOVED if drift_check is not None and drift_check.has_moved(r) else HELD,
            ]
            for r in (() if drift_check is None else drift_check.readings)
        ],
        words=2,
        origin=found.origin,
        group=True,
    )


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


def _row(s: Steadiness) -> list[str]:
    return [
        words.name_of(s.workload),
        str(s.n),
        words.number(s.between_sd_percent, 2),
        words.number(s.long_run_percent, 2),
        words.number(s.within_sd_percent, 2),
        _slope(s.drift_percent_per_hour),
        _slope(s.place_percent),
        words.p_value(s.carry_over_p),
        str(len(s.outliers)),
    ]


def _slope(value: Estimate | None) -> str:
    if value is None or value.low is None or value.high is None:
        return words.NOTHING
    places = words.decimals(value.half_width, value.mean)
    low, high = (words.number(limit, places) for limit in (value.low, value.high))
    return f"{words.number(value.mean, places)} [{low}, {high}]"


def _beside(found: Results, steady: Sequence[Steadiness]) -> Iterator[list[str]]:
    for s in steady:
        for b in s.beside:
            both = [
                words.NOTHING
                if c is None
                else f"{words.change_of(c.ratio, c.low, c.high)}, {c.verdict}"
                for c in (b.with_all, b.without)
            ]
            left_out = ", ".join(str(block + 1) for block in b.left_out)
            yield [words.name_of(s.workload), found.suite.label(b.configuration), *both, left_out]
