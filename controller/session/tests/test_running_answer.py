"""The changes so far: which records are stored, and when they are computed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.stats.results import results
from contract import plan as plans
from contract.status import RunningAnswer
from controller.session.running_answer import RunningAnswers, compute
from controller.tests.examples import journal, plan, suite_folder
from validation.synthetic.suite import Options, write_suite

DOCUMENT = plan(blocks=2)
PLAN = plans.parse(DOCUMENT)
FIRST, SECOND = [[r.run_id for r in PLAN.runs if r.block == number] for number in (0, 1)]
DONE = [(9.0, "finished", run_id) for run_id in FIRST]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return suite_folder(tmp_path, DOCUMENT)


@pytest.fixture
def answers(folder: Path) -> Iterator[RunningAnswers]:
    with RunningAnswers(PLAN, folder) as answers:
        yield answers
    assert not (folder / "status" / "results").exists()


def stored_runs(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("status/results/runs/*/run.json"))


def test_only_records_of_planned_runs_are_stored(answers: RunningAnswers, folder: Path) -> None:
    answers.record(json.dumps({"run_id": FIRST[0], "phases": []}))
    strange: list[object] = ["../../plan", "another", None, [], {}, 1]
    for run_id in strange:
        answers.record(json.dumps({"run_id": run_id, "phases": []}))
    answers.record(json.dumps({"run_id": FIRST[1], "state": "of a later version's journal"}))
    answers.record('{"run_id": "cut o')
    assert stored_runs(folder) == [FIRST[0]]


def test_a_resumed_session_starts_with_the_fetched_records(folder: Path) -> None:
    leftover = folder / "status" / "results" / "runs" / FIRST[1]
    leftover.mkdir(parents=True)
    (leftover / "run.json").write_text("of a session that was killed", encoding="utf-8")
    fetched = folder / "runs" / FIRST[0]
    fetched.mkdir(parents=True)
    (fetched / "run.json").write_text(json.dumps({"run_id": FIRST[0], "phases": []}), "utf-8")
    with RunningAnswers(PLAN, folder):
        assert stored_runs(folder) == [FIRST[0]]


def wait_for(answers: RunningAnswers) -> RunningAnswer | None:
    """Poll until the process has ended."""
    answer = answers.poll()
    while answers._process is not None:
        time.sleep(0.05)
        answer = answers.poll()
    return answer


def test_an_answer_is_computed_once_per_complete_block(answers: RunningAnswers) -> None:
    """Without a meter no answer has a ratio."""
    answers.entry(journal(DONE[:-1]))
    assert answers.poll() is None and answers._process is None
    answers.entry(journal([*DONE, (9.0, "switching", SECOND[0])]))
    assert answers.poll() is None, "it has only begun"
    assert wait_for(answers) == RunningAnswer(1, "modelled", {})
    answers.entry(journal([*DONE, (9.0, "switching", SECOND[3])]))
    assert answers.poll() is None and answers._process is None, "the block was answered"


def test_a_failed_computation_is_no_answer(answers: RunningAnswers, folder: Path) -> None:
    (folder / "plan.json").write_text("{}", encoding="utf-8")
    answers.entry(journal([*DONE, (9.0, "switching", SECOND[0])]))
    assert wait_for(answers) is None and answers.poll() is None


def test_the_answer_has_the_reports_ratios(tmp_path: Path) -> None:
    """Runs and journal are below status/results, as before they are fetched."""
    folder = tmp_path / "suite"
    results_folder = folder / "status" / "results"
    write_suite(folder, Options(blocks=2, interval_ms=100, workloads=("sql", "idle")))
    reported = results(folder)
    results_folder.mkdir(parents=True)
    for name in ("runs", "journal.jsonl"):
        (folder / name).rename(results_folder / name)
    (folder / "manifest.json").unlink()
    for path in (folder / "meters").glob("*/samples.parquet"):
        path.unlink()
    answer = compute(folder, 2)
    expected = {reported.suite.label(c.other): c for c in reported.contrasts if c.base == "plain"}
    assert (answer.blocks, answer.origin) == (2, "modelled")
    assert answer.ratios.keys() == expected.keys()
    for label, contrast in expected.items():
        assert contrast.comparison
        assert answer.ratios[label] == pytest.approx(contrast.comparison.ratio, rel=1e-9)
