"""The agent is killed at every line of its journal, and continues: nothing lost, nothing false."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.tests.suite_lab import Deadly, Lab, die, entries, is_complete, killed, sound
from contract import attempts, journal, plan
from contract.journal import Journal


def at(number: int, when: str) -> Deadly:
    """Die at the line with this number."""
    return lambda n, _line: when if n == number else None


LINES = 16  # of an undisturbed suite


@pytest.mark.parametrize("when", ["before", "half", "after"])
def test_a_kill_at_any_line_loses_and_falsifies_nothing(
    one_block: Lab, when: str, tmp_path: Path
) -> None:
    reached = set()
    every = {run.run_id for run in one_block.plan.runs}
    for number in range(LINES):
        one_block.folder = tmp_path / f"suite-{number}"
        one_block.folder.mkdir()
        assert killed(one_block, at(number, when))
        written = entries(one_block)
        assert len(written) == number + (when == "after")
        before = sound(one_block)
        open_runs = [a.run_id for a in attempts.History(written).begun()]
        if when == "after":
            reached.add(written[-1].state)
        assert one_block.execute() == 0
        assert sound(one_block) == every
        later = entries(one_block)[len(written) :]
        assert not before & {entry.run_id for entry in later}
        void = [entry for entry in later if entry.state == "void"]
        assert [entry.run_id for entry in void] == open_runs
        assert all(entry.cause in journal.INTERRUPTIONS for entry in void)
        assert later[-1].state == "suite-finished"
    expected = {"suite-started", "switching", "running", "proving", "finished", "suite-finished"}
    assert reached == (expected if when == "after" else set())


def test_the_kills_cover_every_line_of_an_undisturbed_suite(one_block: Lab) -> None:
    assert not killed(one_block, lambda _n, _line: None)
    assert len(entries(one_block)) == LINES


def test_a_resumed_suite_survives_another_kill(one_block: Lab) -> None:
    # A line further at each start, so that also the lines of continuing are its last.
    for number in range(12):
        killed(one_block, at(number, "after"))
    assert one_block.execute() == 0
    assert is_complete(one_block)


def test_a_run_that_kills_the_agent_each_time_is_given_up(one_block: Lab) -> None:
    deadly_id = one_block.plan.runs[1].run_id

    def deadly(_number: int, line: dict[str, Any]) -> str | None:
        return "after" if (line["state"], line["run_id"]) == ("running", deadly_id) else None

    for _ in range(attempts.MOST_IN_ONE_BOOT):
        assert killed(one_block, deadly)
    assert not killed(one_block, deadly)
    assert sound(one_block) == {run.run_id for run in one_block.plan.runs} - {deadly_id}
    # Another boot is another chance, and so is whoever starts the suite again.
    assert one_block.execute() == 0
    assert is_complete(one_block)


def test_a_kill_in_the_middle_of_a_workload(one_block: Lab) -> None:
    one_block.acts["file_io"] = lambda _context: die()
    assert killed(one_block, lambda _n, _line: None)
    one_block.acts.clear()
    assert one_block.execute() == 0
    assert is_complete(one_block)
    void = one_block.voids()
    assert [entry.run_id for entry in void] == [one_block.plan.runs[1].run_id]
    assert (void[0].cause, void[0].facts) == (journal.AGENT_KILLED, {"during": "running"})


def test_steps_of_a_boot_are_done_once_over_many_kills(
    one_block: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.provenance.gather", lambda _spec: {"boot_id": journal.boot_id()})
    one_block.plan = replace(one_block.plan, watermark=plan.Watermark(chip_s=0.002, pad_s=0.0))
    for number in (4, 5, 8):
        assert killed(one_block, at(number, "after"))
    assert one_block.execute() == 0
    assert _provenance(one_block) == ["after.json", "before.json"]
    assert _watermarks(one_block) == ["start", "end"]
    # A boot later it is another machine state, and another clock.
    monkeypatch.setattr("contract.journal.boot_id", lambda: "another")
    monkeypatch.setattr("agent.marks.boot_id", lambda: "another")
    writer = Journal(one_block.folder / "journal.jsonl")
    writer.append("void", one_block.plan.runs[0].run_id, "the meter was silent", journal.REPEAT)
    writer.close()
    assert one_block.execute() == 0
    assert _provenance(one_block) == ["after.json", "before-resumed-1.json", "before.json"]
    assert _watermarks(one_block) == ["start", "end", "start", "end"]


def _provenance(one_block: Lab) -> list[str]:
    return sorted(path.name for path in (one_block.folder / "provenance").iterdir())


def _watermarks(one_block: Lab) -> list[str]:
    lines = (one_block.folder / "watermark.jsonl").read_text().splitlines()
    return [json.loads(line)["when"] for line in lines]
