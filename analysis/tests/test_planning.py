from __future__ import annotations

import math

import pytest
from statsmodels.stats.power import TTestPower

from analysis.stats import planning
from analysis.stats.comparison import Comparison
from analysis.tests.known import known


def scattered(sd_log: float, n: int) -> Comparison:
    return Comparison(n, 1.0, 0.02, sd_log / math.sqrt(n), n - 1.0)


@pytest.mark.parametrize("n", [3, 4, 6, 10, 40, 200])
def test_detectable_difference_is_that_of_statsmodels(n: int) -> None:
    theirs = TTestPower().solve_power(None, nobs=n, alpha=0.05, power=0.8)
    assert planning.detectable(scattered(0.004, n)) == pytest.approx(
        math.exp(0.004 * theirs), rel=1e-6
    )
    theirs = TTestPower().solve_power(None, nobs=n, alpha=0.05, power=0.95)
    percent = planning.detectable(scattered(0.004, n), power=0.95)
    assert percent == pytest.approx(math.exp(0.004 * theirs), rel=1e-6)


def test_detectable_difference_at_the_ends() -> None:
    assert planning.detectable(Comparison(1, 1.0, 0.02)) is None
    assert planning.detectable(scattered(0.0, 5)) == 1.0
    two = known(planning.detectable(scattered(0.01, 2)))
    assert 1.1 < two < 1.2
    assert planning.detectable(scattered(500.0, 2)) is None  # no number is as large
