"""The answer so far: what is kept of the runs' records, and when it is computed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract import plan as plans
from controller.session import running_answer
from controller.session.running_answer import RunningAnswers
from controller.tests.examples import journal, plan

DOCUMENT = plan(blocks=2)
PLAN = plans.parse(DOCUMENT)
FIRST, SECOND = [[r.run_id for r in PLAN.runs if r.block == number] for number in (0, 1)]
DONE = [(9.0, "finished", run_id) for run_id in FIRST]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_answer, "LAST_LIMIT_S", 600.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plan.json").write_text(json.dumps(DOCUMENT), encoding="utf-8")
    return tmp_path


@pytest.fixture
def answers(folder: Path) -> Iterator[RunningAnswers]:
    with RunningAnswers(PLAN, folder) as answers:
        yield answers
    assert not (folder / "status" / "results").exists()


def kept(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("status/results/runs/*/run.json"))


def test_only_records_of_the_plans_runs_are_kept(answers: RunningAnswers, folder: Path) -> None:
    answers.record(json.dumps({"run_id": FIRST[0], "phases": []}))
    strange: list[object] = ["../../plan", "another", None, [], {}, 1]
    for run_id in strange:
        answers.record(json.dumps({"run_id": run_id, "phases": []}))
    answers.record(json.dumps({"run_id": FIRST[1], "state": "of a later version's journal"}))
    answers.record('{"run_id": "cut o')
    assert kept(folder) == [FIRST[0]]


def test_a_session_that_continues_begins_with_what_was_fetched(folder: Path) -> None:
    left = folder / "status" / "results" / "runs" / FIRST[1]
    left.mkdir(parents=True)
    (left / "run.json").write_text("of a session that was killed", encoding="utf-8")
    fetched = folder / "runs" / FIRST[0]
    fetched.mkdir(parents=True)
    (fetched / "run.json").write_text(json.dumps({"run_id": FIRST[0], "phases": []}), "utf-8")
    with RunningAnswers(PLAN, folder):
        assert kept(folder) == [FIRST[0]]


def test_it_is_computed_once_a_block_is_complete(answers: RunningAnswers) -> None:
    """Without a meter no answer has a ratio; that it says so shows that it was computed."""
    answers.entry(journal(DONE[:-1]))
    assert answers.last() is None
    answers.entry(journal([*DONE, (9.0, "switching", SECOND[0])]))
    assert answers.poll() is None, "it has only begun"
    answer = answers.poll()
    while answer is None:
        time.sleep(0.05)
        answer = answers.poll()
    assert answer.blocks == 1 and answer.contrasts == ()
    assert {one.cause for one in answer.left_out} == {"no-meter"}
    answers.entry(journal([*DONE, (9.0, "switching", SECOND[3])]))
    assert answers.poll() is answers.last() is None, "the block was answered"
    everything = [*DONE, *((9.0, "finished", run_id) for run_id in SECOND)]
    answers.entry(journal([*everything, (9.0, "suite-finished", "")]))
    last = answers.last()
    assert last and last.blocks == 2


def test_what_cannot_be_computed_is_no_answer_and_ends_nothing(
    answers: RunningAnswers, folder: Path
) -> None:
    (folder / "plan.json").write_text("{}", encoding="utf-8")
    answers.entry(journal([*DONE, (9.0, "switching", SECOND[0])]))
    assert answers.last() is None and answers.poll() is None
