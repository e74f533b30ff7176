"""The benchmarks of the analysis, in small: the same lines, and bounds that few suites allow."""

from __future__ import annotations

import math
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from analysis.stats.comparison import LogRatio, compare
from validation.bench import Figure
from validation.inference import (
    agreement,
    budgets,
    coverage,
    drift_checks,
    families,
    misfortunes,
    money,
    planning,
    reach,
    steadiness,
)
from validation.inference.simulated import Scene, log_ratios, simulate


def by_name(figures: list[Figure]) -> dict[str, Figure]:
    return {figure.figure: figure for figure in figures}


def test_simulated_suites_are_as_asked() -> None:
    scene = Scene(blocks=40, workloads=2, ratio=1.1, block_sd=0.02, swing=0.0)
    suites = simulate(scene, 300, np.random.default_rng(1))
    assert suites.logs.shape == (300, 2, 40, 4)
    assert (np.sort(suites.places, axis=-1) == np.arange(4)).all()
    assert len({tuple(order) for order in suites.places.reshape(-1, 4)}) == 24
    ratios = suites.logs[..., 1] - suites.logs[..., 0]
    assert np.mean(ratios) == pytest.approx(math.log(1.1), abs=2e-4)
    still = replace(scene, drift_per_h=0.0, place=0.0)
    quiet = simulate(still, 300, np.random.default_rng(2)).logs.mean(axis=1)
    assert np.std(quiet[..., 1] - quiet[..., 0]) == pytest.approx(still.differences_sd, rel=0.03)
    assert np.std(quiet.mean(axis=-1)) == pytest.approx(0.02, rel=0.05)
    drift = simulate(replace(still, drift_per_h=0.05), 300, np.random.default_rng(2))
    slope = np.polyfit(drift.hours[0].ravel(), drift.logs.mean(axis=(0, 1)).ravel(), 1)[0]
    assert 0.04 < slope < 0.06


def test_array_and_single_comparison_agree() -> None:
    logs = simulate(Scene(blocks=5, workloads=2, ratio=1.02), 4, np.random.default_rng(3)).logs
    ratios = LogRatio.from_logs(log_ratios(logs))
    low, high = ratios.interval()
    for number, of_suite in enumerate(logs):
        means = np.exp(of_suite.mean(axis=0))
        alone = compare(means[:, 0].tolist(), means[:, 1].tolist(), 0.02)
        assert alone is not None
        assert (alone.low, alone.high) == pytest.approx(
            (math.exp(low[number]), math.exp(high[number])), rel=1e-12
        )


@pytest.mark.parametrize("part", [budgets, coverage], ids=["of budgets", "of ratios"])
def test_intervals_hold_the_truth(part: ModuleType) -> None:
    figures = part.measure(quick=True)
    assert len(figures) == 12
    assert all(91.5 < figure.value < 98.5 for figure in figures)


def test_false_verdicts_are_rare() -> None:
    figures = by_name(families.measure(quick=True))
    assert len(figures) == 11
    assert all(figure.meets for figure in figures.values() if figure.target)
    power = next(f.value for name, f in figures.items() if name.startswith("a true change of 1 %"))
    assert power > 70


def test_fixed_order_would_be_found_out() -> None:
    """What the random order is for: with all of one configuration first, drift is a difference."""
    scene = Scene(blocks=10, drift_per_h=0.0, place=0.002, swing=0.0)
    suites = simulate(scene, 400, np.random.default_rng(5))
    fixed = suites.logs[:, 0] + scene.place * (np.arange(4) - suites.places)
    fixed_low, fixed_high = LogRatio.from_logs(log_ratios(fixed[:, None])).interval()
    low, high = LogRatio.from_logs(log_ratios(suites.logs)).interval()
    assert np.mean((fixed_low > 0) | (fixed_high < 0)) > 0.2
    assert np.mean((low > 0) | (high < 0)) < 0.08


def test_our_lines_agree_with_statsmodels() -> None:
    assert all(figure.meets for figure in agreement.measure(quick=True))


def test_suites_find_the_detectable_ratio() -> None:
    assert all(73 < figure.value < 87 for figure in planning.measure(quick=True))


def test_intervals_of_money_hold_the_truth() -> None:
    figures = by_name(money.measure(quick=True))
    held = {name: f.value for name, f in figures.items() if f.target == "93–97"}
    assert len(held) == 6
    assert all(91.5 < value < 98.5 for value in held.values())
    false = [f for name, f in figures.items() if name.startswith("suites without a saving")]
    assert all(figure.meets for figure in false)


def test_carry_over_is_detected_if_present() -> None:
    figures = by_name(steadiness.measure(quick=True))
    carried = {name: f for name, f in figures.items() if "carry-over" in name}
    assert all(f.meets for f in carried.values() if f.target)
    detected, remaining = (
        f.value for n, f in carried.items() if n.endswith("10 blocks") and not f.target
    )
    assert detected > 70
    assert remaining == pytest.approx(-0.5 / 4, abs=0.03)  # of 4 configurations


def test_the_drift_check_detects_drift_with_few_false_alarms() -> None:
    figures = by_name(drift_checks.measure(quick=True))
    false = [f for name, f in figures.items() if "false" in name]
    assert len(false) == 9
    assert all(figure.meets for figure in false)
    old = "the same by the first and the last check alone, 5 checks, scatter 0.5%"
    assert figures[old].value > 40
    detected = [f.value for name, f in figures.items() if "found" in name]
    assert all(value > 40 for value in detected)


def test_intervals_hold_with_void_runs() -> None:
    figures = by_name(misfortunes.measure(quick=True))
    voids = [v.value for n, v in figures.items() if "true ratio within the 95" in n]
    assert len(voids) == 6
    assert all(value > 86 for value in voids)
    self_voided = [figure for name, figure in figures.items() if "own tries void" in name]
    assert len(self_voided) == 12 and all(figure.meets for figure in self_voided)


def test_pages_of_unkind_data_have_no_false_verdicts() -> None:
    figures = by_name(reach.measure(quick=True))
    assert all(figure.meets for figure in figures.values() if figure.target)
    assert all(f.value > 80 for name, f in figures.items() if "10 blocks" in name and not f.target)
