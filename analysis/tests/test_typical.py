from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from analysis.stats import typical
from analysis.stats.comparison import compare
from analysis.tests.known import known


def test_pair_means_and_their_median_by_hand() -> None:
    assert typical.pair_means(np.array([3.0, 1.0, 8.0])).tolist() == [1.0, 2.0, 3.0, 4.5, 5.5, 8.0]


@pytest.mark.parametrize("n", [6, 7, 10, 20, 61, 300])
@pytest.mark.parametrize("level", [0.05, 0.10])
def test_the_interval_is_what_the_signed_rank_test_does_not_reject(n: int, level: float) -> None:
    values = np.random.default_rng(n).normal(1, 1, n)
    low, high = typical.interval(typical.pair_means(values), level)
    exact = n <= typical.EXACT
    for limit, inside in ((low, 1), (high, -1)):
        for way, rejected in ((inside, False), (-inside, True)):
            shifted = values - (float(limit) + way * 1e-9)
            p = stats.wilcoxon(
                shifted, method="exact" if exact else "approx", correction=not exact
            ).pvalue
            assert (p <= level) == rejected, (limit, way, p)


def test_a_stall_moves_the_mean_and_not_the_typical_block() -> None:
    ratios = [1.001, 0.998, 1.002, 0.999, 1.000, 1.4, 1.001, 0.999, 1.000, 0.998]
    found = known(compare([1.0] * 10, ratios, 0.02))
    assert found.ratio > 1.03
    assert known(found.typical).ratio.mid == pytest.approx(1, abs=0.002)
    assert known(found.turned.typical).ratio.low == 1 / known(known(found.typical).ratio.high)


def test_five_blocks_have_none() -> None:
    assert known(compare([1.0] * 5, [1.1] * 5, 0.02)).typical is None
    assert known(compare([1.0] * 6, [1.1] * 6, 0.02)).typical is not None


def test_no_equivalence_where_the_typical_block_is_beyond_the_margin() -> None:
    """Half of the runs cost 3 % more and half less: the mean alone is within the margin."""
    ratios = [math.exp(0.0225 + 0.0003 * k) for k in range(-30, 31)] + [math.exp(-0.15)] * 5
    found = known(compare([1.0] * len(ratios), ratios, 0.0225))
    assert known(found.p_equivalence) < 0.05
    assert found.atypical
    assert found.verdict != "equivalent"


def test_signed_ranks_by_counting_all_signs() -> None:
    for n in (6, 8):
        sums = [
            sum(rank for rank, sign in enumerate(signs, 1) if sign)
            for signs in itertools.product((0, 1), repeat=n)
        ]
        outside = typical._outside(n, 0.05)
        assert np.mean(np.array(sums) <= outside) <= 0.025 < np.mean(np.array(sums) <= outside + 1)
