from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as scipy_stats

from analysis.stats.comparison import compare, compared, pooled_skewness, verdict
from analysis.stats.stats import estimate
from analysis.tests.known import known


def test_interval_is_students_t_by_hand() -> None:
    values = [10.0, 11.0, 12.0, 15.0]
    mean = estimate(values)
    # t(0.975, 3 degrees) from a printed table, s = sqrt(14/3)
    half = 3.182446 * math.sqrt(14 / 3) / 2
    assert mean.mean == 12.0
    assert mean.low == pytest.approx(12 - half, rel=1e-6)
    assert mean.high == pytest.approx(12 + half, rel=1e-6)
    low, high = scipy_stats.t.interval(0.95, 3, loc=12.0, scale=scipy_stats.sem(values))
    assert (mean.low, mean.high) == pytest.approx((low, high), rel=1e-12)


def test_ratio_is_that_of_paired_logarithms() -> None:
    base, other = [100.0, 140.0, 90.0], [104.0, 147.0, 93.0]
    comparison = known(compare(base, other, 0.02))
    test = scipy_stats.ttest_rel(np.log(other), np.log(base))
    interval = test.confidence_interval(0.95)
    assert known(comparison.low) == pytest.approx(math.exp(interval.low), rel=1e-12)
    assert comparison.high == pytest.approx(math.exp(interval.high), rel=1e-12)
    # Blocks differ by half, the pairs hardly: unpaired, nothing would be seen.
    assert comparison.verdict == "differs"


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ([1.20, 1.21, 1.19, 1.20], "differs"),
        ([1.001, 0.999, 1.002, 0.998, 1.001, 0.999], "equivalent"),
        ([1.001, 0.999, 1.002, 0.998, 1.0], "inconclusive"),
        (
            [1.010, 1.011, 1.009, 1.010, 1.011, 1.009],
            "equivalent",
        ),  # significant, and too small to matter
        ([0.90, 1.10, 1.02, 0.97], "inconclusive"),
        ([1.019, 1.023, 1.016, 1.022], "differs"),  # the 90 % interval reaches beyond the margin
    ],
)
def test_verdicts(other: list[float], word: str) -> None:
    comparison = known(compare([1.0] * len(other), other, 0.02))
    assert comparison.verdict == word


def test_five_percent_is_the_level_of_both_tests() -> None:
    differs = [(0.05 - 1e-9, "differs"), (0.05, "inconclusive"), (0.09, "inconclusive")]
    assert [verdict(p, 0.5) for p, _ in differs] == [word for _, word in differs]
    equal = [(0.05 - 1e-9, "equivalent"), (0.05, "differs"), (0.09, "differs")]
    assert [verdict(0.01, p) for p, _ in equal] == [word for _, word in equal]
    assert verdict(0.01, None) == verdict(None, 0.01) == "inconclusive"


def test_rounding_is_no_scatter() -> None:
    """Nine times the last digit of a float: a t test of that alone would be beyond doubt."""
    comparison = known(compare([1.0] * 10, [1 + 2.3e-16] * 9 + [1.0], 0.02))
    assert (comparison.p_value, comparison.sd_log, comparison.verdict) == (1.0, 0.0, "equivalent")
    assert not comparison.both


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_energy_has_no_ratio(bad: float) -> None:
    assert compare([1.0, bad], [1.0, 1.0], 0.02) is None
    assert compare([1.0, 1.0], [bad, 1.0], 0.02) is None
    assert compare([], [], 0.02) is None


def test_huge_scatter_is_still_numbers() -> None:
    comparison = known(compare([1.0, 1.0], [1e-300, 1e300], 0.02))
    assert 0 < known(comparison.low) < 1 < known(comparison.high) < math.inf


def test_margin_is_as_wide_below_as_above() -> None:
    above = known(compare([1.0] * 4, [1.012, 1.011, 1.013, 1.012], 0.02))
    below = known(compare([1.012, 1.011, 1.013, 1.012], [1.0] * 4, 0.02))
    assert below.p_equivalence == pytest.approx(above.p_equivalence, rel=1e-9)
    assert known(below.low) == pytest.approx(1 / known(above.high), rel=1e-9)


def test_no_scatter_is_not_a_division_by_zero() -> None:
    same = known(compare([2.0, 3.0] * 3, [2.0, 3.0] * 3, 0.02))
    twice = known(compare([2.0, 3.0], [4.0, 6.0], 0.02))
    assert (same.ratio, same.low, same.verdict) == (1.0, 1.0, "equivalent")
    assert twice.low == pytest.approx(2.0)
    assert twice.verdict == "differs"


def test_skewed_blocks_widen_the_side_on_which_the_mean_may_lie() -> None:
    """Blocks that lack the tail that others have: the mean may lie further up, never less far."""
    tail = np.array([0.0, 0.001, 0.002, 0.0, 0.001, 0.003, 0.001, 0.06, 0.002, 0.0])
    plain = scipy_stats.ttest_1samp(tail, 0).confidence_interval(0.95)
    comparison = compared(tail, 0.02)
    assert "skewed" in comparison.doubts and comparison.skewness > 0
    assert math.log(known(comparison.low)) == pytest.approx(plain.low, abs=1e-12)
    assert math.log(known(comparison.high)) > plain.high + 0.2 * (plain.high - plain.low)
    turned = compared(-tail, 0.02)
    assert known(turned.low) == pytest.approx(1 / known(comparison.high))
    calm = np.array([0.01, -0.01, 0.02, -0.02, 0.005, -0.005])
    assert compared(calm, 0.02).skewness == 0 and compared(calm, 0.02).doubts == ()


def test_workloads_that_are_skewed_together_share_it() -> None:
    generator = np.random.default_rng(5)
    skewed = [compared(generator.exponential(0.01, 10), 0.02) for _ in range(5)]
    even = [compared(generator.normal(0, 0.01, 10), 0.02) for _ in range(5)]
    assert pooled_skewness(skewed) > 1 and pooled_skewness(even) == 0
    assert pooled_skewness(skewed[:1]) == 0  # one alone has its own


def test_blocks_that_follow_each_other_are_doubted() -> None:
    """A correlation of neighbours of 0.95 in 40 blocks; in random order nothing is said."""
    generator = np.random.default_rng(1)
    walk = np.cumsum(generator.normal(0, 0.01, 40))
    assert "blocks-follow" in compared(walk, 0.02).doubts
    assert "blocks-follow" not in compared(generator.permutation(walk), 0.02).doubts


def test_what_the_meter_may_be_off_by_is_in_interval_and_tests() -> None:
    c = compared(np.zeros(10) + 0.004, 0.02)
    assert c.verdict == "equivalent" and (c.low, c.high) == (c.ratio, c.ratio)
    coarse = replace(c, systematic=0.02)
    assert math.log(known(coarse.high)) == pytest.approx(0.004 + 1.96 * 0.02, rel=1e-3)
    assert coarse.verdict == "inconclusive"


def test_false_equivalence_is_rare() -> None:
    """Two one-sided tests at 5 %: a ratio on the margin is called equivalent in 5 % of suites."""
    generator = np.random.default_rng(3)
    log_ratios = math.log(1.02) + generator.normal(0, 0.004, (2000, 6))
    words = [compare([1.0] * 6, np.exp(row).tolist(), 0.02) for row in log_ratios]
    share = (
        sum(comparison is not None and comparison.verdict == "equivalent" for comparison in words)
        / 2000
    )
    assert 0.035 < share < 0.065
