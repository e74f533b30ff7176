"""Verdict words appear only once all planned blocks of a comparison are complete."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import polars as pl
import pytest

from analysis.report import first_page, words
from analysis.report.sections import Report
from analysis.stats.comparison import Comparison, judged
from analysis.stats.family import Family
from analysis.stats.results import Results
from analysis.stats.summary import compare_in_blocks
from analysis.suite.records import Run, VoidRun
from analysis.tests.known import analysed, known, replanned
from analysis.tests.pages import text_of
from validation.synthetic.suite import Options

WORDS = ("significant", "equivalent", "inconclusive", "Not settled", "more energy")


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Results:
    options = Options(blocks=6, interval_ms=100, workloads=("sql", "video", "idle"))
    return analysed(tmp_path_factory.mktemp("complete") / "s", options)


def with_runs(complete: Results, runs: tuple[Run, ...], skipped: tuple[Run, ...] = ()) -> Results:
    """Return the results as if these runs only had finished, and those had been skipped."""
    kept = {run.run_id for run in runs}
    as_skipped = tuple(
        VoidRun(run.run_id, run.configuration, run.workload, run.block, "no player")
        for run in skipped
    )
    suite = replace(complete.suite, runs=runs, skipped=as_skipped)
    energy = complete.all_energy.filter(pl.col("run_id").is_in(kept))
    return Results(suite, complete.clock, energy, ())


def after(complete: Results, blocks: int) -> Results:
    """Return the results once so many blocks were complete."""
    return with_runs(complete, tuple(run for run in complete.suite.runs if run.block < blocks))


def every(family: Family) -> list[Comparison]:
    compared = [c.comparison for c in family.contrasts] + [a.comparison for a in family.answers]
    rows = [c for key, c in family.versus.items() if key[3] == family.component]
    return [*filter(None, compared), *rows]


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_before_the_planned_end_there_are_intervals_without_words(
    complete: Results, blocks: int
) -> None:
    early = after(complete, blocks)
    assert {c.verdict for c in every(early.family)} == {"incomplete"}
    assert set(early.summary["verdict"]) <= {"", "incomplete"}
    alone = known(early.contrasts[0].comparison)
    assert (alone.low is None) == (blocks == 1) and alone.n == blocks
    lines = first_page.lines(early, early.suite.folder)
    shown = "\n".join(f"{line.verdict}{line.reason}" for line in lines)
    assert f"Not complete: {blocks} of 6 blocks" in shown
    assert f"Not complete: {blocks} of 6 blocks" in text_of(Report(early).answer())
    assert not any(word in shown for word in WORDS)
    assert [line.code for line in lines if line.question == "payback"] == ["unknown"]


def test_at_the_planned_end_there_are_words(complete: Results) -> None:
    assert complete.suite.blocks_done == "6 of 6 blocks" and not complete.suite.unfinished
    assert "incomplete" not in {c.verdict for c in every(complete.family)}
    soft = next(c for c in complete.contrasts if c.other == "dmcrypt-aes256")
    assert known(soft.comparison).verdict == "differs"
    assert "Not complete" not in text_of(Report(complete).answer())


def test_a_run_that_is_missing_withholds_the_words_of_what_rests_on_it(complete: Results) -> None:
    lost = ("sql", "opal", 5)
    runs = tuple(
        run for run in complete.suite.runs if (run.workload, run.configuration, run.block) != lost
    )
    early = with_runs(complete, runs)
    assert early.suite.blocks_done == "5 of 6 blocks"
    for contrast in early.contrasts:
        open_ = "opal" in (contrast.base, contrast.other)
        c = known(contrast.comparison)
        assert (c.verdict == "incomplete") == open_ and c.n == 6 - open_
    for (workload, name, *_), c in early.family.versus.items():
        assert (c.verdict == "incomplete") == ((workload, name) == ("sql", "opal"))


def test_an_incomplete_comparison_leaves_the_others_no_more_than_at_the_end(
    complete: Results,
) -> None:
    comparisons = every(complete.family)
    for number in range(len(comparisons)):
        family = [replace(c, complete=place != number) for place, c in enumerate(comparisons)]
        for early, late in zip(judged(family), judged(comparisons), strict=True):
            assert known(early.p_adjusted) >= known(late.p_adjusted)


def test_a_run_that_was_skipped_is_not_waited_for(complete: Results) -> None:
    skipped = tuple(
        run for run in complete.suite.runs if (run.workload, run.configuration) == ("video", "opal")
    )
    rest = tuple(run for run in complete.suite.runs if run not in skipped)
    results = with_runs(complete, rest, skipped)
    assert results.suite.blocks_done == "6 of 6 blocks"
    assert "incomplete" not in {c.verdict for c in every(results.family)}


def test_a_repeat_within_a_block_is_waited_for(complete: Results) -> None:
    run = next(run for run in complete.suite.plan.runs if (run.workload, run.block) == ("sql", 5))
    again = replace(run, run_id=f"{run.run_id}-2", index=len(complete.suite.plan.runs))
    suite = replanned(complete.suite, runs=(*complete.suite.plan.runs, again))
    assert suite.unfinished == (again,) and suite.blocks_done == "5 of 6 blocks"


def test_a_block_counts_where_every_workload_has_both_sides(complete: Results) -> None:
    joules = {block: 100.0 + block for block in range(6)}
    more = {block: 1.1 * value for block, value in joules.items()}
    holes = {block: value for block, value in more.items() if block not in (1, 4)}
    c = known(compare_in_blocks(complete.suite, [(joules, more), (joules, holes)]))
    assert c.n == 4 and c.ratio == pytest.approx(1.1)
    assert compare_in_blocks(complete.suite, [(joules, more), (joules, {})]) is None
    assert compare_in_blocks(complete.suite, [(joules, {**more, 2: 0.0})]) is None


def test_the_words_of_an_incomplete_comparison_name_no_verdict() -> None:
    comparisons = product((1.0, 1.2), (0.001, 0.2))
    for ratio, error in comparisons:
        (c,) = judged([Comparison(8, ratio, 0.02, error, 7.0, complete=False)])
        assert words.verdict_of(c) == "not complete"
        assert words.sign(c.verdict, c.ratio, c.both) == ""
        assert not c.contradicted and not c.both


def test_the_report_states_it_as_a_reservation(complete: Results) -> None:
    assert (
        "Not complete: 3 of 6 blocks. Verdicts are given once all planned blocks are complete."
    ) in after(complete, 3).reservations
