"""How far joules may be off, and meters that are not as declared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.energy.curve import Edge
from analysis.energy.energy import counter_energy
from analysis.energy.metered import Energy
from analysis.energy.response import HELD_FLAG, SLOW_FLAG, Updates
from analysis.energy.uncertainty import (
    Resolution,
    TypeB,
    correlation,
    half_width,
    last_digit,
    reading_variance_j2,
)
from analysis.energy.windows import Windows
from analysis.suite.clocks import Floats
from analysis.suite.records import Counter
from analysis.tests.known import known, metered_of
from instrumentation.accuracy import ErrorTerm, read_terms
from instrumentation.sources.accuracy import counter_uncertainty_j
from instrumentation.sources.counter import COARSE, SHORTER, Reading


def half_of(limit: float, sigma: float, level: float = 0.95) -> float:
    return float(half_width(np.array([limit]), np.array([sigma]), level)[0])


def test_a_normal_and_a_rectangle_alone_have_their_known_intervals() -> None:
    assert half_of(0.0, 2.0) == pytest.approx(2 * 1.959964, rel=1e-5)
    assert half_of(3.0, 0.0) == pytest.approx(0.95 * 3, rel=1e-5)
    assert half_of(0.0, 0.0) == 0.0


@pytest.mark.parametrize(("limit", "sigma"), [(1.0, 0.1), (1.0, 0.5), (1.0, 2.0), (40.0, 11.0)])
def test_the_interval_covers_95_percent_of_drawn_sums(limit: float, sigma: float) -> None:
    generator = np.random.default_rng(1)
    drawn = generator.uniform(-limit, limit, 400_000) + generator.normal(0, sigma, 400_000)
    assert np.mean(np.abs(drawn) <= half_of(limit, sigma)) == pytest.approx(0.95, abs=0.002)
    twice = 2 * math.hypot(limit / math.sqrt(3), sigma)
    assert half_of(limit, sigma) < twice


@given(st.floats(1e-9, 1e9), st.floats(1e-9, 1e9))
def test_the_interval_is_between_its_parts_and_their_sum(limit: float, sigma: float) -> None:
    interval = half_of(limit, sigma)
    assert max(0.95 * limit, 1.9599 * sigma) * (1 - 1e-4) <= interval
    assert interval <= (limit + 1.96 * sigma) * (1 + 1e-4)
    assert half_of(10 * limit, 10 * sigma) == pytest.approx(10 * interval, rel=1e-6)


def test_type_b_by_hand() -> None:
    comparison = known(
        TypeB.from_terms(read_terms({"relative_limit": 0.03, "absolute_limit_w": 0.1}), 200.0, 10.0)
    )
    assert comparison.limits_j == pytest.approx((6.0, 1.0))
    assert comparison.standard_j == pytest.approx(
        math.hypot(6.0 / math.sqrt(3), 1.0 / math.sqrt(3))
    )
    assert TypeB.from_terms(read_terms({}), 200.0, 10.0) is None


def test_two_limits_and_noise_cover_95_percent_of_drawn_sums() -> None:
    generator = np.random.default_rng(2)
    shape = 400_000
    drawn = generator.uniform(-3, 3, shape) + generator.uniform(-1, 1, shape)
    drawn += generator.normal(0, 0.7, shape)
    half = half_of(*TypeB((1.0, 3.0)).parts_j(0.7))
    assert np.mean(np.abs(drawn) <= half) == pytest.approx(0.95, abs=0.005)


def test_last_digit_of_rounded_values() -> None:
    generator = np.random.default_rng(3)
    for digit in (0.1, 0.001, 0.005, 0.00125, 2.0):
        values = np.rint(generator.uniform(20, 60, 200) / digit) * digit
        assert last_digit(values) == pytest.approx(digit)
    assert last_digit(generator.uniform(20, 60, 200)) == 0.0
    assert last_digit(np.full(9, 3.7)) == 0.0
    assert last_digit(np.empty(0)) == 0.0


def test_rounding_errors_of_steady_power_are_correlated() -> None:
    assert correlation(0.0, 0.1) == 1.0
    assert correlation(0.1**2, 0.1) < 1e-9
    assert correlation(1.0, 0.0) == 0.0
    digit, width_s, count = 0.1, 2.0, 50
    single = (digit * width_s) ** 2 / 12
    steady = reading_variance_j2(count, width_s, 0.0, Resolution(digit))
    moving = reading_variance_j2(count, width_s, 1.0, Resolution(digit))
    assert steady == pytest.approx(single * count**2)
    assert moving == pytest.approx(single * count)


@pytest.mark.parametrize("scatter_w", [0.0, 0.01, 0.02, 0.05, 0.3])
def test_rounding_uncertainty_matches_drawn_powers(scatter_w: float) -> None:
    """Mean of 30 readings rounded to 0.1 W, for a power that scatters by less or more than that."""
    generator = np.random.default_rng(4)
    level = generator.uniform(20, 21, (4_000, 1))
    power = level + scatter_w * generator.standard_normal((4_000, 30))
    off = (np.rint(power / 0.1) * 0.1).mean(axis=1) - power.mean(axis=1)
    stated = math.sqrt(reading_variance_j2(30, 1.0, scatter_w**2, Resolution(0.1))) / 30
    assert np.std(off) == pytest.approx(stated, rel=0.35)


def test_noise_is_that_of_the_quietest_readings() -> None:
    generator = np.random.default_rng(5)
    power = 20 + 0.02 * generator.standard_normal(40_000)
    power[20_000:] += 30 * generator.uniform(size=20_000)
    power = np.rint(power / 0.001) * 0.001
    end = np.arange(1, 40_001) * 1_000_000
    windows = Windows(end - 1_000_000, end, np.ones(40_000, np.int64), {"system": power})
    resolution = Resolution.seen_in(windows, "system")
    assert resolution.quantum_w == pytest.approx(0.001)
    assert 0.02 * 0.95 < resolution.noise_w < 0.02 * 1.3


def test_a_counter_is_uncertain_by_digit_and_update() -> None:
    still = counter_uncertainty_j([(0.0, 0.1), (0.0, 0.1)], 6.1e-5)
    assert still == pytest.approx(6.1e-5 / math.sqrt(6))
    moving = counter_uncertainty_j([(50.0, 0.001), (50.0, 0.001)], 0.0)
    assert moving == pytest.approx(0.05 * math.sqrt(7 / 18))


def test_counter_uncertainty_matches_drawn_reads() -> None:
    generator = np.random.default_rng(6)
    power_w, errors, stated = 40.0, [], 0.0
    for _ in range(2_000):
        marks = np.array([generator.uniform(1, 2), generator.uniform(5, 6)])
        ages_s = (marks * 1000 + generator.uniform()) % 1 / 1000  # since the last update
        lacking_j = ages_s * generator.uniform(0, 2 * power_w, 2)
        uj = np.rint((marks * power_w - lacking_j) * 1e6).astype(int).tolist()
        start, end = (
            Reading(round(m * 1e9) - 1_000, round(m * 1e9) + 1_000, e)
            for m, e in zip(marks, uj, strict=True)
        )
        energy = counter_energy(
            Counter("rapl", "package-0", start, end, 262_143_328_850, (), 1_000_000)
        )
        errors.append(known(energy.energy_j) - float(np.diff(marks)[0]) * power_w)
        stated = known(energy.statistical_j)
    assert np.std(errors) == pytest.approx(stated, rel=0.1)


def test_a_rest_is_uncertain_by_digit_or_scatter() -> None:
    steady = Resolution(0.1).rest_uncertainty_j(0.0, 8, 1.0, 1.5)
    assert steady == pytest.approx(1.5 * 0.1 / math.sqrt(12))
    variance = 4 / 3
    restless = Resolution(0.0).rest_uncertainty_j(variance, 4, 1.0, 1.5)
    assert restless == pytest.approx(math.sqrt(variance / 4 * 1.5**2 + variance * 1.5))


def test_an_infinite_uncertainty_gives_an_infinite_interval() -> None:
    half = half_width(np.array([1.0, 0.0, np.inf]), np.array([np.inf, 0.0, 1.0]))
    assert half.tolist() == [np.inf, 0.0, np.inf]


@pytest.mark.parametrize("every_ms", [1, 5, 20, 50, 100])
@pytest.mark.parametrize("observed", [True, False])
@pytest.mark.parametrize("unit", [14, 16])
def test_counters_of_any_update_interval_cover_the_truth(
    every_ms: int, observed: bool, unit: int
) -> None:
    """20 W between rests of 5 to 15 W, for half a second or five; the shown count is the last's."""
    generator = np.random.default_rng(every_ms)
    held = []
    for _ in range(400):
        lasts_s, rest_w = generator.choice([0.5, 5.0]), generator.uniform(5, 15)
        start_s, since_s = generator.uniform(1, 2), generator.uniform() * every_ms / 1e3
        edges = []
        for mark_s in (start_s, start_s + lasts_s):
            at_s = np.floor((mark_s - since_s) / every_ms * 1e3) * every_ms / 1e3 + since_s
            joules = rest_w * min(at_s, start_s) + 20 * max(0.0, at_s - start_s)
            uj = int(joules * 2**unit) * (10**9 >> unit) // 1000
            edges.append(Reading(round(mark_s * 1e9), round(mark_s * 1e9) + 3_000, uj))
        update_ns = round(every_ms * 1e6) if observed else None
        range_uj = (2**32 - 1) * (10**9 >> unit) // 1000
        start, end = edges
        energy = counter_energy(Counter("rapl", "package-0", start, end, range_uj, (), update_ns))
        off_j = abs(known(energy.energy_j) - 20 * lasts_s)
        held.append(off_j <= 1.96 * known(energy.statistical_j))
    assert np.mean(held) >= 0.93


def test_a_phase_that_is_short_for_its_counter_is_flagged_or_has_no_figure() -> None:
    start, end = (Reading(t, t + 3_000, t // 50) for t in (10**9, 1_050_000_000))
    by_interval = {
        update_ns: counter_energy(
            Counter("rapl", "package-0", start, end, 262_143_328_850, (), update_ns)
        )
        for update_ns in (500_000, 5_000_000, 60_000_000, None)
    }
    assert {ns: (e.energy_j is None, e.flags) for ns, e in by_interval.items()} == {
        500_000: (False, ()),
        5_000_000: (False, (COARSE,)),
        60_000_000: (True, (SHORTER,)),
        None: (False, (COARSE,)),
    }
    pause = counter_energy(
        Counter("rapl", "package-0", start, end, 262_143_328_850, (), 60_000_000), windows=False
    )
    assert pause.energy_j == 1.0 and pause.flags == ()


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
    def covered(self) -> float:
        """Share of the figures within their 95 % interval."""
        off_j = np.abs([known(energy.energy_j) for energy in self.energies] - self.true_j)
        limit_j = 1.96 * np.array([known(energy.statistical_j) for energy in self.energies])
        return float(np.mean(off_j <= limit_j))

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
    **options: Any,
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
    metered = metered_of(np.round(read_w, 3), edges, limit_s=0.001, **options)
    energies = [metered.energy("system", [mark]) for mark in marks]
    between_j = np.interp(marks_s, edges_s, true_j)
    return Trial(between_j[:, 1] - between_j[:, 0], energies)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cooling": 0.03},
        {"cooling": 0.08},
        {"swing_w": 0.0, "noise_w": 0.1},
        {"swing_w": 0.0, "noise_w": 5.0},
    ],
)
def test_a_meter_as_declared_is_not_flagged(options: dict[str, Any]) -> None:
    """Neither are a machine that cools and noise without load."""
    for seed in range(4):
        sound = trial(seed=seed, **options)
        assert sound.flags == set()
        assert options or (sound.wrong <= 0.09 and sound.width < 0.002)


@pytest.mark.parametrize(
    ("options", "flags", "wider", "covered"),
    [
        ({"over": 2.0}, {SLOW_FLAG}, 3, 0.0),
        ({"over": 3.0}, {SLOW_FLAG}, 3, 0.93),
        ({"over": 4.0}, {SLOW_FLAG}, 3, 0.0),
        ({"over": 5.0}, {SLOW_FLAG}, 3, 0.93),
        ({"lag_s": 0.3}, set(), 0, 0.0),
        ({"lag_s": 1.0}, {SLOW_FLAG}, 0, 0.0),
        ({"lag_s": 2.0}, {SLOW_FLAG}, 0, 0.93),
        ({"readings": 3}, {HELD_FLAG, SLOW_FLAG}, 3, 0.0),
        ({"dead_w": 0.5}, {HELD_FLAG}, 10, 1.0),
        ({"dead_w": 2.0}, {HELD_FLAG}, 10, 1.0),
    ],
)
def test_a_slow_or_held_meter_is_flagged_and_has_a_wide_interval(
    options: dict[str, Any], flags: set[str], wider: float, covered: float
) -> None:
    slow = trial(**options)
    assert slow.flags >= flags
    assert slow.wrong <= 0.07 and slow.covered >= covered
    assert slow.width > wider * trial().width


def test_coarse_digits_and_two_levels_are_not_held_readings() -> None:
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
    rest_ns = 10 * S
    between = {Edge(start, "before", rest_ns), Edge(end, "after", rest_ns)}
    for edges, figure in (({Edge(start), Edge(end)}, False), (between, True)):
        metered = metered_of(powers_w, edges)
        energies = metered.energy("system", [(start, end)], refuse_short=True)
        assert metered.energy("system", [(start, end)]).energy_j is not None
        assert SHORTER in energies.flags
        assert (energies.energy_j is not None) == figure
    assert energies.energy_j == pytest.approx(40.0, abs=1.0)
