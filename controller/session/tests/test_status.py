"""The status of a running suite: its document, and the terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from contract import plan as plans
from contract import strict_json
from contract.journal import Entry
from contract.status import Event, SuiteStatus
from controller.session import progress, status
from controller.tests import terminal
from controller.tests.examples import ANSWER, NOW, journal, plan, suite_folder

PLAN = plans.parse(plan(blocks=3))
IDS = [run.run_id for run in PLAN.runs]
ENTRIES = journal(
    [
        (0, "suite-started", ""),
        (1, "switching", IDS[0]),
        (3, "running", IDS[0]),
        (33, "finished", IDS[0]),
        (34, "running", IDS[1]),
        (40, "void", IDS[1]),
        (41, "running", IDS[1]),
    ]
)
WATTS, GAPS = {"system": 12.345, "drive": 2.1}, {"meter0": 1}
EVIL = 'secrets: <script>alert("x")</script> & \x1b[2J more'


def document(entries: list[Entry] = ENTRIES, since_s: float = 2.0, **changes: Any) -> SuiteStatus:
    current = progress.suite_status(
        PLAN, entries, watts=WATTS, gaps=GAPS, events=(), since_s=since_s, moment=NOW
    )
    return replace(current, **changes)


def read(folder: Path) -> SuiteStatus:
    path = folder / "status" / "status.json"
    return strict_json.parse(SuiteStatus, path.read_text(encoding="utf-8"))


def test_status_document_of_a_running_suite() -> None:
    current = document()
    assert current.format == "fde-status/1" and current.state == "running"
    run = PLAN.runs[1]
    assert (current.block, current.blocks) == (1, 3)
    assert (current.run_index, current.runs, current.run_id) == (2, 18, IDS[1])
    assert (current.configuration, current.workload) == (run.configuration, run.workload)
    assert (current.finished, current.void, current.repeated) == (1, 0, 1)
    # 17 runs at 30 s, 2 s on average before each, 6 s for void tries; 2 s of this are over.
    left_s = current.left_s
    assert left_s is not None
    assert current.ends_wall == (NOW + timedelta(seconds=left_s)).isoformat(timespec="seconds")
    assert document().left_s == left_s
    assert document(since_s=12.0).left_s == left_s - 10


def test_remaining_time_before_the_first_and_after_the_last_line() -> None:
    assert document([]).state == "starting" and document([]).left_s is None
    ended = journal([(0, "suite-started", ""), (1, "suite-finished", "")])
    assert document(ended).left_s == 0
    assert ("now", "suite finished for 2 s") in status.rows(document(ended))
    assert ("left", "nothing") in status.rows(document(ended))


def test_waiting_leaves_the_remaining_time_unchanged() -> None:
    waiting = [
        *ENTRIES,
        replace(ENTRIES[-1], state="waiting", cause="load", detail="something runs"),
    ]
    early, late = document(waiting, since_s=1.0), document(waiting, since_s=900.0)
    assert early.left_s == late.left_s
    assert early.waiting == "something runs"


def test_the_board_writes_the_status_and_prints_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    messages: list[str] = []
    board = status.Board(PLAN, tmp_path, messages.append, watts=WATTS, gaps=GAPS)
    board.note("recorders are on")
    assert read(tmp_path).state == "starting"
    for count in range(1, len(ENTRIES) + 1):
        board.entry(ENTRIES[:count])
    current = read(tmp_path)
    assert f"process {os.getpid()}, since " in str(current.holder)
    assert current.watts == WATTS and current.gaps == GAPS
    assert [event.text for event in current.events] == [
        "recorders are on",
        "the agent starts",
        "run 2 (dmcrypt-aes128 file_io) is void",
    ]
    assert [line.split(":")[0] for line in messages] == [
        "recorders are on",
        "the agent starts",
        "block 1 of 3, run 1 of 18",
        "run 2 (dmcrypt-aes128 file_io) is void",
    ]
    assert capsys.readouterr().out == ""


def test_of_old_entries_only_the_last_is_printed(tmp_path: Path) -> None:
    messages: list[str] = []
    status.Board(PLAN, tmp_path, messages.append).entry(ENTRIES)
    assert len(messages) == 1 and "measuring" in messages[0]


def test_without_a_terminal_each_block_and_answer_is_a_line(tmp_path: Path) -> None:
    messages: list[str] = []
    board = status.Board(PLAN, tmp_path, messages.append)
    lines = [(0.0, "suite-started", "")]
    for run in PLAN.runs:
        waits = [(0.0, "running", run.run_id), (0.0, "waiting", run.run_id)]
        lines += [(0.0, "switching", run.run_id), *waits, *waits[:1], (9.0, "finished", run.run_id)]
    lines += [(99.0, "suite-finished", "")]
    entries = journal(lines)
    for count in range(1, len(entries) + 1):
        board.entry(entries[:count])
        board.tick()
        if count in (33, 63):  # the second block has begun, the third
            board.answer(replace(ANSWER, blocks=count // 30))
    assert [line.split(",")[0].split(":")[0] for line in messages] == [
        "the agent starts",
        "block 1 of 3",
        "block 2 of 3",
        "so far Opal +0.6 %",
        "block 3 of 3",
        "so far Opal +0.6 %",
        "suite finished",
    ]
    assert read(tmp_path).answer == ANSWER


def test_long_waits_are_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = status.Lines()
    assert len(lines.next(document())) == 1
    for cause in ("load", "heat"):
        waits = document(state="waiting", waiting=f"{cause} is high", waiting_for=cause)
        assert lines.next(replace(waits, since_s=3.0)) == []
        (line,) = lines.next(replace(waits, since_s=11.0))
        assert f"waiting: {cause} is high" in line
        assert lines.next(replace(waits, waiting="it is higher", since_s=12.0)) == []
    assert lines.next(document()) == []
    monkeypatch.setattr(status, "PRINT_PERIOD_S", 0.0)
    assert len(lines.next(document())) == 1


def test_an_unwritable_status_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("in the way", encoding="utf-8")
    messages: list[str] = []
    board = status.Board(PLAN, tmp_path, messages.append)
    board.note("begun")
    board.entry(ENTRIES)
    assert [line for line in messages if "cannot be written" in line] == [
        "the status cannot be written (File exists); the suite continues"
    ]
    (tmp_path / "status").unlink()
    board.entry(ENTRIES)
    assert read(tmp_path).finished == 1


DRAW = """
import fcntl, struct, sys, termios
from contextlib import closing
from pathlib import Path
from contract import strict_json
from contract.status import SuiteStatus
from controller.session.status import Screen, rows
with closing(Screen()) as screen:
    for document in strict_json.lines(SuiteStatus, Path(sys.argv[1])):
        screen.show(rows(document))
    print("said meanwhile")
    size = struct.pack("HHHH", 24, int(sys.argv[2]), 0, 0)
    fcntl.ioctl(sys.__stdout__.fileno(), termios.TIOCSWINSZ, size)
    screen.show(rows(document))
print("said after")
"""


CLOSED = """
import signal, sys
from pathlib import Path
from contract import plan
from contract.interrupts import lasting
from controller.session.status import Board
signal.signal(signal.SIGHUP, signal.SIG_IGN)
folder = Path(sys.argv[1])
say = lasting(lambda line: print(line, flush=True))
board = Board(plan.load(folder / "plan.json"), folder, say)
board.note("begun")
sys.stdin.readline()
board.note("continues")
board.note("to its end")
print("which nobody reads", flush=True)
"""


def test_a_closed_terminal_ends_only_the_view(tmp_path: Path) -> None:
    suite_folder(tmp_path, plan(blocks=3))
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", CLOSED, tmp_path],
        stdin=subprocess.PIPE,
        stdout=follower,
        env={**os.environ, "PYTHONPATH": str(Path(status.__file__).parents[2])},
    ) as process:
        os.close(follower)
        out = b""
        while b"begun" not in out:
            out += os.read(leader, 65536)
        os.close(leader)
        process.communicate(b"\n")
    assert process.returncode == 0
    assert read(tmp_path).events[-1].text == "to its end"


@pytest.mark.parametrize("columns", [80, 60])
def test_the_view_is_redrawn_in_place_at_the_terminals_width(tmp_path: Path, columns: int) -> None:
    event = Event(NOW.isoformat(), f"{EVIL} {'long ' * 40}")
    documents = [
        document(),
        document(events=3 * (event,)),
        document(events=(event,), answer=ANSWER),
    ]
    texts = [json.dumps(asdict(d)) for d in documents]
    (tmp_path / "documents").write_text("\n".join(texts), encoding="utf-8")
    heading, *shown, after, end = terminal.run(
        DRAW, tmp_path / "documents", columns, columns=columns
    )
    assert (heading, after, end) == ("said meanwhile", "said after", "")
    assert shown[0].startswith("suite     smoke-target")
    assert sum(line.startswith("suite ") for line in shown) == 1, "drawn over, not below"
    while not shown[-1]:
        shown.pop()
    assert len(shown) == len(status.rows(documents[-1]))
    assert max(map(len, shown)) == columns and shown[-1].endswith("…")
    assert "block 1 of 3, run 2 of 18" in shown[1] or columns < 80
    assert "measuring file_io on dmcrypt-aes128" in shown[2]
    assert shown[5][10:].startswith("Opal +0.6 %, AES-128 +41.0 % after block 2")
    assert all(len(line) < 80 for line in shown[:7]), "nothing of it is cut at 80 columns"


@pytest.mark.parametrize(("variable", "value"), [("TERM", "dumb"), ("PYTHONIOENCODING", "ascii")])
def test_a_dumb_or_ascii_terminal_gets_plain_output(
    tmp_path: Path, variable: str, value: str
) -> None:
    (tmp_path / "documents").write_text(json.dumps(asdict(document())), encoding="utf-8")
    shown = terminal.run(DRAW, tmp_path / "documents", 80, environment={variable: value})
    assert "".join(shown).isascii()
    assert any(line.startswith("suite ") for line in shown) == (variable != "TERM")
