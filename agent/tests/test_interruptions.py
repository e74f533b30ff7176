"""The agent is killed at every line of its journal, and continues: nothing lost, nothing false."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.tests.suite_lab import Deadly, Lab, die, entries, killed, sound
from contract import attempts, journal, plan
from contract.journal import Journal
from workloads.base import Context


@pytest.fixture
def lab(one_block: Lab) -> Lab:
    return one_block


def at(number: int, when: str) -> Deadly:
    """Die at the line with this number."""
    return lambda n, _line: when if n == number else None


LINES = 16  # of an undisturbed suite


@pytest.mark.parametrize("when", ["before", "half", "after"])
def test_killed_at_every_line_nothing_is_lost_and_nothing_false(
    lab: Lab, when: str, tmp_path: Path
) -> None:
    reached = set()
    every = {run.run_id for run in lab.plan.runs}
    for number in range(LINES):
        lab.folder = tmp_path / f"suite-{number}"
        lab.folder.mkdir()
        assert killed(lab, at(number, when))
        written = entries(lab)
        assert len(written) == number + (when == "after")
        before = sound(lab)
        open_runs = [a.run_id for a in attempts.History(written).begun()]
        if when == "after":
            reached.add(written[-1].state)
        assert lab.execute() == 0
        assert sound(lab) == every
        later = entries(lab)[len(written) :]
        assert not before & {entry.run_id for entry in later}
        void = [entry for entry in later if entry.state == "void"]
        assert [entry.run_id for entry in void] == open_runs
        assert all(entry.cause in journal.INTERRUPTIONS for entry in void)
        assert later[-1].state == "suite-finished"
    expected = {"suite-started", "switching", "running", "proving", "finished", "suite-finished"}
    assert reached == (expected if when == "after" else set())


def test_an_undisturbed_suite_has_as_many_lines_as_are_tried(lab: Lab) -> None:
    assert not killed(lab, lambda _n, _line: None)
    assert len(entries(lab)) == LINES


def test_killed_while_it_goes_on_it_goes_on_once_more(lab: Lab) -> None:
    # A line further at each start, so that also the lines of continuing are its last.
    for number in range(12):
        killed(lab, at(number, "after"))
    assert lab.execute() == 0
    assert sound(lab) == {run.run_id for run in lab.plan.runs}


def test_a_run_that_kills_the_agent_each_time_is_given_up(lab: Lab) -> None:
    deadly_id = lab.plan.runs[1].run_id

    def deadly(_number: int, line: dict[str, Any]) -> str | None:
        return "after" if (line["state"], line["run_id"]) == ("running", deadly_id) else None

    for _ in range(attempts.MOST_IN_ONE_BOOT):
        assert killed(lab, deadly)
    assert not killed(lab, deadly)
    assert sound(lab) == {run.run_id for run in lab.plan.runs} - {deadly_id}
    # Another boot is another chance, and so is whoever starts the suite again.
    assert lab.execute() == 0
    assert sound(lab) == {run.run_id for run in lab.plan.runs}


def test_a_kill_between_a_whole_run_and_its_line_does_not_count(lab: Lab) -> None:
    first = lab.plan.runs[0].run_id

    def deadly(_number: int, line: dict[str, Any]) -> str | None:
        return "before" if (line["state"], line["run_id"]) == ("finished", first) else None

    assert killed(lab, deadly)
    record = (lab.folder / "runs" / first / "run.json").read_bytes()
    assert json.loads(record)["status"] == "finished"
    assert lab.execute() == 0
    aside = lab.folder / "runs" / f"{first}.void-1" / "run.json"
    assert aside.read_bytes() == record
    assert sound(lab) == {run.run_id for run in lab.plan.runs}
    states = [entry.state for entry in entries(lab) if entry.run_id == first]
    assert states[3:5] == ["void", "switching"]


def test_a_kill_in_the_middle_of_a_workload(lab: Lab) -> None:
    def act(_context: Context) -> None:
        die()

    lab.acts["file_io"] = act
    assert killed(lab, lambda _n, _line: None)
    lab.acts.clear()
    assert lab.execute() == 0
    assert sound(lab) == {run.run_id for run in lab.plan.runs}
    void = [entry for entry in entries(lab) if entry.state == "void"]
    assert [entry.run_id for entry in void] == [lab.plan.runs[1].run_id]
    assert (void[0].cause, void[0].facts) == (journal.AGENT_KILLED, {"during": "running"})


def test_what_belongs_to_a_boot_is_done_once_however_often_it_is_killed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.provenance.gather", lambda _spec: {"boot_id": journal.boot_id()})
    lab.plan = replace(lab.plan, watermark=plan.Watermark(chip_s=0.002, pad_s=0.0))
    for number in (4, 5, 8):
        assert killed(lab, at(number, "after"))
    assert lab.execute() == 0
    assert _provenance(lab) == ["after.json", "before.json"]
    assert _watermarks(lab) == ["start", "end"]
    # A boot later it is another machine state, and another clock.
    monkeypatch.setattr("contract.journal.boot_id", lambda: "another")
    monkeypatch.setattr("agent.marks.boot_id", lambda: "another")
    writer = Journal(lab.folder / "journal.jsonl")
    writer.append("void", lab.plan.runs[0].run_id, "the meter was silent", journal.REPEAT)
    writer.close()
    assert lab.execute() == 0
    assert _provenance(lab) == ["after.json", "before-resumed-1.json", "before.json"]
    assert _watermarks(lab) == ["start", "end", "start", "end"]


def _provenance(lab: Lab) -> list[str]:
    return sorted(path.name for path in (lab.folder / "provenance").iterdir())


def _watermarks(lab: Lab) -> list[str]:
    lines = (lab.folder / "watermark.jsonl").read_text().splitlines()
    return [json.loads(line)["when"] for line in lines]
