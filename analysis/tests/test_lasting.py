"""What refutes a rest beside an edge, and what the rests tell of the noise."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from analysis.energy.curve import LASTING_S, Edge, lasting, rests
from analysis.energy.metered import Metered
from analysis.energy.uncertainty import Resolution
from analysis.suite.samples import of_table


def test_a_rest_whose_first_window_still_works_is_none() -> None:
    steady = np.array([20.1, 20.0, 20.2, 20.1, 20.0])
    assert rests(steady, 0.1)
    assert not rests(np.array([35.0, *steady]), 0.1)
    assert not rests(np.array([12.0, *steady]), 0.1)


def test_few_windows_or_the_last_digit_refute_no_rest() -> None:
    assert rests(np.array([35.0, 20.0, 20.1]), 0.1)
    assert rests(np.array([20.1, 20.0, 20.0, 20.0, 20.0]), 0.1)


def test_what_a_cut_window_has_beyond_the_one_before_may_be_load_that_lasts() -> None:
    """60 W, then rest at 20 W from half of a window of 0.1 s: 40 W is its mean, and no more."""
    assert lasting(np.array([60.0, 40.0]), 0.1, 0.05, 20.0) == pytest.approx(0, abs=1e-12)
    assert lasting(np.array([60.0, 44.0]), 0.1, 0.05, 20.0) == pytest.approx(0.4 / np.sqrt(6))
    assert lasting(np.array([60.0, 36.0]), 0.1, 0.05, 20.0) == 0
    most_j = 40 * LASTING_S
    assert lasting(np.array([60.0, 60.0]), 0.1, 0.05, 20.0) == pytest.approx(most_j / np.sqrt(6))


def test_rests_say_how_quiet_the_readings_are_at_the_most() -> None:
    seen = Resolution(quantum_w=0.001, noise_w=5.0)
    quieter = seen.with_rests(100 * 0.3**2, 100)
    assert 0.3 < quieter.noise_w < 0.36
    assert 0.3 < seen.with_rests(3 * 0.3**2, 3).noise_w < 2  # few say less
    assert seen.with_rests(0.0, 0) == seen
    assert Resolution(0.001, 0.01).with_rests(9.0, 100).noise_w == 0.01


S = 1_000_000_000


def metered(powers_w: list[float], rest_ns: int = 6 * S) -> Metered:
    """Windows of a second; after 4.5 s the machine is said to rest for so long."""
    count = len(powers_w)
    frame = pl.DataFrame(
        {
            "seq": range(count),
            "epoch": [1] * count,
            "t_mono_ns": [(k + 1) * S for k in range(count)],
            "t_device_us": pl.Series([None] * count, dtype=pl.Int64),
            "window_s": [1.0] * count,
            "flags": [""] * count,
            "power_w_system": powers_w,
        }
    )
    edges = {Edge(0), Edge(9 * S // 2, "after", rest_ns)}
    return Metered.of(of_table(frame), "poll", 0.0, ["system"], edges)


def measured(powers_w: list[float]) -> tuple[float, float]:
    """Energy from 0 to 4.5 s and its doubt."""
    energy = metered(powers_w).energy("system", [(0, 9 * S // 2)])
    assert energy.energy_j is not None and energy.statistical_j is not None
    return energy.energy_j, energy.statistical_j


def test_a_load_that_outlasts_its_mark_is_not_given_to_the_phase() -> None:
    rest = [20.0, 20.1, 20.0, 20.1, 20.0, 20.1]
    held, _ = measured([60.0] * 4 + [40.0, *rest])
    assert held == pytest.approx(4 * 60 + 30, abs=0.2)
    # The whole of the cut window and half of the next is work: 30 J of it are the phase's, not 48.
    outlasting, _ = measured([60.0] * 4 + [60.0, 40.0, *rest])
    assert outlasting == pytest.approx(4 * 60 + 30, abs=9)


def test_a_burst_at_the_end_widens_the_doubt() -> None:
    rest = [20.0, 20.1, 20.0, 20.1, 20.0, 20.1]
    _, calm = measured([60.0] * 4 + [40.0, *rest])
    _, burst = measured([60.0] * 4 + [45.0, *rest])
    assert burst > calm + 0.2


def test_noise_is_what_a_rest_shows_though_all_else_is_work() -> None:
    work = [60.0, 30.0, 55.0, 35.0]
    found = metered([*work, 40.0, 20.0, 20.1, 20.0, *work, *work], 7 * S // 2)
    assert found.resolutions["system"].noise_w < 0.3
