from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm

from analysis.stats import incomplete
from analysis.stats.incomplete import in_blocks
from analysis.stats.stats import Floats
from analysis.tests.known import known


def logs_of(shape: tuple[int, int, int], seed: int = 1) -> Floats:
    generator = np.random.default_rng(seed)
    blocks = generator.normal(0, 0.05, (1, shape[1], 1))
    return np.asarray(blocks + generator.normal(0, 0.004, shape))


@pytest.mark.parametrize("shape", [(1, 2, 2), (1, 8, 4), (3, 5, 2), (5, 10, 8)])
def test_without_holes_the_model_is_that_of_pairs(
    shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = logs_of(shape)
    pairs = known(in_blocks(logs, 0.02))
    monkeypatch.setattr(np, "array_equal", lambda *_: False)  # no short way
    model = known(in_blocks(logs, 0.02))
    assert model.ratio == pytest.approx(pairs.ratio, rel=1e-12)
    assert known(model.error) == pytest.approx(known(pairs.error), rel=1e-9)
    assert known(model.df) == pytest.approx(known(pairs.df), rel=1e-9)
    assert model.n == pairs.n


def test_with_holes_the_ratio_is_that_of_least_squares() -> None:
    logs = logs_of((1, 6, 4))
    logs[0, [0, 2, 3], [0, 1, 2]] = np.nan
    rows = [(b, c) for b in range(6) for c in range(4) if np.isfinite(logs[0, b, c])]
    design = np.array(
        [[*(b == k for k in range(6)), *(c == k for k in (1, 2, 3))] for b, c in rows]
    )
    fitted = sm.OLS([logs[0, b, c] for b, c in rows], design.astype(float)).fit()
    comparison = known(in_blocks(logs, 0.02))
    assert math.log(comparison.ratio) == pytest.approx(fitted.params[6], abs=1e-12)
    assert comparison.n == 6
    assert 3 < known(comparison.df) < 5
    paired = known(in_blocks(np.delete(logs, [0, 2], axis=1)[..., :2], 0.02))
    assert paired.n == 4
    assert known(paired.df) < known(comparison.df)


def test_two_configurations_alone_leave_a_lone_run_out() -> None:
    logs = logs_of((1, 6, 2))
    logs[0, 4, 0] = np.nan
    comparison = known(in_blocks(logs, 0.02))
    pairs = known(in_blocks(np.delete(logs, 4, axis=1), 0.02))
    assert comparison.n == 5
    assert comparison.ratio == pytest.approx(pairs.ratio)
    assert known(comparison.error) == pytest.approx(known(pairs.error))


def test_every_workload_weighs_the_same_whatever_it_lacks() -> None:
    logs = np.zeros((2, 6, 2))
    logs[0, :, 1], logs[1, :, 1] = math.log(1.2), math.log(1.0)
    logs[0, 2:, 1] = np.nan
    assert known(in_blocks(logs, 0.02)).ratio == pytest.approx(math.sqrt(1.2))


def test_what_one_block_alone_tells_has_no_interval() -> None:
    logs = logs_of((2, 4, 3))
    logs[1, 1:, 1] = np.nan
    comparison = known(in_blocks(logs, 0.02))
    assert (comparison.low, comparison.p_value, comparison.verdict) == (None, None, "inconclusive")


def test_a_workload_without_the_one_side_compares_nothing() -> None:
    logs = logs_of((2, 4, 3))
    logs[1, :, 1] = np.nan
    assert in_blocks(logs, 0.02) is None
    split = logs_of((1, 4, 2))
    split[0, :2, 0] = split[0, 2:, 1] = np.nan
    assert in_blocks(split, 0.02) is None


def test_most_runs_count_where_every_twelfth_is_void() -> None:
    """Before, a block counted for nothing as soon as one of its runs was void."""
    generator = np.random.default_rng(5)
    logs = logs_of((5, 10, 4))
    logs[generator.uniform(size=logs.shape) < 0.08] = np.nan
    used = 0
    for values in logs:
        part = known(incomplete._workload(values))
        used += np.sum(np.isfinite(values) & (np.abs(part.weights) > 0))
    wanted = np.sum(np.isfinite(logs[..., :2]))
    assert np.sum(np.all(np.isfinite(logs[..., :2]), axis=(0, 2))) < 6
    assert used >= wanted
