"""What is known of sessions that ended in order, and of those that were killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from controller import sessions
from controller.sessions import Begin

S = sessions.NS


def _reading(at_s: float, boot: str) -> dict[str, Any]:
    return {"t_receive_ns": round(at_s * S), "controller_boot_id": boot}


def test_a_session_that_ends_in_order_tells_what_it_took(tmp_path: Path) -> None:
    begin = Begin.now(tmp_path)
    begin.end(tmp_path, {"wall_s": 5.0, "start_s": 1.0})
    (found,) = sessions.read(sessions.lines(tmp_path / sessions.FILE), [])
    assert not found.killed
    assert found.seconds == {"wall_s": 5.0, "start_s": 1.0}


def test_a_killed_one_lived_to_its_last_clock_reading() -> None:
    lines: list[dict[str, Any]] = [
        {"begun_ns": 10 * S, "controller_boot_id": "a", "pid": 1},
        {"begun_ns": 100 * S, "controller_boot_id": "a", "pid": 2},
        {"begun_ns": 5 * S, "controller_boot_id": "b", "pid": 3},
        {"begun_ns": 5 * S, "controller_boot_id": "b", "wall_s": 7.0},
    ]
    clock = [_reading(t, "a") for t in (12, 40, 105, 130)] + [_reading(9000, "b")]
    found = sessions.read(lines, clock)
    assert [s.killed for s in found] == [True, True, False]
    assert [s.seconds["wall_s"] for s in found] == [30.0, 30.0, 7.0]


def test_one_that_was_killed_at_once_took_nothing() -> None:
    (found,) = sessions.read([{"begun_ns": 1, "controller_boot_id": "a", "pid": 1}], [])
    assert found.seconds == {"wall_s": 0.0}


def test_lines_of_older_suites_and_torn_ones_are_read(tmp_path: Path) -> None:
    path = tmp_path / sessions.FILE
    path.write_text('{"wall_s": 6}\n{"wall_s": 4}\n{"wal', encoding="utf-8")
    found = sessions.read(sessions.lines(path), [])
    assert [s.seconds["wall_s"] for s in found] == [6, 4]
