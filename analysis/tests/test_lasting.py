"""What refutes a rest beside an edge, and what the rests tell of the noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest

from analysis.energy.curve import LASTING_S, Edge, lasting, level_part, level_w
from analysis.energy.metered import Metered
from analysis.energy.uncertainty import Resolution
from analysis.suite.samples import of_table


def test_a_rest_begins_where_its_windows_are_at_its_level() -> None:
    steady = np.array([20.1, 20.0, 20.2, 20.1, 20.0])
    assert level_part(steady, 0.1) == (0, 5)
    assert level_part(np.array([35.0, *steady]), 0.1) == (1, 6)
    assert level_part(np.array([12.0, *steady]), 0.1) == (1, 6)
    assert level_part(np.array([90.0, 50.0, 25.0, *steady, 31.0]), 0.1) == (3, 8)
    assert level_part(np.array([90.0, 80.0, 70.0, 60.0, *steady, *steady]), 0.1) == (14, 14)


def test_few_windows_or_the_last_digit_refute_no_rest() -> None:
    assert level_part(np.array([35.0, 20.0, 20.1]), 0.1) == (0, 3)
    assert level_part(np.array([20.1, 20.0, 20.0, 20.0, 20.0]), 0.1) == (0, 5)


def test_a_rest_that_cools_has_the_power_of_its_edge_there() -> None:
    noise_w = np.random.default_rng(1).normal(0, 0.1, 12)
    assert level_w(20 + noise_w)[0] == pytest.approx(20 + noise_w.mean())
    sloped_w, variance_w2 = level_w(26 - 0.5 * (np.arange(12) + 0.5) + noise_w)
    assert sloped_w == pytest.approx(26, abs=0.2)
    assert 0.1**2 < variance_w2 < 4 * 0.2**2


@pytest.mark.parametrize("late_s", [0.0, 0.08])
def test_a_meter_that_answers_late_widens_the_interval_by_that(late_s: float) -> None:
    """Sixteen loads of 40 W for 3.07 s, with rests of 2 s between, in windows of 0.1 s."""
    generator = np.random.default_rng(3)
    starts_s = 2.0 + 5.03 * np.arange(16) + 0.015
    edges_s = np.column_stack([starts_s, starts_s + 3.07]).ravel()
    end_s = 0.1 * np.arange(1, 850)
    load_s = np.interp(end_s - late_s, edges_s, np.cumsum(np.tile([0.0, 3.07], 16)))
    power_w = 20 + 40 * np.diff(load_s, prepend=0.0) / 0.1
    frame = frame_of(np.rint((power_w + generator.normal(0, 0.05, 849)) * 1e3) / 1e3, 0.1)
    ends_ns = np.rint(edges_s * 1e9).astype(np.int64).tolist()
    edges = {Edge(t, "before", 1_900_000_000, 1000) for t in ends_ns[::2]}
    edges |= {Edge(t, "after", 1_900_000_000, 1000) for t in ends_ns[1::2]}
    energies = Metered.of(of_table(frame), "poll", 1e-6, ["system"], edges)
    energy = energies.energy("system", [(ends_ns[6], ends_ns[7])])
    assert energy.statistical_j is not None
    apart_s = energy.statistical_j / 40 / np.sqrt(2)
    assert apart_s == pytest.approx(late_s, abs=0.01 if late_s == 0 else 0.06)


def test_what_a_cut_window_has_beyond_the_one_before_may_be_load_that_lasts() -> None:
    """60 W, then rest at 20 W from half of a window of 0.1 s: 40 W is its mean, and no more."""
    assert lasting(np.array([60.0, 40.0]), 0.1, 0.05, 20.0) == pytest.approx(0, abs=1e-12)
    assert lasting(np.array([60.0, 44.0]), 0.1, 0.05, 20.0) == pytest.approx(0.4 / np.sqrt(6))
    assert lasting(np.array([60.0, 36.0]), 0.1, 0.05, 20.0) == 0
    most_j = 40 * LASTING_S
    assert lasting(np.array([60.0, 60.0]), 0.1, 0.05, 20.0) == pytest.approx(most_j / np.sqrt(6))


def test_rests_say_how_quiet_the_readings_are_at_the_most() -> None:
    resolution = Resolution(quantum_w=0.001, noise_w=5.0)
    quieter = resolution.with_rests(100 * 0.3**2, 100)
    assert 0.3 < quieter.noise_w < 0.36
    assert 0.3 < resolution.with_rests(3 * 0.3**2, 3).noise_w < 2  # few say less
    assert resolution.with_rests(0.0, 0) == resolution
    assert Resolution(0.001, 0.01).with_rests(9.0, 100).noise_w == 0.01


S = 1_000_000_000


def frame_of(powers_w: Sequence[float] | np.ndarray, window_s: float) -> pl.DataFrame:
    count = len(powers_w)
    return pl.DataFrame(
        {
            "seq": range(count),
            "epoch": [1] * count,
            "t_mono_ns": [round((k + 1) * window_s * S) for k in range(count)],
            "t_device_us": pl.Series([None] * count, dtype=pl.Int64),
            "window_s": [window_s] * count,
            "flags": [""] * count,
            "power_w_system": powers_w,
        }
    )


def metered(powers_w: list[float], rest_ns: int = 6 * S) -> Metered:
    """Windows of a second; after 4.5 s the machine is said to rest for so long."""
    edges = {Edge(0), Edge(9 * S // 2, "after", rest_ns)}
    return Metered.of(of_table(frame_of(powers_w, 1.0)), "poll", 0.0, ["system"], edges)


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
    energies = metered([*work, 40.0, 20.0, 20.1, 20.0, *work, *work], 7 * S // 2)
    assert energies.resolutions["system"].noise_w < 0.3
