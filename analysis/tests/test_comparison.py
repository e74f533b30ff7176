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
    holm,
    judge_comparisons,
    pooled_skewness,
    step_down,
    verdict,
)
from analysis.stats.results import results
from analysis.stats.stats import Floats, estimate
from analysis.stats.voids import fisher, void_tries, with_void_tries
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
        ([1.001, 0.999, 1.002, 0.998, 1.0], "inconclusive"),
        (
            [1.010, 1.011, 1.009, 1.010, 1.011, 1.009],
            "equivalent",
        ),  # significant, and too small to matter
        ([0.90, 1.10, 1.02, 0.97], "inconclusive"),
        ([1.019, 1.023, 1.016, 1.022], "differs"),  # the 90 % interval reaches beyond the margin
    ],
)
def test_verdict_of_block_ratios(other: list[float], word: str) -> None:
    comparison = known(compare([1.0] * len(other), other, 0.02))
    assert comparison.verdict == word


def test_five_percent_is_the_level_of_both_tests() -> None:
    differs = [(0.05 - 1e-9, "differs"), (0.05, "inconclusive"), (0.09, "inconclusive")]
    assert [verdict(p, 0.5) for p, _ in differs] == [word for _, word in differs]
    equal = [(0.05 - 1e-9, "equivalent"), (0.05, "differs"), (0.09, "differs")]
    assert [verdict(0.01, p) for p, _ in equal] == [word for _, word in equal]
    assert verdict(0.01, None) == verdict(None, 0.01) == "inconclusive"


def test_rounding_does_not_count_as_scatter() -> None:
    """Nine times the last digit of a float: a t test of that alone would be beyond doubt."""
    comparison = known(compare([1.0] * 10, [1 + 2.3e-16] * 9 + [1.0], 0.02))
    assert (comparison.p_value, comparison.sd_log, comparison.verdict) == (1.0, 0.0, "equivalent")
    assert not comparison.equivalent_but_changed


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_values_that_are_not_positive_have_no_ratio(bad: float) -> None:
    assert compare([1.0, bad], [1.0, 1.0], 0.02) is None
    assert compare([1.0, 1.0], [bad, 1.0], 0.02) is None
    assert compare([], [], 0.02) is None


def test_huge_scatter_gives_a_finite_interval() -> None:
    comparison = known(compare([1.0, 1.0], [1e-300, 1e300], 0.02))
    assert 0 < known(comparison.low) < 1 < known(comparison.high) < math.inf


def test_margin_is_as_wide_below_as_above() -> None:
    above = known(compare([1.0] * 4, [1.012, 1.011, 1.013, 1.012], 0.02))
    below = known(compare([1.012, 1.011, 1.013, 1.012], [1.0] * 4, 0.02))
    assert below.p_equivalence == pytest.approx(above.p_equivalence, rel=1e-9)
    assert known(below.low) == pytest.approx(1 / known(above.high), rel=1e-9)


def test_blocks_without_scatter_have_a_verdict() -> None:
    same = known(compare([2.0, 3.0] * 3, [2.0, 3.0] * 3, 0.02))
    twice = known(compare([2.0, 3.0], [4.0, 6.0], 0.02))
    assert (same.ratio, same.low, same.verdict) == (1.0, 1.0, "equivalent")
    assert twice.low == pytest.approx(2.0)
    assert twice.verdict == "differs"


def test_skewed_blocks_widen_the_side_of_their_tail() -> None:
    """Blocks that lack the tail that others have: the mean may lie further up, never less far."""
    tail = np.array([0.0, 0.001, 0.002, 0.0, 0.001, 0.003, 0.001, 0.06, 0.002, 0.0])
    plain = scipy_stats.ttest_1samp(tail, 0).confidence_interval(0.95)
    comparison = compare_logs(tail, 0.02)
    assert "skewed" in comparison.doubts and comparison.skewness > 0
    assert math.log(known(comparison.low)) == pytest.approx(plain.low, abs=1e-12)
    assert math.log(known(comparison.high)) > plain.high + 0.2 * (plain.high - plain.low)
    turned = compare_logs(-tail, 0.02)
    assert known(turned.low) == pytest.approx(1 / known(comparison.high))
    calm = np.array([0.01, -0.01, 0.02, -0.02, 0.005, -0.005])
    assert compare_logs(calm, 0.02).skewness == 0 and compare_logs(calm, 0.02).doubts == ()


def test_skewness_is_pooled_over_workloads() -> None:
    generator = np.random.default_rng(5)
    skewed = [compare_logs(generator.exponential(0.01, 10), 0.02) for _ in range(5)]
    even = [compare_logs(generator.normal(0, 0.01, 10), 0.02) for _ in range(5)]
    assert pooled_skewness(skewed) > 1 and pooled_skewness(even) == 0
    assert pooled_skewness(skewed[:1]) == 0  # one alone has its own


def test_correlated_blocks_are_doubted() -> None:
    """A correlation of neighbours of 0.95 in 40 blocks; in random order nothing is said."""
    generator = np.random.default_rng(1)
    walk = np.cumsum(generator.normal(0, 0.01, 40))
    assert "blocks-follow" in compare_logs(walk, 0.02).doubts
    assert "blocks-follow" not in compare_logs(generator.permutation(walk), 0.02).doubts


def test_the_meters_error_widens_interval_and_tests() -> None:
    c = compare_logs(np.zeros(10) + 0.004, 0.02)
    assert c.verdict == "equivalent" and (c.low, c.high) == (c.ratio, c.ratio)
    coarse = replace(c, systematic=0.02)
    assert math.log(known(coarse.high)) == pytest.approx(0.004 + 1.96 * 0.02, rel=1e-3)
    assert coarse.verdict == "inconclusive"


def paired(*ratios: float, margin: float = 0.02) -> Comparison:
    return known(compare([1.0] * len(ratios), ratios, margin))


def test_holm_along_the_last_axis_is_that_of_statsmodels() -> None:
    p = np.random.default_rng(1).uniform(0, 0.2, (7, 5))
    assert holm(p) == pytest.approx(np.array([multipletests(r, method="holm")[1] for r in p]))
    assert holm(np.array([])).shape == (0,)
    assert judge_comparisons([]) == []


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
    adjusted = step_down(p, settled)
    for test, question in np.ndindex(*p.shape):
        level = float(adjusted[test, question])
        assert level == 1 or rejected(p, settled, level * (1 + 1e-12))[test, question]
        assert not rejected(p, settled, min(level, 1.0) * (1 - 1e-12))[test, question]


def test_a_ratio_beyond_the_margin_no_longer_counts_in_its_family() -> None:
    """Holm's method over the tests of equivalence would ask 0.05 / 3 of the last one."""
    large = paired(1.20, 1.21, 1.19, 1.20)
    near = paired(1.012, 0.987, 1.017, 0.992, 1.019, 0.994)
    assert 0.05 / 3 < known(near.p_equivalence) < 0.05
    members = judge_comparisons([large, near, large])
    assert [member.verdict for member in members] == ["differs", "equivalent", "differs"]
    assert members[1].p_equivalence_adjusted == pytest.approx(near.p_equivalence)
    assert [member.level for member in members] == [0.05] * 3
    # What differs by less than the margin may still be called equivalent falsely: it stays.
    little = paired(1.015, 1.016, 1.014, 1.015, margin=0.0151)
    assert known(little.p_value) < 0.001
    assert judge_comparisons([little, near, little])[1].verdict == "inconclusive"


def test_a_family_withdraws_a_single_tests_verdict() -> None:
    alone = paired(1.030, 1.055, 1.025, 1.060, 1.005)
    assert 0.0125 < known(alone.p_value) < 0.05
    assert alone.verdict == "differs"
    noise = [paired(0.95, 1.06, 0.97, 1.05, 0.98 + k / 1000) for k in range(3)]
    members = judge_comparisons([noise[0], alone, *noise[1:]])
    assert members[1].p_adjusted == pytest.approx(4 * known(alone.p_value))
    assert members[1].verdict == "inconclusive"
    # The interval shown stays that of the one comparison.
    assert (members[1].low, members[1].high) == (alone.low, alone.high)


def test_p_values_of_equivalence_are_adjusted() -> None:
    near = paired(1.012, 0.987, 1.017, 0.992, 1.019, 0.994)
    assert near.verdict == "equivalent"
    assert 0.0125 < known(near.p_equivalence) < 0.05
    members = judge_comparisons([near, near, near, near])
    assert [member.verdict for member in members] == ["inconclusive"] * 4


def test_one_block_does_not_belong_to_a_family() -> None:
    once, often = paired(1.5), paired(1.2, 1.21, 1.19)
    members = judge_comparisons([once, often, once])
    assert members[0] == once == members[2]
    assert members[1].p_adjusted == often.p_value
    assert members[0].verdict == "inconclusive"


def test_a_small_significant_change_is_equivalent_but_changed() -> None:
    small = paired(1.010, 1.011, 1.009, 1.010, 1.011, 1.009)
    assert small.verdict == "equivalent"
    assert small.equivalent_but_changed
    assert not paired(1.001, 0.999, 1.002, 0.998, 1.001, 0.999).equivalent_but_changed
    assert not paired(1.20, 1.21, 1.19, 1.20).equivalent_but_changed
    # In a family of many its change is no longer sure, its being small is.
    many = judge_comparisons([paired(1.0035, 1.0001, 1.0030, 1.0040, 1.0010, 1.0001)] * 5)[0]
    assert known(many.p_value) < 0.05
    assert many.verdict == "equivalent"
    assert not many.equivalent_but_changed


def scattered(sd_log: float, n: int) -> Comparison:
    return Comparison(n, 1.0, 0.02, sd_log / math.sqrt(n), n - 1.0)


def test_detectable_difference_at_the_ends() -> None:
    assert comparison.detectable(Comparison(1, 1.0, 0.02)) is None
    assert comparison.detectable(scattered(0.0, 5)) == 1.0
    two = known(comparison.detectable(scattered(0.01, 2)))
    assert 1.1 < two < 1.2
    assert comparison.detectable(scattered(500.0, 2)) is None  # no number is as large


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


def test_void_tries_of_one_configuration_withhold_equivalence(
    small_suite: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(small_suite, tmp_path / "s")
    void_before_each(folder, "dmcrypt-aes256")
    derived = results(folder)
    tries = {voids.configuration: voids for voids in void_tries(derived.suite)}
    assert (tries[VOIDED].void, tries[VOIDED].tries, tries[VOIDED].others_void) == (8, 12, 0)
    assert tries[VOIDED].p_adjusted < 0.05 < tries["plain"].p_adjusted
    for contrast in derived.contrasts:
        concerned = VOIDED in (contrast.base, contrast.other)
        c = known(contrast.comparison)
        assert c.withheld == ("voids" in c.doubts) == concerned
    (sentence,) = (text for text in derived.reservations if text.startswith("8 of 12 tries"))
    accepted = known(next(c for c in derived.contrasts if c.other == VOIDED).comparison)
    with_voids = known(with_void_tries(derived.suite, derived.all_energy, "plain", VOIDED))
    other = next(c for c in derived.contrasts if c.other == "dmcrypt-aes256" and c.base == "plain")
    # The tries that were void took as much as the other configuration's runs.
    assert accepted.ratio < with_voids.ratio < known(other.comparison).ratio
    assert f"{100 * (with_voids.ratio - 1):+.1f} %".replace("-", "−") in sentence


def test_a_suite_without_void_tries_has_no_ratio_with_them(small_suite: Path) -> None:
    derived = results(small_suite)
    assert with_void_tries(derived.suite, derived.all_energy, "plain", VOIDED) is None
    assert {voids.p_adjusted for voids in void_tries(derived.suite)} == {1.0}


@pytest.mark.parametrize(
    ("hits", "tries", "all_hits", "all_tries", "p_value"),
    [(4, 8, 4, 20, 2 * 70 / 4845), (0, 5, 0, 20, 1.0), (1, 1, 20, 20, 1.0)],
)
def test_fisher_matches_counted_combinations(
    hits: int, tries: int, all_hits: int, all_tries: int, p_value: float
) -> None:
    assert fisher(hits, tries, all_hits, all_tries) == pytest.approx(p_value)
