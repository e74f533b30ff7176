"""Meters that do not follow the load as their description says: found, widened, or no figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from analysis.energy.curve import Edge
from analysis.energy.metered import Energy, Metered
from analysis.energy.response import SLOW_FLAG
from analysis.energy.updates import HELD_FLAG, Updates
from analysis.suite.clocks import Floats
from analysis.suite.samples import of_table
from analysis.tests.known import known
from analysis.tests.test_lasting import frame_of
from instrumentation.accuracy import ErrorTerm
from instrumentation.sources.counter import SHORTER

S = 1_000_000_000
STEP_S = 0.02  # of the load
REST_S = 6.0


@dataclass(frozen=True)
class Trial:
    """Phases of bursts between rests at 20 W, read once a second: joules, true and found."""

    true_j: Floats
    energies: list[Energy]

    @property
    def flags(self) -> set[str]:
        return {flag for energy in self.energies for flag in energy.flags}

    @property
    def wrong(self) -> float:
        """Share of the figures that are neither flagged nor within their 95 % interval."""
        off = [
            not energy.flags
            and abs(known(energy.energy_j) - true_j) > 1.96 * known(energy.statistical_j)
            for energy, true_j in zip(self.energies, self.true_j, strict=True)
        ]
        return float(np.mean(off))

    @property
    def width(self) -> float:
        """Median share of the joules that the interval reaches to either side."""
        return float(
            np.median([1.96 * known(e.statistical_j) / known(e.energy_j) for e in self.energies])
        )


def trial(
    *,
    seed: int = 1,
    over: float = 1.0,
    lag_s: float = 0.0,
    swing_w: float = 25.0,
    noise_w: float = 0.02,
    readings: int = 1,
    dead_w: float = 0.0,
    rests: bool = True,
    cooling: float = 0.0,
    **more: Any,
) -> Trial:
    """Return a meter whose readings are means over `over` s, or go through a low pass of `lag_s`.

    Each is held for so many `readings`, or until it moved by `dead_w`. After a phase the power
    falls by that share, `cooling`, of the load in the course of some seconds.
    """
    generator = np.random.default_rng(seed)
    lasts_s = STEP_S * np.rint(generator.uniform(9, 30, 24) / STEP_S)
    start_s = 30.0 + np.cumsum(np.append(0.0, lasts_s[:-1] + REST_S))
    count = round((start_s[-1] + lasts_s[-1] + 30) / STEP_S)
    time_s = STEP_S * np.arange(count)
    bursts_w = np.repeat(generator.uniform(0.2, 1.8, count // 15 + 1), 15)[:count] * swing_w
    place = np.searchsorted(start_s, time_s + STEP_S / 2) - 1
    working = (place >= 0) & (time_s < (start_s + lasts_s)[place] - STEP_S / 2)
    power_w = 20 + np.where(working, bursts_w, generator.normal(0, 0.05, count))
    since_end_s = time_s - (start_s + lasts_s)[place]
    cools = (place >= 0) & ~working
    power_w += np.where(cools, cooling * swing_w * np.exp(-np.maximum(since_end_s, 0) / 3), 0.0)
    edges_s = np.append(time_s, STEP_S * count)
    true_j = np.append(0.0, np.cumsum(power_w) * STEP_S)
    shown_w = power_w
    if lag_s:
        kernel = np.exp(-np.arange(0, 8 * lag_s, STEP_S) / lag_s)
        shown_w = 20 + np.convolve(power_w - 20, kernel / kernel.sum())[:count]
    shown_j = np.append(0.0, np.cumsum(shown_w) * STEP_S)
    end_s = np.arange(1.0, edges_s[-1])
    since_s = np.maximum(end_s - over, 0)
    read_w = np.interp(end_s, edges_s, shown_j) - np.interp(since_s, edges_s, shown_j)
    read_w = read_w / (end_s - since_s) + generator.normal(0, noise_w, len(end_s))
    read_w = read_w[np.arange(len(read_w)) // readings * readings]
    for k in range(1, len(read_w) if dead_w else 0):
        read_w[k] = read_w[k] if abs(read_w[k] - read_w[k - 1]) > dead_w else read_w[k - 1]
    marks_s = np.column_stack([start_s, start_s + lasts_s])
    marks = [(round(a * S), round(b * S)) for a, b in marks_s.tolist()]
    rest_ns = round((REST_S - 0.1) * S)
    edges = {Edge(a, "before", rest_ns) if rests else Edge(a) for a, _ in marks}
    edges |= {Edge(b, "after", rest_ns) if rests else Edge(b) for _, b in marks}
    samples = of_table(frame_of(np.round(read_w, 3), 1.0))
    metered = Metered.of(samples, "poll", 0.001, ["system"], edges, **more)
    energies = [metered.energy("system", [mark]) for mark in marks]
    between_j = np.interp(marks_s, edges_s, true_j)
    return Trial(between_j[:, 1] - between_j[:, 0], energies)


def test_a_meter_as_declared_is_not_flagged_nor_wide() -> None:
    for seed in range(4):
        sound = trial(seed=seed)
        assert sound.flags == set()
        assert sound.wrong <= 0.09
        assert sound.width < 0.002


@pytest.mark.parametrize("over", [2.0, 3.0, 4.0, 5.0])
def test_a_mean_over_several_windows_is_held_or_flagged(over: float) -> None:
    slow = trial(over=over)
    assert slow.wrong <= 0.07
    assert slow.flags == {SLOW_FLAG}
    assert slow.width > 3 * trial().width


@pytest.mark.parametrize("lag_s", [0.3, 1.0, 2.0])
def test_a_low_pass_is_held_or_flagged(lag_s: float) -> None:
    slow = trial(lag_s=lag_s)
    assert slow.wrong <= 0.07
    assert SLOW_FLAG in slow.flags or lag_s < 1


def test_the_interval_of_a_slow_meter_holds_the_truth_too() -> None:
    for slow in (trial(over=3.0), trial(over=5.0), trial(lag_s=2.0)):
        off_j = np.abs([known(energy.energy_j) for energy in slow.energies] - slow.true_j)
        held = off_j <= 1.96 * np.array([known(energy.statistical_j) for energy in slow.energies])
        assert held.mean() >= 0.93


@pytest.mark.parametrize("cooling", [0.03, 0.08])
def test_a_machine_that_cools_is_no_slow_meter(cooling: float) -> None:
    for seed in range(4):
        assert trial(seed=seed, cooling=cooling).flags == set()


@pytest.mark.parametrize("noise_w", [0.1, 5.0])
def test_noise_without_load_is_no_slow_meter(noise_w: float) -> None:
    for seed in range(5):
        assert trial(seed=seed, swing_w=0.0, noise_w=noise_w).flags == set()


def test_readings_that_repeat_at_a_steady_rate_are_flagged_and_wide() -> None:
    held = trial(readings=3)
    assert held.flags >= {HELD_FLAG, SLOW_FLAG}
    assert held.width > 3 * trial().width


@pytest.mark.parametrize("dead_w", [0.5, 2.0])
def test_readings_held_until_the_power_moves_are_flagged_and_wide(dead_w: float) -> None:
    held = trial(dead_w=dead_w)
    off_j = np.abs([known(energy.energy_j) for energy in held.energies] - held.true_j)
    assert (
        off_j <= 1.96 * np.array([known(energy.statistical_j) for energy in held.energies])
    ).all()
    assert held.flags == {HELD_FLAG}
    assert held.width > 10 * trial().width


def test_coarse_digits_and_two_levels_are_no_held_readings() -> None:
    generator = np.random.default_rng(5)
    coarse_w = np.round(20 + generator.normal(0, 0.4, 500))
    assert Updates.seen_in(coarse_w, 1.0) == Updates()
    levels_w = np.repeat(np.tile([20.0, 35.0], 30), generator.integers(3, 20, 60))
    assert Updates.seen_in(levels_w, 0.001) == Updates()
    steady_w = np.repeat(np.round(20 + generator.normal(0, 3, 100)), 4)
    assert Updates.seen_in(steady_w, 1.0).readings == 4


def test_a_known_window_widens_every_edge_and_is_flagged() -> None:
    known_late = trial(rests=False, late_s={"system": 1.0})
    assert known_late.flags == {SLOW_FLAG}
    assert known_late.width > 3 * trial(rests=False).width


def test_a_delay_that_the_limits_of_error_cover_widens_and_is_not_flagged() -> None:
    terms = [ErrorTerm("gain", 0.01, "a test")]
    for late_s, within in ((0.05, set()), (1.0, {SLOW_FLAG})):
        late = trial(rests=False, late_s={"system": late_s}, terms=terms)
        assert late.flags == within
        assert late.width > trial(rests=False).width


def test_a_stretch_shorter_than_a_window_has_a_figure_only_between_rests() -> None:
    powers_w = np.full(40, 20.0)
    powers_w[20] = 50.0  # 60 W more for half a second
    start, end = round(20.2 * S), round(20.7 * S)
    rest = 10 * S
    between = {Edge(start, "before", rest), Edge(end, "after", rest)}
    for edges, figure in (({Edge(start), Edge(end)}, False), (between, True)):
        metered = Metered.of(of_table(frame_of(powers_w, 1.0)), "poll", 0.0, ["system"], edges)
        energies = metered.energy("system", [(start, end)], refuse_short=True)
        assert metered.energy("system", [(start, end)]).energy_j is not None
        assert SHORTER in energies.flags
        assert (energies.energy_j is not None) == figure
    assert energies.energy_j == pytest.approx(40.0, abs=1.0)
