"""Watermarks of a session: both ends, also of one that continues, none where none is wanted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import marks
from agent.tests.suite_lab import Lab, failing
from contract import journal, plan

SHORT = plan.Watermark(chip_s=0.002, pad_s=0.0)


def lines(folder: Path) -> list[dict[str, Any]]:
    path = folder / "watermark.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_played_pattern_is_written(tmp_path: Path) -> None:
    marks.play(SHORT, tmp_path, "start")
    (line,) = lines(tmp_path)
    assert line["boot_id"] == journal.boot_id()
    assert (line["when"], line["chip_s"], line["pad_s"]) == ("start", 0.002, 0.0)
    assert line["cpus"] >= 1 and line["spread_ns"] >= 0 and line["received"] >= 0
    assert [high for _, high in line["edges"]] == [1, 0] * 8
    times = [t for t, _ in line["edges"]]
    assert times == sorted(times) and all(isinstance(t, int) for t in times)


def test_without_a_watermark_in_the_plan_nothing_happens(tmp_path: Path) -> None:
    marks.play(None, tmp_path, "start")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_pattern_is_recorded_and_the_suite_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {4095})
    marks.play(SHORT, tmp_path, "start")
    (line,) = lines(tmp_path)
    assert "ended early" in line["error"] and not line["edges"]


def test_a_torn_line_stays_one_line(tmp_path: Path) -> None:
    (tmp_path / "watermark.jsonl").write_text('{"boot_id": "b", "wh')
    marks.play(SHORT, tmp_path, "end")
    first, second = (tmp_path / "watermark.jsonl").read_text().splitlines()
    assert first == '{"boot_id": "b", "wh'
    assert json.loads(second)["when"] == "end"


@pytest.fixture
def short(suite: Lab) -> Lab:
    """Provide a suite whose plan has a watermark that is soon over."""
    suite.plan = replace(suite.plan, watermark=SHORT)
    return suite


def whens(lab: Lab) -> list[str]:
    return [line["when"] for line in lines(lab.folder)]


def test_a_session_has_one_before_its_first_run_and_one_after_its_last(short: Lab) -> None:
    assert short.execute() == 0
    assert whens(short) == ["start", "end"]
    runs = [json.loads(path.read_text()) for path in short.folder.glob("runs/*/run.json")]
    first, last = (line["edges"] for line in lines(short.folder))
    assert first[-1][0] < min(run["t_start_ns"] for run in runs)
    assert last[0][0] > max(run["t_end_ns"] for run in runs)


def test_a_resumed_session_has_its_own_watermarks(short: Lab) -> None:
    short.acts["file_io"] = failing
    short.execute()
    short.acts.clear()
    assert short.execute() == 0
    assert whens(short) == ["start", "end", "start", "end"]
    assert short.execute() == 0  # nothing left to do, so nothing to align
    assert len(whens(short)) == 4


def test_a_failed_session_has_no_closing_watermark(short: Lab) -> None:
    short.stack.refuse = {"plain", "opal"}
    assert short.execute() == 1
    assert whens(short) == ["start"]


def test_storage_is_bare_while_a_pattern_is_played(
    short: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[object] = []

    def look(*_: object) -> None:
        entered.append(short.stack.entered)

    monkeypatch.setattr("agent.marks.play", look)
    assert short.execute() == 0
    assert entered == [None, None]
