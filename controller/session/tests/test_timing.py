"""Parts of the wall time, from hand-written journals."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest

from contract import plan as plans
from contract.attempts import NS
from contract.documents import Phase, SessionLine
from contract.journal import Entry
from contract.timing import PARTS, Timing
from controller.session import session_times, timing
from controller.tests import examples
from controller.tests.examples import plan, suite_folder
from instrumentation.clock import ClockReading

IDS = [run.run_id for run in plans.parse(plan(blocks=1)).runs]
PHASES = (Phase("write", 0, 8 * 10**9), Phase("tail", 8 * 10**9, 9 * 10**9))
# Half a second lies between its phases.
FINISHED = timing.RunTimes("finished", 0, 9_500_000_000, PHASES)
# Boot a of the target began at 100 s of the controller's clock, boot b at 1000 s.
CLOCK = [
    ClockReading(100 * 10**9, 0, 100 * 10**9, "a"),
    ClockReading(1000 * 10**9, 0, 1000 * 10**9, "b"),
]


journal = partial(examples.journal, boot_id="a")


def total(result: Timing) -> float:
    return math.fsum(getattr(result, key) for key in PARTS)


WHOLE = [
    (0, "suite-started", "", ""),
    (0, "switching", IDS[0], ""),
    (5, "running", IDS[0], ""),
    (17, "proving", IDS[0], ""),
    (20, "finished", IDS[0], ""),
]


def test_the_parts_of_the_wall_time_add_up() -> None:
    entries = journal([*WHOLE, (20.2, "running", IDS[1], ""), (29.2, "void", IDS[1], "proof")])
    runs = [FINISHED, replace(FINISHED, status="void", t_start_ns=None, t_end_ns=None)]
    result = timing.suite_timing(entries, runs, 1.0, timing.Controller(40.0, 3.0, 2.0))
    assert result.measuring_s == pytest.approx(9)
    assert result.switching_s == pytest.approx(5)
    assert result.proving_s == pytest.approx(3)
    assert result.preparing_s == pytest.approx(12 - 9.5)
    assert result.between_phases_s == pytest.approx(0.5)
    assert result.between_runs_s == pytest.approx(0.2)
    assert result.repeated_s == pytest.approx(9)
    assert total(result) == pytest.approx(result.wall_s) == pytest.approx(40)
    assert result.measuring_share == pytest.approx(9 / 40)


def test_preconditioning_is_a_separate_part() -> None:
    lines = [
        (0, "suite-started", "", ""),
        (1, "preconditioning", "", ""),
        (31, "preconditioning", "", ""),
        (91, "preconditioned", "", ""),
        *((100 + at, state, run_id, cause) for at, state, run_id, cause in WHOLE[1:]),
    ]
    result = timing.suite_timing(journal(lines), [FINISHED], 1.0, timing.Controller(200.0))
    assert result.preconditioning_s == pytest.approx(90)
    assert total(result) == pytest.approx(200)
    assert any("preconditioning disks" in line for line in timing.table(result))


def cut_power() -> list[Entry]:
    """Return a journal with a power cut in a run; the agent is back 60 s after its start."""
    before = journal([*WHOLE, (20, "running", IDS[1], "")])
    after = [
        (-820, "void", IDS[1], "target-down"),
        (-819, "suite-started", "", ""),
        (-819, "waiting", "", "secrets"),
        (-810, "running", IDS[1], ""),
        (-800, "finished", IDS[1], ""),
    ]
    later = [(1000 + at, state, run_id, cause) for at, state, run_id, cause in after]
    return [*before, *journal(later, boot_id="b")]


def test_a_power_cut_is_down_time_by_the_clock_readings() -> None:
    clock = [CLOCK[0], replace(CLOCK[1], t_send_ns=0, t_receive_ns=0)]
    spent = timing.state_seconds(cut_power(), clock)
    assert spent["down_s"] == pytest.approx(180 - 120 + 1)
    assert spent["waiting_s"] == pytest.approx(9)
    assert spent["running_s"] == pytest.approx(12 + 10)
    assert spent["repeated_s"] == 0


@pytest.mark.parametrize(
    "clock", [[], CLOCK[:1], [CLOCK[0], replace(CLOCK[1], controller_boot_id="later")]]
)
def test_a_power_cut_without_clock_readings_is_not_counted(clock: Sequence[ClockReading]) -> None:
    assert timing.state_seconds(cut_power(), clock)["down_s"] == pytest.approx(1)


REPEATED = [
    (20, "void", IDS[0], "repeat"),
    (20, "switching", IDS[0], ""),
    (26, "running", IDS[0], ""),
    (40, "proving", IDS[0], ""),
    (44, "finished", IDS[0], ""),
]
WAITED = [
    (20, "waiting", "", "held"),
    (50, "running", IDS[1], ""),
    (53, "waiting", IDS[1], "temperature"),
    (60, "running", IDS[1], ""),
    (64, "finished", IDS[1], ""),
]
STOPPED = [
    (21, "running", IDS[1], ""),
    (30, "void", IDS[1], "stopped"),
    (31, "suite-failed", "", "stopped"),
    (900, "suite-started", "", ""),
]


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        (REPEATED, {"repeated_s": 20, "switching_s": 6, "running_s": 14, "proving_s": 4}),
        (WAITED, {"waiting_s": 30 + 7, "running_s": 12 + 3 + 4}),
        (STOPPED, {"repeated_s": 9, "down_s": 0}),
        (STOPPED[2:], {"down_s": 0}),
        (STOPPED[3:], {"down_s": 880}),  # the agent was killed
    ],
)
def test_seconds_in_each_state(
    lines: list[tuple[float, str, str, str]], seconds: dict[str, float]
) -> None:
    spent = timing.state_seconds(journal([*WHOLE, *lines]))
    assert {key: spent[key] for key in seconds} == pytest.approx(seconds)


def test_down_time_is_bounded_by_the_wall_time() -> None:
    killed = journal([*WHOLE, (900, "suite-started", "", "")])
    result = timing.suite_timing(killed, [FINISHED], 1.0, timing.Controller(100.0))
    assert result.down_s == pytest.approx(80)
    assert total(result) == pytest.approx(100)


def test_timing_of_a_suite_folder(tmp_path: Path) -> None:
    suite_folder(tmp_path, plan(blocks=1), journal(WHOLE))
    for name in (IDS[0], f"{IDS[0]}.void-1"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text(
            json.dumps(asdict(FINISHED)), encoding="utf-8"
        )
    begun = '{"begun_ns": %d, "controller_boot_id": "a", "wall_s": %d, "start_s": %d}\n'
    session = begun % (1, 20, 2) + begun % (2, 10, 0) + '{"begun_ns": 3, "wall'
    (tmp_path / "sessions.jsonl").write_text(session, encoding="utf-8")
    result = timing.read_suite(tmp_path)
    assert result.wall_s == 30 and result.start_s == 2
    assert result.measuring_s == pytest.approx(9), "what was set aside does not count"
    shown = timing.table(result)
    assert shown[0] == "where the suite's 30 s went"
    assert "  measuring                    9.0 s  30.0%" in shown
    assert not any("waiting" in line for line in shown), "nothing is left out but nothing"
    assert timing.table(replace(result, wall_s=0.0)) == []


def test_a_session_records_its_duration(tmp_path: Path) -> None:
    seconds = {"start_s": 1.0}
    with session_times.recorded(tmp_path, seconds):
        assert session_times.read_sessions(tmp_path)[0].killed
    (session,) = session_times.read_sessions(tmp_path)
    assert not session.killed
    assert {"start_s": session.line.start_s, "wall_s": session.wall_s} == seconds


def test_a_killed_session_lasts_to_its_last_clock_reading() -> None:
    lines = [
        SessionLine(10 * NS, "a"),
        SessionLine(100 * NS, "a"),
        SessionLine(5 * NS, "b"),
        SessionLine(5 * NS, "b", wall_s=7.0),
    ]
    times = [*((second, "a") for second in (12, 40, 105, 130)), (9000, "b")]
    clock = [ClockReading(0, 0, second * NS, "t", boot) for second, boot in times]
    sessions = session_times.sessions_of(lines, clock)
    assert [s.killed for s in sessions] == [True, True, False]
    assert [s.wall_s for s in sessions] == [30.0, 30.0, 7.0]


def test_a_session_killed_at_once_lasts_0_s() -> None:
    (session,) = session_times.sessions_of([SessionLine(1, "a")], [])
    assert session.killed and session.wall_s == 0.0
