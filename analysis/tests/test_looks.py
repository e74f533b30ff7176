"""Intervals and verdicts of a suite that may be looked at after any block."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from analysis.stats.comparison import LogRatio, compare
from analysis.stats.results import results
from analysis.stats.stats import Floats, critical
from analysis.tests.known import analysed, known
from analysis.tests.pages import change_plan, whole_page

SEQUENCES, BLOCKS = 600, 60


@pytest.fixture(scope="module")
def sequences() -> Floats:
    return np.random.default_rng(8).normal(0, 0.005, (SEQUENCES, BLOCKS))


def ever(logs: Floats, any_look: bool, margin: float | None = None) -> float:
    """Share of sequences with a false verdict at one of the looks after every block."""
    ever_beyond = np.zeros(len(logs), bool)
    for blocks in range(3, BLOCKS + 1):
        mean = LogRatio.of(logs[:, :blocks], any_look)
        ever_beyond |= (mean.p_value() if margin is None else mean.p_equivalence(margin)) < 0.05
    return float(np.mean(ever_beyond))


def test_looks_after_every_block_do_not_add_up(sequences: Floats) -> None:
    assert ever(sequences, any_look=False) > 0.15
    assert ever(sequences, any_look=True) < 0.05


def test_nor_do_they_for_equivalence_with_the_ratio_on_the_margin(sequences: Floats) -> None:
    beyond = sequences + math.log1p(0.02)
    assert ever(beyond, any_look=False, margin=0.02) > 0.12
    assert ever(beyond, any_look=True, margin=0.02) < 0.05


def test_what_is_there_is_found_some_blocks_later(sequences: Floats) -> None:
    beyond = LogRatio.of(sequences[:, :20] + 0.008, any_look=True).p_value() < 0.05
    assert np.mean(beyond) > 0.95


@pytest.mark.parametrize("blocks", [2, 3, 5, 10, 40])
def test_the_interval_leaves_out_what_the_test_rejects(blocks: int) -> None:
    logs = np.random.default_rng(blocks).normal(0.01, 0.01, blocks)
    for mean in (0.0, 0.02, -0.01):
        shifted = LogRatio.of(logs - np.mean(logs) + mean, any_look=True)
        low, high = shifted.interval()
        inside = low < 0 < high
        assert inside == (shifted.p_value() > 0.05)


@pytest.mark.parametrize("blocks", [2, 3, 10, 100])
def test_it_is_wider_than_the_plain_one(blocks: int) -> None:
    df = np.array(blocks - 1.0)
    assert critical(df, 0.05, any_look=True) > 1.4 * critical(df, 0.05)


def test_certainty_without_scatter_stays() -> None:
    comparison = known(compare([1.0] * 4, [1.1] * 4, 0.02, any_look=True))
    assert (known(comparison.low), known(comparison.high)) == pytest.approx((1.1, 1.1))
    assert comparison.verdict == "differs"


@pytest.mark.parametrize("blocks", [2, 4])
def test_the_report_says_which_intervals_it_shows(tmp_path: Path, blocks: int) -> None:
    folder = tmp_path / "s"
    derived = analysed(folder, blocks=blocks, interval_ms=100, workloads=("sql", "video"))
    assert "looks: any" not in whole_page(derived)
    plain = derived.contrasts[0].comparison
    change_plan(folder, analysis={"looks": "any"})
    derived = results(folder)
    assert "Intervals hold for any number of looks (looks: any)" in whole_page(derived)
    ours = known(derived.contrasts[0].comparison)
    assert ours.ratio == known(plain).ratio
    if blocks == 2:
        assert (ours.low, ours.high) == (None, None)
    else:
        assert known(ours.low) < known(known(plain).low)
