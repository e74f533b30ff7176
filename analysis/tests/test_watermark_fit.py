"""The fit finds what was put in, and gives no figure, or a wide bound, where it must not trust it.

The readings are made from the load by summing over a fine grid of time, not by the fit's own model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.energy.watermarks import Fit, Readings, Watermark, fit
from analysis.suite.clocks import Floats
from instrumentation.watermark import CHIPS, chip_s, pad_s

STEP_S = 0.0005
START_S = 20.0


@dataclass
class Scene:
    """A meter whose windows end `offset_ms` late."""

    period_s: float = 0.1
    window_s: float = 0.1
    offset_ms: float = 0.0
    swing_w: float = 20.0
    noise_w: float = 0.05
    fall_s: float = 0.0
    filter_s: float = 0.0
    seed: int = 1

    def mark(self) -> Watermark:
        chip = chip_s(self.period_s)
        edges = START_S + np.flatnonzero(np.diff([0, *CHIPS, 0])) * chip
        return Watermark(
            tuple(round(t * 1e9) for t in edges),
            tuple(1 - n % 2 for n in range(len(edges))),
            chip,
            pad_s(self.period_s),
        )

    def readings(self) -> Readings:
        generator = np.random.default_rng(self.seed)
        mark = self.mark()
        begin_s = mark.t_ns[0] / 1e9 - 8 - self.window_s
        fine_s = np.arange(begin_s, mark.t_ns[-1] / 1e9 + 8, STEP_S)
        load = self._load(fine_s, np.array(mark.t_ns) / 1e9)
        energy = np.concatenate([[0.0], np.cumsum(load) * STEP_S])
        first_s = begin_s + self.window_s + generator.uniform(0, self.period_s)
        end_s = np.arange(first_s, fine_s[-1], self.period_s)
        edges_s = np.append(fine_s, fine_s[-1] + STEP_S)
        until = np.interp(end_s, edges_s, energy)
        since = np.interp(end_s - self.window_s, edges_s, energy)
        power_w = 40 + self.swing_w * (until - since) / self.window_s
        power_w += generator.normal(0, self.noise_w, len(power_w))
        end_ns = np.rint(end_s * 1e9 + self.offset_ms * 1e6).astype(np.int64)
        return Readings(end_ns, np.full(len(end_ns), self.period_s), power_w)

    def _load(self, fine_s: Floats, edges_s: Floats) -> Floats:
        load = np.zeros(len(fine_s))
        for rise, fall in edges_s.reshape(-1, 2):
            load[(fine_s >= rise) & (fine_s < fall + self.fall_s)] = 1
        if self.filter_s:
            kernel = np.exp(-np.arange(0, 8 * self.filter_s, STEP_S) / self.filter_s)
            load = np.convolve(load, kernel / kernel.sum())[: len(load)]
        return load

    def fit(self) -> Fit:
        return fit(self.readings(), self.mark())


def only(readings: Readings, kept: np.ndarray) -> Readings:
    """Return the selected readings."""
    return Readings(readings.end_ns[kept], readings.width_s[kept], readings.power_w[kept])


@settings(max_examples=15)
@given(
    st.floats(-300, 300),
    st.floats(2, 50),
    st.sampled_from([0.05, 0.1, 0.5, 1.0]),
    st.integers(0, 1000),
)
def test_offset_and_window_come_out_as_put_in(
    offset_ms: float, swing_w: float, period_s: float, seed: int
) -> None:
    scene = Scene(
        period_s=period_s,
        window_s=period_s,
        offset_ms=offset_ms,
        swing_w=swing_w,
        noise_w=swing_w / 100,
        seed=seed,
    )
    fitted = scene.fit()
    assert not fitted.problem
    # The bound, and the grid of time that the readings were made on.
    assert fitted.offset_ms == pytest.approx(offset_ms, abs=fitted.bound_ms + 1e3 * STEP_S)
    assert fitted.window_s == pytest.approx(period_s, rel=0.1)
    assert fitted.delay_s is None
    assert fitted.quality >= 3
    assert fitted.bound_ms < 100 * period_s


def test_more_noise_is_a_wider_bound() -> None:
    bounds = [Scene(noise_w=noise_w).fit().bound_ms for noise_w in (0.05, 0.5, 2)]
    assert bounds[0] < bounds[1] / 4 < bounds[2] / 8


def test_doubt_about_the_edges_is_part_of_the_bound() -> None:
    scene = Scene()
    doubtful = fit(scene.readings(), replace(scene.mark(), edge_bound_s=0.005))
    assert doubtful.bound_ms == pytest.approx(scene.fit().bound_ms + 5)


def test_the_readings_of_a_fast_meter_are_put_together_and_gaps_are_not_bridged() -> None:
    scene = Scene(period_s=0.0005, window_s=0.0005, offset_ms=7, noise_w=1)
    readings = scene.readings()
    fitted = scene.fit()
    assert fitted.offset_ms == pytest.approx(7, abs=0.5)
    assert fitted.window_told_s == pytest.approx(0.001)
    lost = np.random.default_rng(5).random(len(readings.end_ns) // 40) < 0.05
    kept = ~np.append(np.repeat(lost, 40), np.zeros(len(readings.end_ns) % 40, bool))
    assert fit(only(readings, kept), scene.mark()).offset_ms == pytest.approx(7, abs=0.5)


# What must give no figure.


@pytest.mark.parametrize("period_s", [0.1, 1.0])
@pytest.mark.parametrize("seed", range(10))
def test_a_load_that_does_not_swing_is_no_watermark(period_s: float, seed: int) -> None:
    fitted = Scene(period_s=period_s, window_s=period_s, swing_w=0, seed=seed).fit()
    assert fitted.problem.startswith("no watermark seen")
    assert fitted.delay_s is None


@pytest.mark.parametrize(
    ("scene", "problem"),
    [
        (Scene(swing_w=0, noise_w=0), "never change"),
        (Scene(swing_w=-20), "falls where the load rises"),
        (Scene(offset_ms=6000), "no watermark seen"),  # out of reach
    ],
)
def test_what_cannot_be_the_load_is_no_watermark(scene: Scene, problem: str) -> None:
    assert problem in scene.fit().problem


def test_no_readings_of_that_time_are_no_watermark() -> None:
    scene = Scene()
    readings = scene.readings()
    gone = only(readings, readings.end_ns < START_S * 1e9)
    assert "readings of the time it was played" in fit(gone, scene.mark()).problem


def test_another_pattern_of_load_is_no_watermark() -> None:
    scene = Scene()
    readings = scene.readings()
    for seed in range(10):
        generator = np.random.default_rng(seed)
        count = len(readings.end_ns)
        levels = np.repeat(generator.integers(0, 2, count), 3)[:count]
        other = 40 + 20 * levels + generator.normal(0, 0.1, count)
        fitted = fit(Readings(readings.end_ns, readings.width_s, other), scene.mark())
        assert fitted.problem.startswith("no watermark seen")


def test_a_pattern_that_comes_twice_could_be_either() -> None:
    scene, chip = Scene(), chip_s(0.1)
    readings = scene.readings()
    late = Scene(offset_ms=3e3 * chip).readings()
    again_w = np.interp(readings.end_ns, late.end_ns, late.power_w)
    both = Readings(readings.end_ns, readings.width_s, readings.power_w + 0.8 * again_w)
    assert "another offset fits about as well" in fit(both, scene.mark()).problem


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_readings_that_are_missing_widen_the_bound_or_end_the_fit(share: float) -> None:
    scene = Scene(offset_ms=20, noise_w=0.3)
    readings = scene.readings()
    for seed in range(10):
        kept = np.random.default_rng(seed).random(len(readings.end_ns)) > share
        fitted = fit(only(readings, kept), scene.mark())
        if share > 0.5:
            assert "readings cover" in fitted.problem
        elif not fitted.problem:
            assert abs(fitted.offset_ms - 20) <= fitted.bound_ms < 12


def test_a_gap_in_the_middle_is_survived_or_told() -> None:
    scene = Scene(offset_ms=20)
    readings = scene.readings()
    for begin_s in np.arange(20, 27, 0.5):
        gap = (readings.end_ns > begin_s * 1e9) & (readings.end_ns < (begin_s + 1.5) * 1e9)
        fitted = fit(only(readings, ~gap), scene.mark())
        if not fitted.problem:
            assert abs(fitted.offset_ms - 20) <= fitted.bound_ms


def test_a_slow_drift_and_readings_that_are_no_numbers_move_no_offset() -> None:
    scene = Scene(offset_ms=15)
    readings = scene.readings()
    drifting, broken = readings.power_w + 0.02 * (readings.end_ns / 1e9), readings.power_w.copy()
    broken[::9] = np.nan
    for power_w in (drifting, broken):
        fitted = fit(Readings(readings.end_ns, readings.width_s, power_w), scene.mark())
        assert fitted.offset_ms == pytest.approx(15, abs=1)


# What a rectangular window and sharp edges cannot explain must be in the bound.


def covers(fitted: Fit, low_ms: float, high_ms: float) -> bool:
    """Whether the interval holds all that the offset might be called."""
    offset_ms, bound_ms = fitted.offset_ms, fitted.bound_ms
    return offset_ms - bound_ms <= low_ms and high_ms <= offset_ms + bound_ms


def test_a_window_of_another_length_than_told_widens_the_bound() -> None:
    # The ends are where they are told to be; middles are half a period earlier than told.
    fitted = Scene(window_s=0.2).fit()
    assert fitted.window_s == pytest.approx(0.2, rel=0.02) and fitted.window_told_s == 0.1
    assert fitted.offset_ms == pytest.approx(50, abs=2)
    assert fitted.bound_ms > 49
    assert fitted.delay_s == pytest.approx(0.05, abs=0.002)


@pytest.mark.parametrize("filter_s", [0.03, 0.1])
def test_a_filter_in_the_meter_widens_the_bound(filter_s: float) -> None:
    """The middle of what a reading weighs lies later by the filter's time constant."""
    plain, filtered = (Scene(filter_s=s, noise_w=0.1).fit() for s in (0.0, filter_s))
    assert covers(filtered, 1e3 * filter_s, 1e3 * filter_s)
    assert filtered.bound_ms > 2 * plain.bound_ms


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_readings_that_hold_some_of_the_one_before_widen_the_bound(seed: int) -> None:
    scene = Scene(period_s=1.0, window_s=1.0, noise_w=0.2, seed=seed)
    readings = scene.readings()
    held_w = readings.power_w.copy()
    for i in range(1, len(held_w)):
        held_w[i] = 0.036 * held_w[i - 1] + 0.964 * held_w[i]
    fitted = fit(Readings(readings.end_ns, readings.width_s, held_w), scene.mark())
    assert covers(fitted, 0, 36)


@pytest.mark.parametrize("fall_s", [0.01, 0.03])
def test_power_that_falls_late_widens_the_bound(fall_s: float) -> None:
    assert covers(Scene(fall_s=fall_s, noise_w=0.1).fit(), 0, 1e3 * fall_s)


def test_a_clipped_meter_has_a_wide_bound() -> None:
    scene = Scene(noise_w=0.1)
    readings = scene.readings()
    clipped = Readings(readings.end_ns, readings.width_s, np.minimum(readings.power_w, 52.0))
    fitted = fit(clipped, scene.mark())
    assert fitted.problem or covers(fitted, 0, 0)
    assert fitted.problem or fitted.bound_ms > 5 * scene.fit().bound_ms
