from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.energy.energy import counted
from analysis.energy.uncertainty import (
    Resolution,
    TypeB,
    correlation,
    half_width,
    last_digit,
    reading_variance_j2,
)
from analysis.energy.windows import Windows
from analysis.suite.records import Counter
from analysis.tests.known import known
from instrumentation.accuracy import read_terms
from instrumentation.sources.accuracy import counter_uncertainty_j
from instrumentation.sources.counter import COARSE, SHORTER, Reading


def half_of(limit: float, sigma: float, level: float = 0.95) -> float:
    return float(half_width(np.array([limit]), np.array([sigma]), level)[0])


def test_a_normal_and_a_rectangle_alone_have_their_known_intervals() -> None:
    assert half_of(0.0, 2.0) == pytest.approx(2 * 1.959964, rel=1e-5)
    assert half_of(3.0, 0.0) == pytest.approx(0.95 * 3, rel=1e-5)
    assert half_of(0.0, 0.0) == 0.0


@pytest.mark.parametrize(("limit", "sigma"), [(1.0, 0.1), (1.0, 0.5), (1.0, 2.0), (40.0, 11.0)])
def test_the_interval_holds_what_it_says_of_drawn_sums(limit: float, sigma: float) -> None:
    generator = np.random.default_rng(1)
    drawn = generator.uniform(-limit, limit, 400_000) + generator.normal(0, sigma, 400_000)
    assert np.mean(np.abs(drawn) <= half_of(limit, sigma)) == pytest.approx(0.95, abs=0.002)
    twice = 2 * math.hypot(limit / math.sqrt(3), sigma)
    assert half_of(limit, sigma) < twice


@given(st.floats(1e-9, 1e9), st.floats(1e-9, 1e9))
def test_the_interval_lies_between_its_parts_and_their_sum(limit: float, sigma: float) -> None:
    interval = half_of(limit, sigma)
    assert max(0.95 * limit, 1.9599 * sigma) * (1 - 1e-4) <= interval
    assert interval <= (limit + 1.96 * sigma) * (1 + 1e-4)
    assert half_of(10 * limit, 10 * sigma) == pytest.approx(10 * interval, rel=1e-6)


def test_type_b_by_hand() -> None:
    comparison = known(
        TypeB.of(read_terms({"relative_limit": 0.03, "absolute_limit_w": 0.1}), 200.0, 10.0)
    )
    assert comparison.limits_j == pytest.approx((6.0, 1.0))
    assert comparison.standard_j == pytest.approx(
        math.hypot(6.0 / math.sqrt(3), 1.0 / math.sqrt(3))
    )
    assert TypeB.of(read_terms({}), 200.0, 10.0) is None


def test_two_limits_and_noise_hold_what_they_say() -> None:
    generator = np.random.default_rng(2)
    shape = 400_000
    drawn = generator.uniform(-3, 3, shape) + generator.uniform(-1, 1, shape)
    drawn += generator.normal(0, 0.7, shape)
    half = half_of(*TypeB((1.0, 3.0)).parts_j(0.7))
    assert np.mean(np.abs(drawn) <= half) == pytest.approx(0.95, abs=0.005)


def test_the_last_digit_is_found() -> None:
    generator = np.random.default_rng(3)
    for digit in (0.1, 0.001, 0.005, 0.00125, 2.0):
        values = np.rint(generator.uniform(20, 60, 200) / digit) * digit
        assert last_digit(values) == pytest.approx(digit)
    assert last_digit(generator.uniform(20, 60, 200)) == 0.0
    assert last_digit(np.full(9, 3.7)) == 0.0
    assert last_digit(np.empty(0)) == 0.0


def test_steady_power_is_rounded_alike_and_moving_power_is_not() -> None:
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
def test_rounding_is_as_uncertain_as_drawn_powers_show(scatter_w: float) -> None:
    """Mean of 30 readings rounded to 0.1 W, for a power that scatters by less or more than that."""
    generator = np.random.default_rng(4)
    level = generator.uniform(20, 21, (4_000, 1))
    power = level + scatter_w * generator.standard_normal((4_000, 30))
    off = (np.rint(power / 0.1) * 0.1).mean(axis=1) - power.mean(axis=1)
    stated = math.sqrt(reading_variance_j2(30, 1.0, scatter_w**2, Resolution(0.1))) / 30
    assert np.std(off) == pytest.approx(stated, rel=0.35)


def test_noise_is_taken_where_the_readings_are_quietest() -> None:
    generator = np.random.default_rng(5)
    power = 20 + 0.02 * generator.standard_normal(40_000)
    power[20_000:] += 30 * generator.uniform(size=20_000)
    power = np.rint(power / 0.001) * 0.001
    end = np.arange(1, 40_001) * 1_000_000
    windows = Windows(end - 1_000_000, end, np.ones(40_000, np.int64), {"system": power})
    resolution = Resolution.seen_in(windows, "system")
    assert resolution.quantum_w == pytest.approx(0.001)
    assert 0.02 * 0.95 < resolution.noise_w < 0.02 * 1.3


def test_a_counter_is_known_to_its_last_digit_and_to_its_last_update() -> None:
    still = counter_uncertainty_j([(0.0, 0.1), (0.0, 0.1)], 6.1e-5)
    assert still == pytest.approx(6.1e-5 / math.sqrt(6))
    moving = counter_uncertainty_j([(50.0, 0.001), (50.0, 0.001)], 0.0)
    assert moving == pytest.approx(0.05 * math.sqrt(7 / 18))


def test_counters_updated_each_millisecond_are_as_uncertain_as_drawn_reads_show() -> None:
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
        energy = counted(Counter("rapl", "package-0", start, end, 262_143_328_850, (), 1_000_000))
        errors.append(known(energy.energy_j) - float(np.diff(marks)[0]) * power_w)
        stated = known(energy.statistical_j)
    assert np.std(errors) == pytest.approx(stated, rel=0.1)


def test_a_steady_rest_is_known_to_its_last_digit_and_a_restless_one_by_its_scatter() -> None:
    steady = Resolution(0.1).rest_uncertainty_j(0.0, 8, 1.0, 1.5)
    assert steady == pytest.approx(1.5 * 0.1 / math.sqrt(12))
    variance = 4 / 3
    restless = Resolution(0.0).rest_uncertainty_j(variance, 4, 1.0, 1.5)
    assert restless == pytest.approx(math.sqrt(variance / 4 * 1.5**2 + variance * 1.5))


def test_a_doubt_without_end_is_an_interval_without_end() -> None:
    half = half_width(np.array([1.0, 0.0, np.inf]), np.array([np.inf, 0.0, 1.0]))
    assert half.tolist() == [np.inf, 0.0, np.inf]


@pytest.mark.parametrize("every_ms", [1, 5, 20, 50, 100])
@pytest.mark.parametrize("observed", [True, False])
@pytest.mark.parametrize("unit", [14, 16])
def test_counters_of_any_interval_hold_the_truth(every_ms: int, observed: bool, unit: int) -> None:
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
        energy = counted(Counter("rapl", "package-0", start, end, range_uj, (), update_ns))
        off_j = abs(known(energy.energy_j) - 20 * lasts_s)
        held.append(off_j <= 1.96 * known(energy.statistical_j))
    assert np.mean(held) >= 0.93


def test_a_phase_that_is_short_for_its_counter_is_flagged_or_has_no_figure() -> None:
    start, end = (Reading(t, t + 3_000, t // 50) for t in (10**9, 1_050_000_000))
    by_interval = {
        update_ns: counted(Counter("rapl", "package-0", start, end, 262_143_328_850, (), update_ns))
        for update_ns in (500_000, 5_000_000, 60_000_000, None)
    }
    assert {ns: (e.energy_j is None, e.flags) for ns, e in by_interval.items()} == {
        500_000: (False, ()),
        5_000_000: (False, (COARSE,)),
        60_000_000: (True, (SHORTER,)),
        None: (False, (COARSE,)),
    }
    pause = counted(
        Counter("rapl", "package-0", start, end, 262_143_328_850, (), 60_000_000), windows=False
    )
    assert pause.energy_j == 1.0 and pause.flags == ()
