"""What the page says and how: the matrix, the words, the index, and what is read aloud."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from analysis.report import answer, first_page, steadiness_section, tables, view, words
from analysis.report.sections import Report
from analysis.report.view import Matrix, Picture
from analysis.stats.comparison import Comparison, judged
from analysis.stats.results import Results, results
from analysis.stats.stats import Estimate
from analysis.suite.records import Run
from analysis.tests.known import analysed, known, replanned
from analysis.tests.pages import UNWANTED, Parsed, pieces, text_of, whole_page
from contract.documents import CipherLayer, Proof
from contract.plan import DeclaredAnalysis, WorkloadEntry
from validation.synthetic.suite import SLOWER, STACKS, Options, write_suite


def compared(ratio: float, low: float | None, high: float | None) -> Comparison:
    if low is None or high is None:
        return Comparison(1, ratio, 0.02)
    error = math.log(high / low) / 2 / float(stats.t.ppf(0.975, 19))
    return judged([Comparison(20, ratio, 0.02, error, 19.0)])[0]


def shown(derived: Results) -> Matrix:
    (matrix,) = (block for block in tables.matrix(derived) if isinstance(block, Matrix))
    return matrix


def test_the_first_line_names_the_kernels_drivers_of_aes(derived: Results) -> None:
    def drivers(run: Run, *names: str | None) -> Run:
        return replace(run, proof=Proof(ok=True, layers=tuple(map(CipherLayer, names))))

    used = ("xts-aes-lib", "xts-aes-vaes-avx2", None, "xts(ecb-serpent-avx2)")
    runs = tuple(drivers(run, *used) for run in derived.suite.runs)
    suite = replace(derived.suite, runs=runs)
    (facts, *_) = pieces(view.Paragraph, Report(replace(derived, suite=suite)).head())
    assert isinstance(facts, view.Paragraph)
    assert facts.text.endswith("AES: xts-aes-lib, xts-aes-vaes-avx2")
    assert "AES:" not in text_of(Report(derived).head())


def test_the_page_can_be_read_aloud(report_html: str, page: Parsed) -> None:
    assert page.open == []
    assert report_html.count('<td class="cell') == (1 + 6) * 3
    assert '<span class="tag">modelled</span>' in report_html
    assert page.headings[:2] == [1, 2]
    assert page.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(page.headings))
    assert all(page.pictures)
    assert all(page.tables)
    assert set(page.scopes) == {"col", "row"}
    assert len(page.anchors) == len(set(page.anchors))
    assert {link.removeprefix("#") for link in page.links} <= set(page.anchors)
    assert {"#figures", "#money", "#workload-sql", "#provenance"} <= set(page.links)


def test_the_matrix_has_a_cell_for_each_workload_and_configuration(derived: Results) -> None:
    page = text_of(tables.matrix(derived))
    (rows,) = (group.rows for group in shown(derived).groups)
    assert [len(cells) for _, cells in rows] == [3] * (1 + 6)
    assert "All but idle" in page
    for key, c in derived.family.versus.items():
        if key[3] == "system":
            change, _, interval = words.change_in(c).partition(" ")
            assert change in page and words.sign(c.verdict, c.ratio, c.both) in page
            assert interval.rpartition("[")[2] in page
    assert "At most 5 % for any false sign" in page


def test_a_matrix_of_many_configurations_stands_upright(wide: Results) -> None:
    matrix = shown(wide)
    (group,) = matrix.groups
    assert matrix.headers[0] == "Configuration"
    assert [len(cells) for _, cells in group.rows] == [2] * 16


def test_a_cell_without_runs_says_so(derived: Results) -> None:
    gone = (pl.col("workload") == "sql") & (pl.col("configuration") == "opal")
    page = text_of(tables.matrix(replace(derived, all_energy=derived.energy.filter(~gone))))
    assert page.count("no finished run on both sides") == 1


@pytest.mark.parametrize(
    ("comparison", "word", "sign", "sentence"),
    [
        (compared(1.2, 1.1, 1.3), "significant increase", "▲", "significant increase"),
        (compared(0.8, 0.7, 0.9), "significant decrease", "▼", "significant decrease"),
        (compared(1.001, 0.99, 1.01), "equivalent", "≈", "equivalent within ±2 %"),
        (compared(1.01, 1.005, 1.015), "equivalent (significant increase)", "≈▲", "(significant i"),
        (compared(0.99, 0.985, 0.995), "equivalent (significant decrease)", "≈▼", "(significant d"),
        (compared(1.1, 0.9, 1.3), "inconclusive", "?", "neither a difference nor"),
        (compared(1.1, None, None), "inconclusive", "?", "so few blocks"),
    ],
)
def test_every_verdict_has_its_word_its_sign_and_its_sentence(
    comparison: Comparison, word: str, sign: str, sentence: str
) -> None:
    c = comparison
    assert words.verdict(c.verdict, c.ratio, c.both) == word
    assert words.sign(c.verdict, c.ratio, c.both) == sign
    assert sentence in answer.judgement(c)


def test_what_only_the_family_takes_back_is_said_to_be_so() -> None:
    alone = compared(1.05, 1.01, 1.09)
    c = judged([alone] * 5)[2]
    assert (alone.verdict, c.verdict) == ("differs", "inconclusive")
    assert answer.judgement(c).endswith("is shown after correction for all comparisons")


def test_a_contrast_declared_the_other_way_round_is_turned(derived: Results) -> None:
    turned = replace(
        derived,
        suite=replanned(derived.suite, analysis=DeclaredAnalysis(contrasts=(("opal", "plain"),))),
    )
    usual, other = (answer.against_baseline(f, "opal") for f in (derived, turned))
    assert usual is not None
    assert other is not None
    assert known(other.comparison).ratio == pytest.approx(known(usual.comparison).ratio)
    assert known(other.comparison).low == pytest.approx(known(usual.comparison).low)
    assert known(other.comparison).high == pytest.approx(known(usual.comparison).high)
    assert (other.base, other.other) == ("plain", "opal")


def test_the_names_in_the_plan_do_not_matter(tmp_path: Path) -> None:
    stacks = {"bare": "plain", "inside": "opal", "outside": "dmcrypt-aes128"}
    with pytest.MonkeyPatch.context() as patch:
        for name, like in stacks.items():
            patch.setitem(STACKS, name, STACKS[like])
            patch.setitem(SLOWER, name, SLOWER[like])
        options = Options(configurations=tuple(stacks), workloads=("sql", "idle"), interval_ms=100)
        write_suite(tmp_path / "s", options)
    derived = results(tmp_path / "s")
    assert not UNWANTED.search(text_of(Report(derived).page()))
    lines = first_page.lines(derived, derived.suite.folder)
    costs = {line.code: line for line in lines if line.question == "cost"}
    assert costs["more"].facts["configuration"] == "outside"
    assert "unknown" not in costs
    (group,) = shown(derived).groups
    assert [len(cells) for _, cells in group.rows] == [2] * 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Estimate(3, 329.895179, 329.895179, 329.8951791), "329.90 ± <0.01"),
        (Estimate(3, 0.30006, 0.29983, 0.30029), "0.3001 ± 0.0002"),
        (Estimate(3, -1e-9, -2e-9, 1e-9), "0.0000 ± <0.0001"),
        (Estimate(3, 12.345, 11.0, 13.69), "12.3 ± 1.3"),
        (Estimate(1, 12.345, None, None), "12.3"),
        (Estimate(3, 120000.0, 119000.0, 121000.0), "120\u202f000 ± 1\u202f000"),
    ],
)
def test_digits_end_where_nobody_reads_on(value: Estimate, text: str) -> None:
    assert words.plus_minus(value) == text


def test_changes_have_the_digits_of_their_interval() -> None:
    assert words.change_of(1.0421, 1.0131, 1.0711) == "+4.2 % [+1.3, +7.1]"
    assert words.change_of(1.0421, 1.0401, 1.0441) == "+4.21 % [+4.01, +4.41]"
    assert words.change_of(0.9, 0.5, 1.5) == "−10 % [−50, +50]"
    assert words.change_of(1.1, None, None) == "+10.0 %"
    assert words.change_of(None, None, None) == words.NOTHING
    assert words.percent(1.0) == "±0.0 %"
    assert words.p_value(0.0004) == "< 0.001"
    assert words.p_value(0.0123) == "0.012"
    assert words.p_value(0.3) == "0.30"


def test_a_synthetic_suite_says_so_at_the_top(tmp_path: Path) -> None:
    options = Options(blocks=2, interval_ms=100, workloads=("idle",), origin="synthetic")
    derived = analysed(tmp_path / "s", options)
    page = Report(derived).page()
    head = text_of(page.head)
    assert "no machine was measured" in head
    assert {picture.origin for picture in pieces(Picture, page)} == {"synthetic"}


@pytest.mark.usefixtures("no_svg")
def test_seventeen_configurations_fill_no_page_with_nonsense(wide: Results) -> None:
    text = whole_page(wide)
    page = Parsed(text)
    assert page.open == []
    assert not UNWANTED.search(page.text)
    assert len(text) < 500_000


def test_a_second_level_is_named_on_the_first_screen_and_ringed(derived: Results) -> None:
    """38, 37, 43 and 15 J of four runs, as a lab suite had of SQL; the others scatter by 7 %."""
    factors = {("plain", 3): 0.4, ("plain", 2): 1.1}
    generator = np.random.default_rng(3)
    rows = derived.energy.filter(workload="sql", component="system", phase="all", block=0)
    every = pl.concat(
        rows.with_columns(
            block=pl.lit(b, pl.Int64()),
            energy_j=39
            * pl.Series(generator.lognormal(0, 0.05, len(rows)))
            * pl.Series([factors.get((c, b), 1.0) for c in rows["configuration"]]),
        )
        for b in range(4)
    )
    sql = replanned(derived.suite, workloads=(WorkloadEntry("sql", {}),))
    two = replace(derived, suite=sql, all_energy=every)
    (cell,) = (cell for cell in two.family.levels if cell.levels)
    assert (cell.workload, cell.configuration, cell.blocks) == ("sql", "plain", frozenset({3}))
    assert [level.runs for level in cell.levels] == [3, 1]
    assert steadiness_section.flagged(two, "sql") == {(3, "plain")}
    assert steadiness_section.flagged(two, "video") == set()
    assert all("two-levels" in c.doubts for c in two.family.versus.values())
    assert "Two levels in sql on plain: 3 of 4 runs" in text_of(Report(two).answer())
    assert not any(cell.levels for cell in derived.family.levels)
