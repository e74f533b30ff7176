"""Scatter, carry-over and the drift check."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from statsmodels.regression.linear_model import OLS

from analysis.report.sections import Report
from analysis.report.steadiness_section import carry_over_sentence, drift_check_sentence
from analysis.stats.drift_check import CANNOT_TELL, HELD, MOVED, drift_check
from analysis.stats.steadiness import hours_of, places_of, steadiness
from analysis.suite.clocks import TargetClock
from analysis.suite.records import Run, Suite
from analysis.tests.known import analysed, known, run_of
from analysis.tests.pages import text_of
from instrumentation.clock import ClockReading
from validation.synthetic.suite import DRIFT_CHECKS, Options
from validation.synthetic.tables import energy_of, run_id_of, suite_of

KINDS = {"plain": "plain", "opal": "opal", "soft": "dmcrypt", "true": "tcrypt"}
HOUR_NS = 3_600_000_000_000
NO_CLOCK = TargetClock({})


def drawn_suite(
    blocks: int = 6,
    *,
    sd: float = 0.002,
    drift_per_h: float = 0.0,
    place: float = 0.0,
    carry: float = 0.0,
    block_sd: float = 0.01,
    workloads: Sequence[str] = ("write",),
    seed: int = 3,
    outlier: tuple[int, str, float] | None = None,
    **plan: Any,
) -> tuple[Suite, pl.DataFrame]:
    """Half an hour for each configuration, in random order within each block.

    `carry` is what `true` adds to the one that runs after it.
    """
    generator = np.random.default_rng(seed)
    rows, runs, last = [], [], ""
    for block in range(blocks):
        of_block = float(generator.normal(0, block_sd))
        for at, name in enumerate(generator.permutation(list(KINDS))):
            hours = (block * len(KINDS) + at) / 2
            for workload in workloads:
                log = of_block + drift_per_h * hours + place * at + 0.05 * list(KINDS).index(name)
                log += float(generator.normal(0, sd)) + carry * (last == "true")
                if outlier is not None and outlier[:2] == (block, name):
                    log += outlier[2]
                row = {"workload": workload, "configuration": str(name), "block": block}
                rows.append({**row, "energy_j": 500 * math.exp(log)})
                runs.append(run(row, hours))
            last = str(name)
    # As the plan would have them, which is not the order of time here.
    return suite_of(KINDS, workloads, runs=sorted(runs, key=lambda r: r.run_id), **plan), energy_of(
        rows
    )


def run(row: dict[str, Any], hours: float, boot_id: str = "one") -> Run:
    start = 77 * HOUR_NS + round(hours * HOUR_NS)
    return run_of(
        run_id=run_id_of(row),
        block=row["block"],
        configuration=row["configuration"],
        workload=row["workload"],
        boot_id=boot_id,
        t_start_ns=start,
        t_end_ns=start + 1,
        phases=(),
    )


def test_scatter_is_estimated_without_effects_of_configurations() -> None:
    steady = steadiness(*drawn_suite(30, block_sd=0.003), NO_CLOCK)[0]
    assert steady.within_sd_percent == pytest.approx(0.2, rel=0.25)
    assert steady.between_sd_percent == pytest.approx(0.3, rel=0.4)


Row = tuple[int, str, float]


def design_of(suite: Suite, energy: pl.DataFrame) -> tuple[list[Row], Any, Any, Any]:
    """Rows, and by row the indicators of block and configuration, and the place."""
    rows = energy.select("block", "configuration", "energy_j").rows()
    places = places_of(suite.runs, NO_CLOCK)
    block = np.array([[row[0] == b for b in {row[0] for row in rows}] for row in rows], float)
    name = np.array([[row[1] == n for n in list(KINDS)[1:]] for row in rows], float)
    return rows, block, name, np.array([[places[row[0], row[1]]] for row in rows], float)


def test_carry_over_is_the_f_test_of_the_regression() -> None:
    """Also with a hole, and across blocks: the first of one runs after the last of the other."""
    suite, energy = drawn_suite(6, place=0.001, carry=0.003)
    energy = energy.filter(~((pl.col("block") == 2) & (pl.col("configuration") == "soft")))
    steady = steadiness(suite, energy, NO_CLOCK)[0]
    in_time = sorted(suite.runs, key=lambda r: r.t_start_ns)
    before = {
        (late.block, late.configuration): early.configuration for early, late in pairwise(in_time)
    }
    rows, block, name, place = design_of(suite, energy)
    first = np.array([[row[:2] not in before] for row in rows], float)
    after = np.array([[before.get(row[:2]) == n for n in KINDS] for row in rows], float)
    assert first.sum() == 1
    logs = np.log([row[2] for row in rows])
    reduced = OLS(logs, np.hstack([block, name, place, first])).fit()
    full = OLS(logs, np.hstack([block, name, place, first, after[:, 1:]])).fit()
    assert steady.carry_over_p == pytest.approx(full.compare_f_test(reduced)[1], rel=1e-6)


def test_a_carry_over_is_detected_and_named_by_workload() -> None:
    carried = steadiness(*drawn_suite(12, carry=0.01, place=0.001), NO_CLOCK)
    assert known(carried[0].carry_over_p) < 1e-4
    sentence = carry_over_sentence(carried)
    assert "changes the joules of write" in sentence
    none = [
        steadiness(*drawn_suite(6, place=0.01, drift_per_h=0.004, seed=k), NO_CLOCK)
        for k in range(60)
    ]
    p_values = [line[0].carry_over_p or 0.0 for line in none]
    assert sum(p < 0.05 for p in p_values) <= 9  # 3 expected
    assert max(p_values) > 0.8
    likely = next(line for line in none if (line[0].carry_over_p or 0.0) > 0.1)
    assert known(likely[0].carry_over_least_percent) > 0
    assert "It found none" in carry_over_sentence(likely)


def test_few_blocks_give_none() -> None:
    single = steadiness(*drawn_suite(1), NO_CLOCK)[0]
    assert (single.n, single.between_sd_percent, single.carry_over_p) == (1, None, None)
    two = steadiness(*drawn_suite(2), NO_CLOCK)[0]
    assert two.between_sd_percent is not None
    assert two.carry_over_p is None
    assert "too few blocks" in carry_over_sentence([two])
    suite, energy = drawn_suite(3)
    lone = energy.filter(configuration="plain")
    assert steadiness(suite, lone, NO_CLOCK)[0].between_sd_percent is None
    apart = energy.filter(
        ((pl.col("block") == 0) & (pl.col("configuration") == "plain"))
        | ((pl.col("block") == 1) & (pl.col("configuration") == "soft"))
    )
    assert steadiness(suite, apart, NO_CLOCK)[0].between_sd_percent is None
    assert steadiness(suite, energy.clear(), NO_CLOCK) == []


def test_confounded_halves_have_no_scatter() -> None:
    suite, energy = drawn_suite(4)
    first = pl.col("configuration").is_in(["plain", "opal"])
    halves = energy.filter(first == (pl.col("block") < 2))
    assert len(halves) == 8
    steady = steadiness(suite, halves, NO_CLOCK)[0]
    assert (steady.n, steady.between_sd_percent) == (4, None)


def test_one_order_in_every_block_has_no_carry_over_test() -> None:
    suite, energy = drawn_suite(4)
    runs = [
        replace(r, t_start_ns=(r.block * 4 + list(KINDS).index(r.configuration)) * HOUR_NS)
        for r in suite.runs
    ]
    steady = steadiness(replace(suite, runs=tuple(runs)), energy, NO_CLOCK)[0]
    assert steady.carry_over_p is None


def test_times_across_boots_need_the_clock() -> None:
    suite, _ = drawn_suite(4)
    runs = tuple(replace(r, boot_id="two") if r.block > 1 else r for r in suite.runs)
    assert hours_of(runs, NO_CLOCK) == {}
    clock = TargetClock.fit(
        ClockReading(t + shift, t + 1000, t + shift + 2000, boot)
        for boot, shift in (("one", 0), ("two", 9 * HOUR_NS))
        for t in range(77 * HOUR_NS, 90 * HOUR_NS, HOUR_NS)
    )
    hours = hours_of(runs, clock)
    first, last = (min(r.t_start_ns for r in runs), max(r.t_start_ns for r in runs))
    assert max(hours.values()) == pytest.approx((last - first) / HOUR_NS + 9, abs=1e-6)


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
def test_time_stolen_from_a_modelled_machine_is_not_drift(origin: str, verdict: str) -> None:
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


def test_idling_of_the_baseline_is_the_default_drift_check() -> None:
    suite, energy = idle_suite(0.013)
    check = known(drift_check(suite, energy, NO_CLOCK))
    assert (check.workload, check.configuration) == ("idle", "plain")
    (reading,) = check.readings
    assert len(reading.powers_w) == 8
    assert known(reading.low) < 0.013 < known(reading.high)
    assert check.hours is not None
    assert check.verdict == MOVED


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


@pytest.mark.parametrize(
    ("change", "runs", "sd", "verdict"),
    [
        (0.005, 8, 0.001, HELD),
        (-0.013, 8, 0.001, MOVED),
        (0.02, 8, 0.03, CANNOT_TELL),
        (0.02, 8, 0.002, MOVED),
        (0.02, 3, 0.001, CANNOT_TELL),
        (0.001, 3, 0.001, HELD),
        (0.02, 4, 0.001, MOVED),
    ],
)
def test_verdict_by_change_number_of_runs_and_scatter(
    change: float, runs: int, sd: float, verdict: str
) -> None:
    check = known(drift_check(*idle_suite(change, runs, sd), NO_CLOCK))
    assert check.verdict == verdict
    assert (check.worst.low is None) == (runs < 4)


def test_each_reading_has_its_own_verdict() -> None:
    check = known(drift_check(*idle_suite(0.02, sd=0.03), NO_CLOCK))
    still = replace(check.readings[0], change=0.001)
    two_readings = replace(check, readings=(*check.readings, still))
    assert [two_readings.verdict_of(reading) for reading in two_readings.readings] == [
        CANNOT_TELL,
        HELD,
    ]
    assert two_readings.verdict == CANNOT_TELL


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


def test_a_drift_check_that_ran_once_is_none() -> None:
    suite, energy = idle_suite(0.013)
    assert drift_check(suite, energy.filter(block=0), NO_CLOCK) is None
    assert drift_check(suite_of({"soft": "dmcrypt"}, ["idle"]), energy, NO_CLOCK) is None


SMALL = Options(blocks=2, interval_ms=10, workloads=("kernel_tree", "sql"))


def drifting(folder: Path, last: float | None, **changes: Any) -> Report:
    options = Options(**{**vars(SMALL), "drift_check": last, **changes})
    return Report(analysed(folder, options))


@pytest.mark.parametrize(("last", "verdict"), [(1.0, HELD), (1.03, MOVED), (0.97, MOVED)])
def test_each_phase_and_judged_component_has_a_reading(
    tmp_path: Path, last: float, verdict: str
) -> None:
    report = drifting(tmp_path / "s", last, blocks=1, configurations=("plain",))
    assert known(report.results.drift_check).verdict == verdict
    channels = {(r.phase, r.component) for r in known(report.results.drift_check).readings}
    assert channels == set(itertools.product(("idle", "busy"), ("system", "drive", "package-0")))
    for reading in known(report.results.drift_check).readings:
        assert reading.change == pytest.approx(last - 1, abs=4e-3)
    sentence = drift_check_sentence(report.results.suite, report.results.drift_check)
    assert ("held" if verdict == HELD else "moved by") in sentence


def test_the_drift_check_is_not_a_workload_of_the_figures(tmp_path: Path) -> None:
    report = drifting(tmp_path / "s", 1.03, interval_ms=50)
    derived, page = report.results, report.page()
    assert "drift_check" in set(derived.energy["workload"])
    assert "drift_check" not in {*derived.summary["workload"], *derived.suite.workloads}
    sections = {section.anchor: text_of(section.blocks) for section in page.sections}
    for name in ("figures", "workloads", "money", "published"):
        assert "rift check" not in sections[name]
    assert "The drift check (Drift check on plain) moved" in text_of(page)


def test_drift_checks_do_not_change_the_contrasts_of_a_block(tmp_path: Path) -> None:
    report = drifting(tmp_path / "s", 1.03, blocks=1, noise=0.0)
    with_check = report.results
    without = drifting(tmp_path / "t", None, blocks=1, noise=0.0).results
    assert len(with_check.suite.runs) == len(without.suite.runs) + DRIFT_CHECKS
    assert len(with_check.summary) == len(without.summary)
    for a, b in zip(with_check.contrasts, without.contrasts, strict=True):
        assert (a.base, a.other, a.workloads) == (b.base, b.other, b.workloads)
        assert a.comparison is not None and b.comparison is not None
        assert a.comparison.n == b.comparison.n == 1
        assert a.comparison.ratio == pytest.approx(b.comparison.ratio, rel=2e-3)


def test_the_first_place_in_a_block_is_not_the_drift_check(tmp_path: Path) -> None:
    derived = drifting(tmp_path / "s", 1.0, blocks=1, interval_ms=100, seed=3).results
    order = [run.configuration for run in derived.suite.compared_runs if run.block == 0]
    places = places_of(derived.suite.runs, derived.clock)
    assert [places[0, name] for name in dict.fromkeys(order)] == [0, 1, 2, 3]
