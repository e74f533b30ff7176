"""From when on the machine took more or less."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from analysis.report.steadiness_section import steadiness_section
from analysis.stats.change_points import LEAST, change_points, steps
from analysis.stats.drift_check import Reading, drift_check
from analysis.stats.results import results
from analysis.stats.steadiness import steadiness
from analysis.suite.clocks import TargetClock
from analysis.tests.known import known
from analysis.tests.pages import text_of
from validation.synthetic.suite import Options, write_suite

NOISE = np.random.default_rng(11).normal(0, 0.002, 20)


def test_a_step_is_found_where_it_is() -> None:
    values = NOISE + 0.01 * (np.arange(20) >= 13)
    found = known(steps([values.tolist()])[0])
    assert found.after == 13
    assert found.low_percent < 1.0 < found.high_percent
    assert found.change_percent == pytest.approx(1.0, abs=0.25)
    assert found.p_value < 0.001


def test_neither_scatter_nor_a_steady_drift_is_a_step() -> None:
    assert steps([NOISE.tolist()]) == [None]
    assert steps([(NOISE + 0.001 * np.arange(20)).tolist()]) == [None]


def test_few_values_and_equal_ones_have_none() -> None:
    short = [0.0] * (LEAST // 2) + [1.0] * (LEAST - 1 - LEAST // 2)
    assert steps([short, [0.5] * 20, []]) == [None, None, None]


def test_many_series_are_looked_at_together() -> None:
    weak = NOISE + 0.0022 * (np.arange(20) >= 10)
    assert steps([weak.tolist()])[0] is not None
    generator = np.random.default_rng(4)
    others = [generator.normal(0, 1, 20).tolist() for _ in range(30)]
    assert steps([weak.tolist(), *others])[0] is None


def test_false_ones_are_as_rare_as_is_said() -> None:
    """In 200 suites of ten series, any."""
    generator = np.random.default_rng(5)
    suites = (generator.normal(0, 1, (10, 12)).tolist() for _ in range(200))
    false = sum(any(step is not None for step in steps(series)) for series in suites)
    assert false / 200 < 0.09


def test_the_report_names_it_with_the_blocks_and_the_time(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("steps") / "s"
    write_suite(folder, Options(blocks=9, interval_ms=100, drift_check=1.0, workloads=("sql",)))
    found = results(folder)
    times = {f"{block}": f"2026-01-01T0{block}:00:00+00:00" for block in range(9)}
    runs = tuple(replace(r, started_wall=times[str(r.block)]) for r in found.suite.runs)
    suite = replace(found.suite, runs=runs)
    clock = TargetClock.fit(suite.clock)
    energy = found.energy.with_columns(
        energy_j=found.energy["energy_j"] * (1 + 0.2 * (found.energy["block"] >= 5))
    )
    steady = steadiness(suite, energy, clock)
    points, looked = change_points(suite, steady, drift_check(suite, energy, clock))
    assert looked == 1  # the drift check ran too seldom
    (point,) = points
    assert point.of is None
    assert point.places == (5, 6)
    assert point.walls == (times["4"], times["5"])
    assert point.step.change_percent == pytest.approx(20, abs=3)
    changed = replace(found, suite=suite)
    said = text_of(steadiness_section(changed, steady, None))
    assert "blocks 5 and 6" in said
    assert "2026-01-01 04:00:00 to 2026-01-01 05:00:00" in said


def test_a_step_of_the_drift_checks_own_power_is_named_by_its_runs() -> None:
    powers = tuple(math.exp(value) for value in NOISE[:10] + 0.02 * (np.arange(10) >= 4))
    names = tuple(f"{k:04d}" for k in range(10))
    reading = Reading("busy", "system", "meter0", names, powers, 0.02)
    found = steps([[math.log(power_w) for power_w in reading.powers_w]])[0]
    assert known(found).after == 4
