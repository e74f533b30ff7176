from __future__ import annotations

import itertools
import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from statsmodels.stats.power import TTestPower

from analysis.stats import planning
from analysis.stats.comparison import Comparison
from analysis.stats.contrasts import contrasts
from analysis.tests.known import known
from validation.synthetic.tables import energy_of, suite_of


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


def planned(blocks: int, sd: float, **analysis: object) -> planning.NextSuite:
    generator = np.random.default_rng(5)
    rows = [
        {
            "workload": "write",
            "configuration": name,
            "block": block,
            "energy_j": 100 * math.exp(float(generator.normal(0, sd))),
        }
        for name, block in itertools.product(KINDS, range(blocks))
    ]
    plan = {"contrasts": [["plain", "soft"], ["plain", "opal"]], "margin": 0.02, **analysis}
    suite = suite_of(KINDS, ["write"], analysis=plan)
    return planning.next_suite(suite, contrasts(suite, energy_of(rows)))


def test_next_suite_is_the_largest_of_the_declared_contrasts() -> None:
    document = planned(10, 0.01)
    json.dumps(asdict(document), allow_nan=False)
    assert document.format == "fde-next/1"
    assert document.half_width == 0.005
    rows = document.contrasts
    assert [(row.base, row.other) for row in rows] == [("plain", "soft"), ("plain", "opal")]
    for row in rows:
        assert row.blocks == planning.blocks_for(row.sd_log, 10, 0.005)
        assert row.more_blocks == row.blocks - 10
    assert document.blocks == max(row.blocks for row in rows)
    assert document.more_blocks == known(document.blocks) - 10


def test_next_suite_by_the_width_that_the_plan_asks() -> None:
    document = planned(10, 0.01, half_width=0.02)
    assert (document.blocks, document.more_blocks) == (10, 0)
    for nonsense in (0, -1, "wide", True, float("nan")):
        with pytest.raises(ValueError, match="half_width"):
            planned(10, 0.01, half_width=nonsense)
    assert planned(10, 0.01).half_width == 0.005


def test_next_suite_after_one_block_is_unknown() -> None:
    document = planned(1, 0.01)
    assert (document.blocks, document.more_blocks, document.contrasts) == (None, None, ())


def test_next_suite_where_no_contrast_was_declared() -> None:
    document = planned(10, 0.01, contrasts=[])
    rows = document.contrasts
    assert [row.other for row in rows] == ["opal", "soft"]


@pytest.mark.parametrize(
    ("blocks", "sd", "sentence"),
    [
        (10, 0.01, "11 more blocks give ±0.5 % on every declared contrast."),
        (3, 0.2, "±0.5 % on every declared contrast is out of reach"),
        (1, 0.01, "How many more blocks are needed is unknown"),
    ],
)
def test_next_suite_has_a_sentence(blocks: int, sd: float, sentence: str) -> None:
    document = planned(blocks, sd)
    number = f"{document.more_blocks} more blocks give"
    assert document.sentence.startswith(sentence.replace("11 more blocks give", number))
