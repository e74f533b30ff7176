"""The answer of a suite that still runs, from a synthetic one cut off as it stood after a block."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.stats.results import Results
from analysis.stats.running import running_answer
from analysis.suite.records import Suite, VoidRun
from analysis.suite.suite_folder import read
from analysis.tests.known import replanned
from contract.status import RunningAnswer
from validation.synthetic.suite import Truth


def after(suite: Suite, blocks: int, *void: str) -> RunningAnswer:
    """Return the answer once so many blocks were made, of which these runs are void."""
    finished = [run for run in suite.runs if run.block < blocks]
    return running_answer(
        replace(suite, runs=tuple(run for run in finished if run.run_id not in void)), blocks
    )


def run_of(suite: Suite, block: int, configuration: str, workload: str) -> str:
    return next(
        run.run_id
        for run in suite.runs
        if (run.block, run.configuration, run.workload) == (block, configuration, workload)
    )


def test_after_the_last_block_it_is_the_reports(derived: Results) -> None:
    answer = running_answer(derived.suite, 3)
    against_plain = [c for c in derived.contrasts if c.base == "plain"]
    assert [c.configuration for c in answer.contrasts] == [c.other for c in against_plain]
    for mine, reported in zip(answer.contrasts, against_plain, strict=True):
        c = reported.comparison
        assert c is not None
        assert mine.ratio == c.ratio
        # The report adds what of the meter's own error does not cancel.
        assert (mine.low, mine.high) == pytest.approx((c.low, c.high), rel=1e-5)
        assert (mine.blocks, mine.base, mine.label) == (
            *(c.n, reported.base, derived.suite.label(reported.other)),
        )
    assert (answer.blocks, answer.component, answer.origin) == (3, "system", "modelled")
    assert answer.left_out == ()


def test_before_two_blocks_there_is_no_interval_and_runs_of_the_next_block_do_not_count(
    derived: Results,
) -> None:
    first, second = after(derived.suite, 1), after(derived.suite, 2)
    assert [(c.blocks, c.low, c.high) for c in first.contrasts] == [(1, None, None)] * 3
    assert [c.blocks for c in second.contrasts] == [2] * 3
    assert all(c.low and c.high and c.low < c.ratio < c.high for c in second.contrasts)
    assert running_answer(derived.suite, 1) == first
    aes = next(c for c in first.contrasts if c.configuration == "dmcrypt-aes128")
    assert aes.ratio > 1.1, "the suite was made so"


def test_where_a_run_of_the_block_is_void_the_contrast_is_left_out(derived: Results) -> None:
    suite = derived.suite
    void = run_of(suite, 1, "opal", "sql")
    answer = after(suite, 2, void)
    assert [(left.configuration, left.cause) for left in answer.left_out] == [("opal", "void")]
    assert [c.configuration for c in answer.contrasts] == ["dmcrypt-aes128", "dmcrypt-aes256"]
    later = after(suite, 3, void)
    assert {c.configuration: c.blocks for c in later.contrasts} == {
        **{"opal": 2, "dmcrypt-aes128": 3, "dmcrypt-aes256": 3}
    }
    baseline = after(suite, 2, run_of(suite, 1, "plain", "video"))
    assert baseline.contrasts == () and {left.cause for left in baseline.left_out} == {"void"}
    idle = after(suite, 2, run_of(suite, 1, "opal", "idle"))
    assert idle == after(suite, 2), "idling is no part of it"


def test_a_block_that_runs_a_part_of_the_suite_does_not_count_and_leaves_nothing_out(
    derived: Results,
) -> None:
    suite = derived.suite
    extra = run_of(suite, 2, "opal", "sql")
    others = tuple(run for run in suite.plan.runs if run.run_id != extra)
    answer = after(replanned(suite, runs=others), 3, extra)
    assert answer.left_out == () and [c.blocks for c in answer.contrasts] == [2, 3, 3]
    assert answer.contrasts[0] == after(suite, 2).contrasts[0]


def test_a_workload_that_was_skipped_is_left_out_of_both_sides(derived: Results) -> None:
    suite = derived.suite
    video = [run for run in suite.runs if run.workload == "video" and run.configuration == "opal"]
    skipped = tuple(VoidRun(r.run_id, "opal", "video", r.block, "no player") for r in video)
    runs = tuple(run for run in suite.runs if run not in video)
    answer = running_answer(replace(suite, runs=runs, skipped=skipped), 3)
    assert answer.left_out == () and [c.blocks for c in answer.contrasts] == [3, 3, 3]
    running = running_answer(suite, 3)
    assert answer.contrasts[1:] == running.contrasts[1:]
    assert answer.contrasts[0].ratio != running.contrasts[0].ratio


def test_without_a_meter_before_the_whole_machine_there_is_no_answer(derived: Results) -> None:
    answer = running_answer(replace(derived.suite, meters=()), 3)
    assert answer.contrasts == ()
    assert {left.cause for left in answer.left_out} == {"no-meter"}


def test_a_gap_in_the_meters_records_leaves_the_contrast_out(derived: Results) -> None:
    """A meter whose records end before the last block does."""
    suite = derived.suite
    (meter,) = suite.meters
    last = run_of(suite, 2, "plain", "sql")
    run = next(r for r in suite.runs if r.run_id == last)
    end_ns = derived.clock.to_controller_ns(run.boot_id, run.t_start_ns)
    assert end_ns is not None
    cut = replace(suite, meters=(replace(meter, samples=meter.samples.during(0, end_ns)),))
    answer = running_answer(cut, 3)
    assert {left.cause for left in answer.left_out} == {"no-figure"} and not answer.contrasts


@pytest.fixture
def unfetched(whole_suite: tuple[Path, Truth], tmp_path: Path) -> Path:
    """Return a session's folder after two blocks, runs and journal below status/results."""
    folder = tmp_path / "suite"
    results = folder / "status" / "results"
    shutil.copytree(whole_suite[0], folder)
    results.mkdir(parents=True)
    (folder / "runs").rename(results / "runs")
    (folder / "manifest.json").unlink()
    lines = (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "journal.jsonl").unlink()
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    third = next(run["run_id"] for run in plan["runs"] if run["block"] == 2)
    begun = next(n for n, line in enumerate(lines) if third in line)
    (results / "journal.jsonl").write_text("".join(lines[:begun]), encoding="utf-8")
    for path in (folder / "meters").glob("*/samples.parquet"):
        path.unlink()
    return folder


def test_results_that_are_not_fetched_yet_are_read_from_where_they_are(
    unfetched: Path, derived: Results
) -> None:
    suite = read(unfetched, raw=True, results=unfetched / "status" / "results")
    assert len(suite.runs) == 48
    answer = running_answer(suite, 2)
    expected = after(derived.suite, 2)
    assert [c.ratio for c in answer.contrasts] == pytest.approx(
        [c.ratio for c in expected.contrasts], rel=1e-9
    )
