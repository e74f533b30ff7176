"""The drift check: held, moved or unknown, and nowhere else in the report."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from statsmodels.regression.linear_model import OLS

from analysis.report.sections import Report
from analysis.stats.drift_check import CANNOT_TELL, HELD, MOVED, drift_check
from analysis.stats.results import write
from analysis.stats.steadiness import places_of
from analysis.suite.records import Suite
from analysis.tests.known import analysed, known
from analysis.tests.pages import text_of
from analysis.tests.test_steadiness import KINDS, NO_CLOCK, run
from validation.synthetic.suite import DRIFT_CHECKS, Options
from validation.synthetic.tables import energy_of, suite_of

SCATTER = (0.3, -0.5, 0.4, 0.1, -0.6, 0.2, 0.5, -0.4)


def idle_suite(
    change: float, runs_of_it: int = 8, sd: float = 0.001, **plan: Any
) -> tuple[Suite, pl.DataFrame]:
    """Idling of the baseline drifts by `change`, and scatters."""
    blocks = range(runs_of_it)
    rows = [
        {"workload": w, "configuration": c, "block": b, "energy_j": 300.0}
        for b, c, w in itertools.product(blocks, KINDS, ("idle", "write"))
    ]
    for row in rows:
        if (row["workload"], row["configuration"]) == ("idle", "plain"):
            block = int(str(row["block"]))
            drift = math.log1p(change) * block / (runs_of_it - 1)
            row["energy_j"] = 300 * math.exp(drift + sd * SCATTER[block])
    runs = [run(row, i / 10) for i, row in enumerate(rows)]
    return suite_of(KINDS, ["idle", "write"], runs=runs, **plan), energy_of(rows)


@pytest.mark.parametrize(("origin", "verdict"), [("modelled", HELD), ("measured", MOVED)])
def test_time_that_a_host_kept_from_a_modelled_machine_is_no_drift(
    origin: str, verdict: str
) -> None:
    """Its power is that of the rest; a real machine's went on."""
    suite, energy = idle_suite(0.0)
    share = pl.col("block") / 20
    energy = energy.with_columns(
        power_w=pl.col("power_w") * (1 - share),
        cpu_stolen_s=share * pl.col("duration_s") * 2,
        cpus=pl.lit(2),
        origin=pl.lit(origin),
    )
    check = known(drift_check(suite, energy, NO_CLOCK))
    assert check.verdict == verdict
    assert (
        check.readings[0].powers_w[-1] == pytest.approx(check.readings[0].powers_w[0], 0.01)
    ) == (verdict == HELD)


def test_without_one_in_the_plan_it_is_the_idling_of_the_baseline() -> None:
    suite, energy = idle_suite(0.013)
    check = known(drift_check(suite, energy, NO_CLOCK))
    assert (check.workload, check.configuration) == ("idle", "plain")
    (reading,) = check.readings
    assert len(reading.powers_w) == 8
    assert known(reading.low) < 0.013 < known(reading.high)
    assert check.hours is not None
    assert check.verdict == MOVED
    for change, verdict in ((0.005, HELD), (-0.013, MOVED)):
        other = known(drift_check(*idle_suite(change), NO_CLOCK))
        assert other.verdict == verdict


def test_the_change_is_that_of_a_straight_line_with_students_interval() -> None:
    suite, energy = idle_suite(0.013)
    reading = known(drift_check(suite, energy, NO_CLOCK)).readings[0]
    hours = [r.t_start_ns for r in suite.runs if (r.workload, r.configuration) == ("idle", "plain")]
    at = (np.array(hours) - hours[0]) / (hours[-1] - hours[0])
    fit = OLS(np.log(reading.powers_w), np.column_stack([np.ones(8), at])).fit()
    assert reading.change == pytest.approx(math.expm1(fit.params[1]))
    limits = np.expm1(fit.conf_int()[1])
    assert (known(reading.low), known(reading.high)) == pytest.approx(tuple(limits))
    assert reading.p_value == pytest.approx(fit.pvalues[1])


def test_a_change_that_its_own_scatter_explains_is_no_move() -> None:
    assert known(drift_check(*idle_suite(0.02, sd=0.03), NO_CLOCK)).verdict == CANNOT_TELL
    assert known(drift_check(*idle_suite(0.02, sd=0.002), NO_CLOCK)).verdict == MOVED


def test_each_reading_has_its_own_verdict() -> None:
    check = known(drift_check(*idle_suite(0.02, sd=0.03), NO_CLOCK))
    still = replace(check.readings[0], change=0.001)
    both = replace(check, readings=(*check.readings, still))
    assert [both.verdict_of(reading) for reading in both.readings] == [CANNOT_TELL, HELD]
    assert both.verdict == CANNOT_TELL


def test_a_few_runs_do_not_tell_how_much_they_scatter() -> None:
    check = known(drift_check(*idle_suite(0.02, runs_of_it=3), NO_CLOCK))
    assert (check.verdict, check.worst.low) == (CANNOT_TELL, None)
    assert known(drift_check(*idle_suite(0.001, runs_of_it=3), NO_CLOCK)).verdict == HELD
    assert known(drift_check(*idle_suite(0.02, runs_of_it=4), NO_CLOCK)).verdict == MOVED


def test_the_plan_names_the_drift_check_and_its_limit() -> None:
    declared = {"workload": "write", "configuration": "plain", "limit": 0.05}
    check = known(drift_check(*idle_suite(0.013, drift_check=declared), NO_CLOCK))
    assert (check.workload, check.limit, check.verdict) == ("write", 0.05, HELD)
    undeclared = known(drift_check(*idle_suite(0.013, drift_check=None), NO_CLOCK))
    assert (undeclared.workload, undeclared.limit) == ("idle", 0.01)
    nonsense: object
    for nonsense in ({"limit": 0}, {"limit": "x"}, {"limit": True}, [], {"workload": None}):
        with pytest.raises(ValueError, match="drift_check"):
            idle_suite(0.013, drift_check=nonsense)


def test_a_drift_check_that_ran_once_tells_nothing() -> None:
    suite, energy = idle_suite(0.013)
    assert drift_check(suite, energy.filter(block=0), NO_CLOCK) is None
    assert drift_check(suite_of({"soft": "dmcrypt"}, ["idle"]), energy, NO_CLOCK) is None


SMALL = Options(blocks=2, interval_ms=10, workloads=("kernel_tree", "sql"))


def made(folder: Path, last: float | None, **changes: Any) -> Report:
    options = Options(**{**vars(SMALL), "drift_check": last, **changes})
    return Report(analysed(folder, options))


@pytest.mark.parametrize(("last", "verdict"), [(1.0, HELD), (1.03, MOVED), (0.97, MOVED)])
def test_each_phase_is_held_against_itself_on_what_matters(
    tmp_path: Path, last: float, verdict: str
) -> None:
    report = made(tmp_path / "s", last, blocks=1, configurations=("plain",))
    assert known(report.results.drift_check).verdict == verdict
    channels = {(r.phase, r.component) for r in known(report.results.drift_check).readings}
    assert channels == set(itertools.product(("idle", "busy"), ("system", "drive", "package-0")))
    for reading in known(report.results.drift_check).readings:
        assert reading.change == pytest.approx(last - 1, abs=4e-3)
    text = text_of(report.answer())
    assert ("held" if verdict == HELD else "moved by") in text


def test_it_stands_nowhere_but_where_trust_is_spoken_of(tmp_path: Path) -> None:
    report = made(tmp_path / "s", 1.03, interval_ms=50)
    derived, page = report.results, report.page()
    sections = {section.anchor: text_of(section.blocks) for section in page.sections}
    write(derived)
    assert "drift_check" in set(derived.energy["workload"])
    assert "drift_check" not in set(derived.summary["workload"])
    assert "drift_check" not in derived.suite.workloads
    for text in (
        (tmp_path / "s" / "summary.csv").read_text(),
        *(sections[name] for name in ("figures", "workloads", "money", "published")),
    ):
        assert "rift check" not in text
    assert "Drift check" not in text_of(page.head)
    assert "The drift check (Drift check on plain) moved" in text_of(page)


def test_one_block_with_drift_checks_is_paired_as_without_it(tmp_path: Path) -> None:
    report = made(tmp_path / "s", 1.03, blocks=1, noise=0.0)
    with_check = report.results
    without = made(tmp_path / "t", None, blocks=1, noise=0.0).results
    assert len(with_check.suite.runs) == len(without.suite.runs) + DRIFT_CHECKS
    assert len(with_check.summary) == len(without.summary)
    for a, b in zip(with_check.contrasts, without.contrasts, strict=True):
        assert (a.base, a.other, a.workloads) == (b.base, b.other, b.workloads)
        assert a.comparison is not None and b.comparison is not None
        assert a.comparison.n == b.comparison.n == 1
        assert a.comparison.ratio == pytest.approx(b.comparison.ratio, rel=2e-3)


def test_the_first_place_in_a_block_is_not_the_drift_check(tmp_path: Path) -> None:
    derived = made(tmp_path / "s", 1.0, blocks=1, interval_ms=100, seed=3).results
    order = [run.configuration for run in derived.suite.compared_runs if run.block == 0]
    places = places_of(derived.suite.runs, derived.clock)
    assert [places[0, name] for name in dict.fromkeys(order)] == [0, 1, 2, 3]
