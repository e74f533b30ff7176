from __future__ import annotations

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from analysis.stats.comparison import Comparison, closed, compare, holm, judged
from analysis.stats.stats import Floats
from analysis.tests.known import known


def compared(*ratios: float, margin: float = 0.02) -> Comparison:
    return known(compare([1.0] * len(ratios), ratios, margin))


@pytest.mark.parametrize("seed", range(20))
def test_holm_is_that_of_statsmodels(seed: int) -> None:
    generator = np.random.default_rng(seed)
    p = np.round(generator.uniform(0, 1, generator.integers(1, 30)) ** 3, 3)  # with ties and zeros
    assert np.max(np.abs(holm(p) - multipletests(p, method="holm")[1])) < 1e-9


def test_holm_of_many_families_at_once_is_that_of_each() -> None:
    p = np.random.default_rng(1).uniform(0, 0.2, (7, 5))
    together = holm(p)
    assert [together[k].tolist() for k in range(7)] == [holm(row).tolist() for row in p]


def test_holm_of_nothing() -> None:
    assert holm(np.array([])).shape == (0,)
    assert judged([]) == []


def rejected(p_values: Floats, settled: Floats, level: float) -> Floats:
    """Return the step-down procedure as it is told: of tests × questions, at one level."""
    still, rejections = np.ones(len(settled), bool), np.zeros(p_values.shape, bool)
    for question in np.argsort(settled):
        limit = level / still.sum()
        rejections |= still & (p_values <= limit)
        if settled[question] > limit:
            break
        still[question] = False
    return rejections


@pytest.mark.parametrize("seed", range(20))
def test_the_adjusted_p_is_the_least_level_that_rejects(seed: int) -> None:
    generator = np.random.default_rng(seed)
    p = generator.uniform(0, 0.06, (2, 6))
    settled = np.where(generator.uniform(size=6) < 0.5, generator.uniform(0, 0.05, 6), 1.0)
    adjusted = closed(p, settled)
    for test, question in np.ndindex(*p.shape):
        level = float(adjusted[test, question])
        assert level == 1 or rejected(p, settled, level * (1 + 1e-12))[test, question]
        assert not rejected(p, settled, min(level, 1.0) * (1 - 1e-12))[test, question]


def test_what_is_beyond_the_margin_no_longer_counts_in_its_family() -> None:
    """Holm's method over the tests of equivalence would ask 0.05 / 3 of the last one."""
    large = compared(1.20, 1.21, 1.19, 1.20)
    near = compared(1.012, 0.987, 1.017, 0.992, 1.019, 0.994)
    assert 0.05 / 3 < known(near.p_equivalence) < 0.05
    members = judged([large, near, large])
    assert [member.verdict for member in members] == ["differs", "equivalent", "differs"]
    assert members[1].p_equivalence_adjusted == pytest.approx(near.p_equivalence)
    assert [member.level for member in members] == [0.05] * 3
    # What differs by less than the margin may still be called equivalent falsely: it stays.
    little = compared(1.015, 1.016, 1.014, 1.015, margin=0.0151)
    assert known(little.p_value) < 0.001
    assert judged([little, near, little])[1].verdict == "inconclusive"


def test_a_family_takes_back_what_one_test_alone_would_say() -> None:
    alone = compared(1.030, 1.055, 1.025, 1.060, 1.005)
    assert 0.0125 < known(alone.p_value) < 0.05
    assert alone.verdict == "differs"
    noise = [compared(0.95, 1.06, 0.97, 1.05, 0.98 + k / 1000) for k in range(3)]
    members = judged([noise[0], alone, *noise[1:]])
    assert members[1].p_adjusted == pytest.approx(4 * known(alone.p_value))
    assert members[1].verdict == "inconclusive"
    # The interval shown stays that of the one comparison.
    assert (members[1].low, members[1].high) == (alone.low, alone.high)


def test_equivalence_is_adjusted_by_itself() -> None:
    near = compared(1.012, 0.987, 1.017, 0.992, 1.019, 0.994)
    assert near.verdict == "equivalent"
    assert 0.0125 < known(near.p_equivalence) < 0.05
    members = judged([near, near, near, near])
    assert [member.verdict for member in members] == ["inconclusive"] * 4


def test_one_block_is_no_member_of_a_family() -> None:
    once, often = compared(1.5), compared(1.2, 1.21, 1.19)
    members = judged([once, often, once])
    assert members[0] == once == members[2]
    assert members[1].p_adjusted == often.p_value
    assert members[0].verdict == "inconclusive"


def test_what_is_both_is_called_equivalent_and_says_so() -> None:
    small = compared(1.010, 1.011, 1.009, 1.010, 1.011, 1.009)
    assert small.verdict == "equivalent"
    assert small.both
    assert not compared(1.001, 0.999, 1.002, 0.998, 1.001, 0.999).both
    assert not compared(1.20, 1.21, 1.19, 1.20).both
    # In a family of many its change is no longer sure, its being small is.
    many = judged([compared(1.0035, 1.0001, 1.0030, 1.0040, 1.0010, 1.0001)] * 5)[0]
    assert known(many.p_value) < 0.05
    assert many.verdict == "equivalent"
    assert not many.both
