from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from analysis.stats.stats import Span, estimate, ratio_of_means
from analysis.tests.known import known

TRUE_TOP, TRUE_BOTTOM = 120.0, 8.0


def simulated(
    generator: np.random.Generator, bottom: float, scatter: float
) -> tuple[list[float], list[float]]:
    """Ten blocks whose parts are correlated: a block that is slow is slow in both."""
    common = generator.normal(0, 1, 10)
    top = TRUE_TOP + 4 * common + generator.normal(0, 3, 10)
    below = bottom + scatter * (0.5 * common + generator.normal(0, 1, 10))
    return top.tolist(), below.tolist()


@pytest.mark.parametrize(("bottom", "scatter"), [(TRUE_BOTTOM, 0.8), (TRUE_BOTTOM, 4.0)])
def test_coverage_is_what_it_says(bottom: float, scatter: float) -> None:
    generator = np.random.default_rng(11)
    suites, held = 4000, 0
    for _ in range(suites):
        found = ratio_of_means(*simulated(generator, bottom, scatter))
        low = -math.inf if found.low is None else found.low
        high = math.inf if found.high is None else found.high
        held += low <= TRUE_TOP / bottom <= high
    assert 0.94 <= held / suites <= 0.96


def test_without_bounds_just_where_the_denominators_interval_holds_zero() -> None:
    generator = np.random.default_rng(12)
    kinds = set()
    for _ in range(300):
        top, below = simulated(generator, 1.5, 2.5)
        found = ratio_of_means(top, below)
        assert (found.low is None) == estimate(below).contains(0)
        assert (found.low is None) == (found.high is None)
        kinds.add(found.low is None)
    assert kinds == {True, False}


def test_an_exact_denominator_leaves_students_interval() -> None:
    top = [11.0, 12.5, 9.0, 10.0]
    found, mean = ratio_of_means(top, [4.0] * 4), estimate(top)
    assert found.mid == pytest.approx(mean.mean / 4)
    assert found.low == pytest.approx(known(mean.low) / 4)
    assert found.high == pytest.approx(known(mean.high) / 4)


def test_the_limits_are_where_the_t_test_turns() -> None:
    generator = np.random.default_rng(13)
    top, below = simulated(generator, TRUE_BOTTOM, 2.0)
    found = ratio_of_means(top, below, confidence=0.9)
    for limit in (known(found.low), known(found.high)):
        rest = np.asarray(top) - limit * np.asarray(below)
        assert stats.ttest_1samp(rest, 0).pvalue == pytest.approx(0.1, rel=1e-9)
    assert known(found.low) < found.mid < known(found.high)


def test_a_negative_denominator_keeps_the_order_of_the_limits() -> None:
    found = ratio_of_means([10.0, 11.0, 12.0], [-5.0, -5.2, -5.1])
    assert known(found.low) < found.mid < known(found.high) < 0


def test_one_block_has_no_interval_and_nonsense_is_refused() -> None:
    assert ratio_of_means([6.0], [2.0]) == Span(3.0, None, None)
    with pytest.raises(ValueError, match="equal numbers"):
        ratio_of_means([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="no values"):
        ratio_of_means([], [])
    with pytest.raises(ValueError, match="not defined"):
        ratio_of_means([1.0, 1.0], [-1.0, 1.0])
