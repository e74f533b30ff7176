"""A pilot suite says how many blocks the next one gets, or why it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.suite import manifest
from contract import derived
from contract.tests.refusal import refuses
from controller.planning import pilot

NEXT = {"format": "fde-next/1", "suite_id": "p-1", "blocks": 17, "from_blocks": 10}


def left(folder: Path, **changes: object) -> Path:
    (folder / "next.json").write_text(json.dumps({**NEXT, **changes}), encoding="utf-8")
    (folder / "manifest.json").write_text("{}", encoding="utf-8")
    derived.mark(folder, ["next.json"], manifest.source(folder))
    return folder


def test_the_next_suite_gets_as_many_blocks_as_the_pilot_asks_for(tmp_path: Path) -> None:
    assert pilot.read_pilot(left(tmp_path)) == pilot.Pilot("p-1", 17)


def test_a_pilot_of_a_stranger_is_not_planned_by(tmp_path: Path) -> None:
    left(tmp_path)
    (tmp_path / derived.MARKS).unlink()
    with refuses("other-version"):
        pilot.read_pilot(tmp_path)


def test_without_a_report_there_is_nothing_to_plan_by(tmp_path: Path) -> None:
    with refuses("no-next-suite"):
        pilot.read_pilot(tmp_path)


@pytest.mark.parametrize("changes", [{"from_blocks": 3}, {"from_blocks": None, "blocks": None}])
def test_a_pilot_that_is_too_short_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    with refuses("too-few-blocks", pilot_blocks=10):
        pilot.read_pilot(left(tmp_path, **changes))


@pytest.mark.parametrize("text", ["", "[]", '{"format": "fde-next/9"}'])
def test_another_file_of_that_name_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "next.json").write_text(text, encoding="utf-8")
    with refuses("other-version"):
        pilot.read_pilot(tmp_path)
