from __future__ import annotations

import math

import numpy as np
import pytest
from statsmodels.stats.power import TTestPower

from analysis.stats import planning
from analysis.stats.comparison import Comparison
from analysis.tests.known import known


def scattered(sd_log: float, n: int) -> Comparison:
    return Comparison(n, 1.0, 0.02, sd_log / math.sqrt(n), n - 1.0)


KINDS = {"plain": "plain", "opal": "opal", "soft": "dmcrypt"}


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


def test_second_stage_by_hand() -> None:
    # t(0.975, 9) = 2.262157 from a printed table.
    blocks = (2.262157 * 0.01 / math.log(1.005)) ** 2
    assert planning.blocks_for(0.01, 10, 0.005) == math.ceil(blocks) == 21
    assert planning.blocks_for(0.001, 10, 0.005) == 10  # never fewer than there are
    assert planning.blocks_for(0.0, 3, 0.005) == 3
    with pytest.raises(ValueError):
        planning.blocks_for(0.01, 1, 0.005)
    with pytest.raises(ValueError):
        planning.blocks_for(0.01, 5, 0.0)


def test_two_stages_keep_the_first_deviation() -> None:
    half = float(planning.two_stages_half_width(0.01, 3, np.array(8.0)))
    assert half == pytest.approx(4.302653 * 0.01 / math.sqrt(8), rel=1e-6)


def test_two_stages_hold_the_truth_and_the_promise() -> None:
    """0.95 whatever the deviation is; an interval by all blocks' own deviation would not."""
    generator = np.random.default_rng(4)
    held = kept = 0
    for _ in range(1500):
        first = generator.normal(0.0, 0.01, 5)
        sd = float(np.std(first, ddof=1))
        total = planning.blocks_for(sd, 5, 0.01)
        half = float(planning.two_stages_half_width(sd, 5, np.array(float(total))))
        mean = float(np.mean([*first, *generator.normal(0.0, 0.01, total - 5)]))
        held += abs(mean) <= half
        kept += abs(mean) <= math.log1p(0.01)
    assert 0.935 < held / 1500 < 0.965
    assert kept / 1500 > 0.945
