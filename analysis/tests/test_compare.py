"""Suites beside each other, and the picture of one run."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from analysis.report import compare_page, words
from analysis.report.texts import say
from analysis.report.view import Answer, Columns, Matrix, Picture
from analysis.stats.compare import NIGHT_SD, compare_all, compare_read
from analysis.stats.results import load
from analysis.suite.records import Suite
from analysis.tests.known import known
from analysis.tests.pages import Shared, change_plan, pieces, without_own
from controller.tests.command import Fde
from validation.synthetic.suite import IDLE_W, SLOWER, Options, write_suite
from validation.synthetic.tables import energy_of, suite_of

SMALL = Options(blocks=4, interval_ms=100, workloads=("kernel_grep", "sql"))


Pair = tuple[Path, Path]


@pytest.fixture(scope="module")
def two(shared: Shared) -> Pair:
    def make(root: Path) -> None:
        write_suite(root / "a", SMALL)
        kernel = {"kernel": "6.13.0-test"}
        options = replace(SMALL, host="other", seed=8, blocks=3, machine=kernel)
        write_suite(root / "b", options)

    root, _ = shared("two", make)
    return root / "a", root / "b"


def test_differences_are_those_of_the_two_suites(two: Pair) -> None:
    differences = {
        difference.what: (difference.a, difference.b)
        for difference in compare_all([*two])[0].differences
    }
    assert differences == {
        "host": ("bench", "other"),
        "blocks": ("4", "3"),
        "kernel": ("6.12.0-test", "6.13.0-test"),
    }


def test_ratios_include_scatter_of_blocks_and_nights(two: Pair) -> None:
    comparison = compare_all([*two])[0]
    assert [(r.workload, r.configuration) for r in comparison.joules][:2] == [
        ("kernel_grep", "plain"),
        ("kernel_grep", "opal"),
    ]
    energy = load(*two)
    for ratio in comparison.joules:
        sides = [
            np.log(
                energy.filter(
                    suite_id=suite.suite_id,
                    workload=ratio.workload,
                    configuration=ratio.configuration,
                    component="system",
                    phase="all",
                )["energy_j"].to_numpy()
            )
            for suite in (comparison.a, comparison.b)
        ]
        assert (ratio.blocks_a, ratio.blocks_b) == (4, 3) == tuple(map(len, sides))
        alone = stats.ttest_ind(sides[1], sides[0], equal_var=False)
        mean = np.mean(sides[1]) - np.mean(sides[0])
        night = stats.norm.ppf(0.975) * math.sqrt(2) * NIGHT_SD
        error = alone.confidence_interval(0.95).high - mean
        assert ratio.low is not None and ratio.high is not None
        half = math.log(ratio.high) - mean
        assert half == pytest.approx(mean - math.log(ratio.low), abs=1e-12)
        assert night < half < night + error


def test_the_cost_of_encryption_is_compared_within_each_suite(two: Pair) -> None:
    comparison = compare_all([*two])[0]
    assert {r.configuration for r in comparison.costs} == {
        "opal",
        "dmcrypt-aes128",
        "dmcrypt-aes256",
    }
    for cost in comparison.costs:
        assert cost.cost_a is not None and cost.cost_b is not None
        assert cost.ratio == pytest.approx(cost.cost_b / cost.cost_a)
        # No narrower than what two nights of one machine differ by.
        assert known(cost.high) / known(cost.low) > math.exp(2 * 1.96 * math.sqrt(2) * NIGHT_SD)


def test_a_dearer_night_changes_joules_and_not_the_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, warmer in (("a", 1.0), ("b", 1.1)):
        idle_w = tuple(watts * warmer for watts in IDLE_W)
        monkeypatch.setattr("validation.synthetic.suite.IDLE_W", idle_w)
        write_suite(tmp_path / name, replace(SMALL, host=name, blocks=5, noise=0.001))
    comparison = compare_all([tmp_path / "a", tmp_path / "b"])[0]
    assert all(r.low is not None and r.low > 1.02 for r in comparison.joules)
    assert all(abs(r.ratio - 1) < 0.01 for r in comparison.costs)


def test_the_command_prints_and_writes_the_comparison(two: Pair, tmp_path: Path, fde: Fde) -> None:
    stdout = fde("compare", two[0], two[1], "--out", tmp_path).out
    assert "modelled" in stdout and "The unit is the night" in stdout
    # The answer comes before what differs, and that before the method.
    verdict = say("compare.answer.same", letter="B")
    printed = " ".join(stdout.split())
    places = [printed.index(text) for text in (verdict, "What else differs", "6.13.0-test")]
    assert places == sorted(places) and "blocks (4, then 3)" in printed
    page = (tmp_path / stdout.rpartition("page: ")[2].strip()).read_text(encoding="utf-8")
    for text in (stdout, without_own(page)):
        assert "NaN" not in text and "None" not in text and "nan" not in text
        assert "6.13.0-test" in text and "dm-crypt AES-256" in text
    assert "modelled" in page and "<script" not in without_own(page)


def test_suites_that_share_nothing_are_refused(two: Pair, tmp_path: Path, fde: Fde) -> None:
    write_suite(tmp_path / "c", replace(SMALL, host="third", workloads=("video",), blocks=1))
    stderr = fde("compare", two[0], tmp_path / "c", status=1).err
    assert "share no workload on the same configuration" in stderr
    assert "A has kernel_grep, sql on plain" in stderr and "B has video on plain" in stderr
    assert "Name two suites or more" in fde("compare", two[0], status=1).err
    assert "the same suite" in fde("compare", two[0], two[0], status=1).err
    assert "There is no suite folder" in fde("compare", two[0], tmp_path / "none", status=1).err


@pytest.fixture(scope="module")
def months(shared: Shared) -> list[Path]:
    """One suite in three months; in the last dm-crypt takes a tenth longer."""

    def make(root: Path) -> None:
        for i, month in enumerate(("03", "01", "02")):
            slower = {**SLOWER, "dmcrypt-aes256": SLOWER["dmcrypt-aes256"] * (1 if i else 1.1)}
            write_suite(root / month, replace(SMALL, host=month, seed=i, slower=slower))
            change_plan(root / month, created_wall=f"2026-{month}-01T00:00:00+00:00")

    root, _ = shared("months", make)
    return [root / month for month in ("01", "03", "02")]


def test_a_history_is_in_order_of_time_and_names_increases(
    months: list[Path], tmp_path: Path, fde: Fde
) -> None:
    history = compare_all(months)
    assert [pair.b.host for pair in history] == ["02", "03"]
    assert not history[0].increases
    rose = {(ratio.workload, ratio.configuration) for ratio in history[1].increases}
    assert rose == {("kernel_grep", "dmcrypt-aes256"), ("sql", "dmcrypt-aes256")}
    for ratio in history[1].overall:
        ratios = [r.ratio for r in history[1].joules if r.configuration == ratio.configuration]
        assert ratio.ratio == pytest.approx(math.prod(ratios) ** (1 / len(ratios)))
    options = ["--out", str(tmp_path), "--json"]
    stdout, stderr = fde("compare", *months, "--fail-on", "5", *options, status=1)
    document = json.loads(stdout)
    assert not document["ok"] and document["fail_on_percent"] == 5
    assert [pair["b"][-17:] for pair in document["pairs"]] == ["-20260101T000000Z"] * 2
    sentence = next(line for line in stderr.splitlines() if line.startswith("fde: "))
    assert "sql on dmcrypt-aes256 +1" in sentence and " [+" in sentence and "modelled" in sentence
    assert "opal" not in sentence
    page = Path(document["page"]).read_text(encoding="utf-8")
    assert "2026-03-01" in page and "Increase" not in page
    shown = compare_page.page(history)
    (columns,) = pieces(Columns, shown.head)
    verdicts = [block.verdict for block in columns.first if isinstance(block, Answer)]
    assert verdicts[0] == say("compare.answer.same", letter="B")
    assert say("compare.answer.more", letter="C", count="2", tested="8") in verdicts
    (picture,) = pieces(Picture, columns.aside)
    assert "C: " in picture.alt and words.change_in(history[1].overall[0]) in picture.alt
    marked = [
        cell
        for matrix in pieces(Matrix, shown.head)
        for _, cells in matrix.groups[0].rows
        for cell in cells
        if cell.text.endswith("▲")
    ]
    assert len(marked) == len(history[1].increases)
    fde("compare", *months, "--fail-on", "20", *options)
    fde("compare", *months, *options)


@pytest.mark.parametrize("changed", [("sql",), ("kernel_grep", "sql")])
def test_other_work_is_reported_and_does_not_count_as_an_increase(
    two: Pair, tmp_path: Path, fde: Fde, changed: tuple[str, ...]
) -> None:
    slower = {name: 2 * factor for name, factor in SLOWER.items()}
    write_suite(tmp_path / "c", replace(SMALL, host="third", slower=slower))
    names = ("kernel_grep", "sql")
    assert {r.workload for r in compare_all([two[0], tmp_path / "c"])[0].increases} == {*names}
    parameters = [{"name": n, "parameters": {"rows": 9} if n in changed else {}} for n in names]
    change_plan(tmp_path / "c", workloads=parameters)
    comparison = compare_all([two[0], tmp_path / "c"])[0]
    assert comparison.other_work == [*changed]
    unchanged = set(names) - set(changed)
    assert {r.workload for r in comparison.increases} == unchanged
    assert (
        bool(comparison.overall) == bool(compare_page.failures([comparison], 0)) == bool(unchanged)
    )
    printed = " ".join(fde("compare", two[0], tmp_path / "c", "--out", tmp_path).out.split())
    works = ", ".join(map(words.name_of, changed))
    assert say("compare.other-work", works=works, letter="B") in printed


def nights(count: int, night_sd: float, seed: int, last: float = 0.0) -> list[tuple[Suite, Any]]:
    """Suites of one machine, each night with an effect of its own; the last is dearer by `last`."""
    generator = np.random.default_rng(seed)
    folders = []
    for number in range(count):
        night = generator.normal(0, night_sd) + last * (number == count - 1)
        rows = [
            {"workload": w, "configuration": c, "block": b, "run_id": f"{number}-{w}-{c}-{b}"}
            | {"energy_j": 1000 * math.exp(night + generator.normal(0, 0.005))}
            for w in ("sql", "video")
            for c in ("plain", "dmcrypt")
            for b in range(8)
        ]
        plan = {"suite_id": f"n{number}", "created_wall": f"2026-01-{number + 1:02d}T00:00:00"}
        kinds = {"plain": "plain", "dmcrypt": "dmcrypt"}
        folders.append((suite_of(kinds, ["sql", "video"], (), (), **plan), energy_of(rows)))
    return folders


def test_a_second_meter_of_a_channel_changes_no_ratio() -> None:
    """Night B lacks it, and it reads 3 % high."""
    (a, first), (b, second) = nights(2, 0.0, seed=4)
    high = first.with_columns(source=pl.lit("second"), energy_j=pl.col("energy_j") * 1.03)
    (comparison,) = compare_read([(a, pl.concat([first, high])), (b, second)])
    (alone,) = compare_read([(a, first), (b, second)])
    assert [r.ratio for r in comparison.joules] == [r.ratio for r in alone.joules]


def test_one_block_has_no_interval_and_fail_on_exits_with_status_3(
    two: Pair, tmp_path: Path, fde: Fde
) -> None:
    write_suite(tmp_path / "c", replace(SMALL, host="third", blocks=1))
    argv = ["compare", str(two[0]), str(tmp_path / "c"), "--out", str(tmp_path)]
    untested = fde(*argv, "--fail-on", "5", status=3)
    assert "no interval: too few blocks" in untested.out and "nan" not in untested.out
    assert "tested: 0 ratios" in untested.out and untested.err.count("\n") == 1
    assert (
        "tested: 8 ratios of joules in 1 pairs"
        in fde("compare", *two, "--out", tmp_path, "--fail-on", "50").out
    )
