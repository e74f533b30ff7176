"""The interval of a mean whose blocks may hang together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from analysis.stats import drifting
from analysis.stats.drifting import long_run, long_run_half_width
from analysis.stats.stats import Floats
from analysis.tests.known import known


def walks(correlation: float, suites: int, blocks: int) -> Floats:
    values = np.random.default_rng(4).normal(0, 1, (suites, blocks))
    for block in range(1, blocks):
        values[:, block] *= np.sqrt(1 - correlation**2)
        values[:, block] += correlation * values[:, block - 1]
    return values


def held(limits: tuple[Floats, Floats]) -> float:
    return float(np.mean((limits[0] <= 0) & (limits[1] >= 0)))


def test_it_holds_a_slow_drifts_mean_where_students_does_not() -> None:
    values = walks(0.8, 1000, 10)
    mean, half = np.mean(values, axis=-1), stats.t.ppf(0.975, 9) * stats.sem(values, axis=-1)
    assert held((mean - half, mean + half)) < 0.65
    assert held(long_run(values)) > 0.90


def test_without_a_drift_it_is_only_wider() -> None:
    assert held(long_run(walks(0.0, 500, 10))) > 0.97


def test_with_one_correlation_it_is_the_known_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without correlation that is Student's."""
    monkeypatch.setattr(drifting, "CORRELATIONS", np.array([0.0]))
    drifting._models.cache_clear()
    values = np.random.default_rng(1).normal(5, 2, 8)
    try:
        found = [float(limit) for limit in long_run(values)]
    finally:
        drifting._models.cache_clear()
    expected = stats.t.interval(0.95, 7, np.mean(values), stats.sem(values))
    assert found == pytest.approx(expected, rel=1e-9)


def test_too_few_blocks_have_none() -> None:
    values = np.array([1.0, 2.0, 1.5, 1.7, 1.2])
    assert known(long_run_half_width(values)) > 0
    assert long_run_half_width(values[:4]) is None
    with pytest.raises(ValueError, match="takes 5 blocks"):
        long_run(values[:4])


def test_blocks_all_alike_are_certain() -> None:
    assert known(long_run_half_width(np.full(6, 3.0))) == pytest.approx(0, abs=1e-9)
