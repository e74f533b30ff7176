"""The truth that the benchmarks of energy are held against, and the benchmarks themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from validation.bench import Figure
from validation.metrology import coverage, loads_independent, phases
from validation.metrology.loads import (
    INSTRUMENTS,
    Calibration,
    Instrument,
    realistic,
    records,
    trial,
)


def test_the_integral_is_that_of_the_steps_and_ramps() -> None:
    """Against sums over a millionth of the phase each."""
    load = realistic(np.random.default_rng(1), 4.0, 30.0)
    t = np.linspace(load.start_s, load.end_s, 1_000_001)
    middle = (t[1:] + t[:-1]) / 2
    power = np.zeros(len(middle))
    for at, jump in zip(load.step_s, load.step_w, strict=True):
        power += np.where(middle >= at, jump, 0.0)
    for at, bend in zip(load.bend_s, load.bend_w_per_s, strict=True):
        power += np.where(middle >= at, bend * (middle - at), 0.0)
    assert load.phase_j == pytest.approx(float((power * np.diff(t)).sum()), abs=2e-3)


@pytest.mark.parametrize("meter", INSTRUMENTS, ids=lambda meter: meter.name)
def test_readings_are_means_of_the_load_late_and_some_missing(meter: Instrument) -> None:
    generator = np.random.default_rng(2)
    load = realistic(generator, 50 * meter.period_s, 300 * meter.period_s)
    received = records(load, meter, generator)
    assert received["t_mono_ns"].is_sorted()
    assert 0.95 < len(received) / (load.end_s / meter.period_s + 300) < 1
    every = records(load, meter, generator, dropped=0)
    ends = every["t_mono_ns"].to_numpy() / 1e9
    window_j = every["power_w_system"].to_numpy().sum() * meter.period_s
    true_j = float(np.diff(load.energy_j(np.array([0.0, ends[-1]])))[0])
    assert window_j == pytest.approx(true_j, rel=0.01)
    doubled = records(load, meter, generator, calibration=Calibration(2.0, 1.0), dropped=0)
    assert doubled["power_w_system"].mean() == pytest.approx(
        2 * float(every["power_w_system"].mean()) + 1,  # type: ignore[arg-type]
        rel=0.01,
    )


def test_a_calibration_that_is_off_shows_in_the_energy() -> None:
    generator = np.random.default_rng(3)
    result = trial(generator, INSTRUMENTS[1], 20.0, calibration=Calibration(1.05))
    assert result.energy.energy_j == pytest.approx(1.05 * result.truth_j, rel=0.003)


@pytest.mark.parametrize("measure", [phases.measure, coverage.measure])
def test_the_benchmarks_run_and_give_figures(measure: Callable[..., list[Figure]]) -> None:
    figures = measure(quick=True)
    assert len({figure.figure for figure in figures}) == len(figures)
    assert all(np.isfinite(figure.value) for figure in figures)
    accounted = [figure for figure in figures if figure.unit == "µJ"]
    assert all(figure.meets for figure in accounted)


def test_the_interval_of_coverage_can_be_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coverage, "PLOTTED", 18)
    coverage.plot(tmp_path / "coverage.png")
    assert (tmp_path / "coverage.png").stat().st_size > 5_000


def test_the_other_family_adds_up_and_alternates_between_its_rests() -> None:
    """The integral against sums over millionths of a second; no work where the agent rests."""
    generator = np.random.default_rng(5)
    load = loads_independent.scene(generator, INSTRUMENTS[0], 5.0)
    t = np.linspace(load.start_s, load.end_s, 2_000_001)
    power = np.diff(load.signal.energy_j(t)) / np.diff(t)
    index = np.searchsorted(load.signal.at_s, (t[1:] + t[:-1]) / 2, side="right") - 1
    direct = load.signal.power_w[index]
    assert float((direct * np.diff(t)).sum()) == pytest.approx(load.phase_j, rel=1e-5)
    assert np.ptp(power) > 3
    assert load.rest_before_s >= 4 and load.rest_after_s == 4
    for begin, end in (
        (load.start_s - load.rest_before_s, load.start_s),
        (load.end_s + 0.03, load.end_s + 4),
    ):
        rest_j = np.diff(load.signal.energy_j(np.array([begin, end])))[0]
        assert rest_j / (end - begin) < load.phase_j / 5.0 - 1
