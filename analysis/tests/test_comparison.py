"""Ratios, their intervals and verdicts, in families, and how many blocks they take."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as scipy_stats
from statsmodels.stats.multitest import multipletests

from analysis.stats import comparison
from analysis.stats.comparison import (
    Comparison,
    compare,
    compare_logs,
    deciding_levels,
    judge_comparisons,
)
from analysis.stats.results import results
from analysis.stats.stats import estimate, holm
from analysis.stats.voids import void_tries
from analysis.tests.known import known
from contract.journal import REPEAT, TARGET_DOWN
from validation.synthetic.folder import write_manifest


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
        ([1.001, 0.999, 1.002, 0.998, 1.0], "inconclusive"),  # five blocks
        ([1.010, 1.011, 1.009, 1.010, 1.011, 1.009], "equivalent"),  # and not 1
        ([0.90, 1.10, 1.02, 0.97], "inconclusive"),
        ([1.019, 1.023, 1.016, 1.022, 1.019, 1.021], "differs"),  # reaches beyond the margin
        ([1.5], "inconclusive"),
    ],
)
def test_the_interval_decides_on_the_word(other: list[float], word: str) -> None:
    comparison = known(compare([1.0] * len(other), other, 0.02))
    assert comparison.verdict == word


def test_rounding_is_no_scatter() -> None:
    """Nine times the last digit of a float: a t test of that alone would be beyond doubt."""
    comparison = known(compare([1.0] * 10, [1 + 2.3e-16] * 9 + [1.0], 0.02))
    assert (comparison.sd_log, comparison.verdict) == (0.0, "equivalent")
    assert not comparison.equivalent_but_changed


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_joules_that_are_none_have_no_ratio(bad: float) -> None:
    assert compare([1.0, bad], [1.0, 1.0], 0.02) is None
    assert compare([1.0, 1.0], [bad, 1.0], 0.02) is None
    assert compare([], [], 0.02) is None


def test_huge_scatter_gives_a_finite_interval() -> None:
    comparison = known(compare([1.0, 1.0], [1e-300, 1e300], 0.02))
    assert 0 < known(comparison.low) < 1 < known(comparison.high) < math.inf


def test_turned_round_the_limits_are_the_inverse() -> None:
    above = known(compare([1.0] * 4, [1.012, 1.011, 1.013, 1.012], 0.02))
    below = known(compare([1.012, 1.011, 1.013, 1.012], [1.0] * 4, 0.02))
    assert below.low == pytest.approx(1 / known(above.high), rel=1e-9)
    assert above.inverted.low == pytest.approx(below.low, rel=1e-9)


def test_blocks_without_scatter_have_a_verdict() -> None:
    same = known(compare([2.0, 3.0] * 3, [2.0, 3.0] * 3, 0.02))
    twice = known(compare([2.0, 3.0], [4.0, 6.0], 0.02))
    assert (same.ratio, same.low, same.verdict) == (1.0, 1.0, "equivalent")
    assert twice.low == pytest.approx(2.0)
    assert twice.verdict == "differs"


def test_blocks_that_follow_each_other_are_doubted() -> None:
    """A correlation of neighbours of 0.95 in 40 blocks; in random order nothing is said."""
    generator = np.random.default_rng(1)
    walk = np.cumsum(generator.normal(0, 0.01, 40))
    assert compare_logs(walk, 0.02).doubts == ("blocks-follow",)
    assert compare_logs(generator.permutation(walk), 0.02).doubts == ()


def test_the_meters_error_and_rare_events_widen_the_interval() -> None:
    c = compare_logs(np.zeros(10) + 0.004, 0.02)
    assert c.verdict == "equivalent" and (c.low, c.high) == (c.ratio, c.ratio)
    coarse = replace(c, systematic=0.02)
    assert math.log(known(coarse.high)) == pytest.approx(0.004 + 1.96 * 0.02, rel=1e-3)
    assert coarse.verdict == "inconclusive"
    rare = replace(c, allowance=0.02)
    assert math.log(known(rare.low)) == pytest.approx(0.004 - 0.02)
    assert rare.verdict == "inconclusive"


def test_the_interval_holds_the_ratio_of_first_tries_too() -> None:
    accepted = paired(1.001, 0.999, 1.002, 0.998, 1.001, 0.999)
    first_tries = paired(1.031, 1.029, 1.032, 1.028, 1.031, 1.029)
    both = replace(accepted, first_tries=first_tries)
    assert (both.low, both.high) == (accepted.low, first_tries.high)
    assert [c.verdict for c in (accepted, first_tries, both)] == [
        "equivalent",
        "differs",
        "inconclusive",
    ]


def paired(*ratios: float, margin: float = 0.02) -> Comparison:
    return known(compare([1.0] * len(ratios), ratios, margin))


def test_holm_by_hand() -> None:
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    p_values = np.random.default_rng(1).uniform(0, 0.2, 7).tolist()
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])
    assert holm([]) == []
    assert judge_comparisons([]) == []


def test_open_questions_share_the_level_by_their_weights() -> None:
    noise = [paired(0.95, 1.06, 0.97, 1.05, 0.98 + k / 1000) for k in range(3)]
    assert [c.level for c in judge_comparisons(noise)] == pytest.approx([0.05 / 3] * 3)
    assert [c.level for c in judge_comparisons(noise, [0.8, 0.1, 0.1])] == pytest.approx(
        [0.04, 0.005, 0.005]
    )


def test_a_settled_question_keeps_its_level_and_leaves_the_rest_to_the_others() -> None:
    large = paired(1.20, 1.21, 1.19, 1.20)
    open_ones = [paired(0.95, 1.06, 0.97, 1.05, 0.98 + k / 1000) for k in range(2)]
    levels = [c.level for c in judge_comparisons([large, *open_ones])]
    assert levels == pytest.approx([0.05 / 3, 0.025, 0.025])
    # Within the margin and not 1: neither word about it can be false any more.
    small = paired(1.010, 1.011, 1.009, 1.010, 1.011, 1.009)
    assert judge_comparisons([small, *open_ones])[1].level == pytest.approx(0.025)
    # Within the margin, but perhaps 1: a later look at it could still call it different.
    same = paired(1.001, 0.999, 1.002, 0.998, 1.001, 0.999)
    assert judge_comparisons([same, *open_ones])[1].level == pytest.approx(0.05 / 3)
    # Before its planned end a question has no word, and is not settled.
    assert judge_comparisons([replace(large, complete=False), *open_ones])[
        1
    ].level == pytest.approx(0.05 / 3)


def test_a_family_takes_back_what_one_comparison_alone_would_show() -> None:
    alone = paired(1.030, 1.055, 1.025, 1.060, 1.005)
    assert alone.verdict == "differs"
    noise = [paired(0.95, 1.06, 0.97, 1.05, 0.98 + k / 1000) for k in range(3)]
    of_four = judge_comparisons([noise[0], alone, *noise[1:]])[1]
    assert of_four.verdict == "inconclusive"
    # The interval that is shown is the one that decides.
    assert of_four.estimate.contains(1.0) and not alone.estimate.contains(1.0)


@pytest.mark.parametrize("seed", range(20))
def test_levels_are_those_of_the_procedure_step_by_step(seed: int) -> None:
    """Settle one question at a time, the weightiest first: the same levels in the end."""
    generator = np.random.default_rng(seed)
    half, mean = generator.uniform(0.2, 3.0, 7), generator.normal(0, 0.05, 7)
    weights = generator.uniform(0.1, 1.0, 7)

    def limits(levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        off = half * 0.01 * scipy_stats.norm.ppf(1 - levels / 2)
        return mean - off, mean + off

    is_open, levels = np.ones(7, bool), 0.05 * weights / weights.sum()
    while True:
        low, high = limits(levels)
        beyond = (low > math.log(1.02)) | (high < -math.log(1.02))
        small = (np.maximum(high, -low) < math.log(1.02)) & ((low > 0) | (high < 0))
        settled = np.flatnonzero(is_open & (beyond | small))
        if not len(settled):
            break
        is_open[max(settled, key=lambda place: weights[place])] = False
        levels = np.where(is_open, 0.05 * weights / max(weights[is_open].sum(), 1e-9), levels)
    ours = deciding_levels(limits, 0.02, weights)
    assert ours[is_open] == pytest.approx(levels[is_open])


def test_one_block_does_not_belong_to_a_family() -> None:
    once, often = paired(1.5), paired(1.2, 1.21, 1.19)
    members = judge_comparisons([once, often, None, once])
    assert members[0] == once == members[3] and members[2] is None
    assert known(members[1]).level == 0.05
    assert once.verdict == "inconclusive"


def test_an_equivalent_change_is_equivalent_and_marked() -> None:
    small = paired(1.010, 1.011, 1.009, 1.010, 1.011, 1.009)
    assert small.verdict == "equivalent"
    assert small.equivalent_but_changed
    assert not paired(1.001, 0.999, 1.002, 0.998, 1.001, 0.999).equivalent_but_changed
    assert not paired(1.20, 1.21, 1.19, 1.20).equivalent_but_changed


def scattered(sd_log: float, n: int) -> Comparison:
    return Comparison(n, 1.0, 0.02, sd_log / math.sqrt(n), n - 1.0)


def test_detectable_difference_at_the_ends() -> None:
    assert comparison.detectable(Comparison(1, 1.0, 0.02)) is None
    assert comparison.detectable(scattered(0.0, 5)) == 1.0
    two = known(comparison.detectable(scattered(0.01, 2)))
    assert 1.1 < two < 1.2
    assert comparison.detectable(scattered(500.0, 2)) is None  # no number is as large


@pytest.mark.parametrize(("change", "sd"), [(0.0, 0.02), (0.01, 0.03), (0.03, 0.05), (0.05, 0.06)])
def test_the_most_blocks_settle_four_of_five_fresh_suites(change: float, sd: float) -> None:
    """A pilot of six blocks states a number; a fresh suite of that many has a word."""
    generator = np.random.default_rng(8)
    settled = stated = 0
    for _ in range(400):
        pilot = compare_logs(generator.normal(change, sd, 6), 0.02)
        if pilot.verdict != "inconclusive":
            continue
        stated += 1
        least, most = known(comparison.blocks_to_settle(pilot))
        assert 6 < least <= most
        again = compare_logs(generator.normal(change, sd, most), 0.02)
        settled += again.verdict != "inconclusive"
    assert settled / stated > 0.77  # 80 % less what so few draws scatter


VOIDED = "opal"
TRIES = 2  # that are void, before each of its runs is accepted


def void_before_each(folder: Path, like: str) -> None:
    """Give each run of `VOIDED` void tries before it, which took what a run of `like` did."""
    path = folder / "journal.jsonl"
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line["state"] == "switching" and f"-{VOIDED}-" in line["run_id"]:
            void = {"state": "void", "cause": "failed", "detail": "The processor throttled."}
            lines += [{**line, "state": "running"}, {**line, **void}] * TRIES
        elif line["state"] == "switching" and "-plain-" in line["run_id"]:
            # What the controller or a power cut ended says nothing of the configuration.
            lines += [{**line, "state": "void", "cause": c} for c in (REPEAT, TARGET_DOWN)]
        lines.append(line)
    numbered = (json.dumps({**line, "seq": seq}) for seq, line in enumerate(lines))
    path.write_text("".join(f"{text}\n" for text in numbered), encoding="utf-8")
    runs = {
        path.parent.name: json.loads(path.read_text()) for path in folder.glob("runs/*/run.json")
    }
    cells = {(r["block"], r["configuration"], r["workload"]): r for r in runs.values()}
    for run_id, run in runs.items():
        if run["configuration"] == VOIDED:
            other = cells[run["block"], like, run["workload"]]
            took = {key: other[key] for key in ("phases", "t_start_ns", "t_end_ns")}
            document = {**run, **took, "status": "void", "void_reason": "throttled"}
            for number in range(TRIES):
                aside = folder / "runs" / f"{run_id}.void-{number + 1}"
                aside.mkdir()
                (aside / "run.json").write_text(json.dumps(document), encoding="utf-8")
    write_manifest(folder)


def test_void_tries_are_counted_and_widen_the_interval_of_their_configuration(
    small_suite: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(small_suite, tmp_path / "s")
    void_before_each(folder, "dmcrypt-aes256")
    derived = results(folder)
    tries = {voids.configuration: voids for voids in void_tries(derived.suite)}
    assert (tries[VOIDED].void, tries[VOIDED].tries, tries["plain"].void) == (8, 12, 0)
    other = next(c for c in derived.contrasts if c.other == "dmcrypt-aes256" and c.base == "plain")
    for contrast in derived.contrasts:
        c = known(contrast.comparison)
        concerned = VOIDED in (contrast.base, contrast.other)
        assert ("voids" in c.doubts) == (c.first_tries is not None) == concerned
    c = known(next(c for c in derived.contrasts if c.other == VOIDED).comparison)
    # The tries that were void took as much as the other configuration's runs.
    assert c.ratio < known(c.first_tries).ratio == pytest.approx(known(other.comparison).ratio)
    assert known(c.high) > known(replace(c, first_tries=None).high)
    (sentence,) = (text for text in derived.reservations if text.startswith("8 of 12 attempts"))
    for ratio in (c.ratio, known(c.first_tries).ratio):
        assert f"{100 * (ratio - 1):+.1f} %".replace("-", "−") in sentence


def test_a_suite_without_void_tries_has_no_ratio_with_them(small_suite: Path) -> None:
    derived = results(small_suite)
    assert all(known(c.comparison).first_tries is None for c in derived.contrasts)
    assert {voids.void for voids in void_tries(derived.suite)} == {0}
