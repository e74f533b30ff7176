"""Watching a session on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from contract import plan as plans
from contract.documents import GroupDocument
from contract.files import write_json
from contract.places import ROOT, suites_folder
from contract.tests.refusal import refuses
from controller.session import watch
from controller.session.seal import MANIFEST
from controller.tests import examples
from controller.tests.examples import journal, plan

DOCUMENT = plan(blocks=1)
PLAN = plans.parse(DOCUMENT)
IDS = [run.run_id for run in PLAN.runs]
ENTRIES = journal(
    [
        (0, "suite-started", ""),
        (0, "running", IDS[0]),
        (30, "finished", IDS[0]),
        (31, "suite-finished", ""),
    ]
)
# A session of its own process: it holds the folder, shows where it is, seals when it is told to.
SESSION = """
import sys
from pathlib import Path
from contract import journal, plan
from controller.session import suite_folder
from controller.session.status import Board
folder = Path(sys.argv[1])
with suite_folder.locked(folder):
    board = Board(plan.load(folder / "plan.json"), folder, lambda _: None)
    entries = journal.read(folder / "journal.jsonl")
    board.watts, board.gaps = {"system": 12.0}, {"meter0": 0}
    board.entry(entries[:2])
    print("on", flush=True)
    sys.stdin.readline()
    board.entry(entries)
    if sys.argv[2] == "seals":
        (folder / "manifest.json").write_text("{}")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return examples.suite_folder(suites_folder().absolute() / PLAN.suite_id, DOCUMENT, ENTRIES)


@contextmanager
def session(folder: Path, end: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", SESSION, folder, end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout and process.stdin
        assert process.stdout.readline() == "on\n"
        yield process
        process.stdin.close()


def finish(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.parametrize("named", [True, False])
def test_a_local_session_is_shown_until_its_seal(
    folder: Path, capsys: pytest.CaptureFixture[str], named: bool
) -> None:
    messages: list[str] = []
    with session(folder, "seals") as process:
        timer = threading.Timer(1.5, finish, [process])
        timer.start()
        well = watch.run(folder if named else None, messages.append)
        timer.join()
    assert well
    out = capsys.readouterr().out
    assert "block 1 of 1, run 1 of 6: measuring idle on dmcrypt-aes128, system 12.0 W" in out
    assert "suite finished" in out
    assert len(messages) == 1 and f"{folder.name} lists what ran" in messages[0]


def test_a_killed_session_names_resume(folder: Path) -> None:
    messages: list[str] = []
    with session(folder, "is killed") as process:
        threading.Timer(0.5, process.kill).start()
        assert not watch.run(folder, messages.append)
    assert "fde resume " in messages[-1] and "not sealed" in messages[-1]


def test_a_group_has_an_outcome_per_host(folder: Path) -> None:
    other = {**DOCUMENT, "suite_id": "smoke-other-20260102T030405Z", "host": "other"}
    examples.suite_folder(folder.parent / str(other["suite_id"]), other)
    (folder / MANIFEST).write_text("{}", encoding="utf-8")
    (folder.parent / "group").mkdir()
    suite_ids, hosts = (PLAN.suite_id, str(other["suite_id"])), (PLAN.host, "other")
    document = GroupDocument("fde-group/1", "group", suite_ids, hosts)
    write_json(folder.parent / "group" / "group.json", asdict(document))
    messages: list[str] = []
    assert not watch.run(folder.parent / "group", messages.append)
    assert "has ended: fde summary" in messages[0] and "fde resume" in messages[1]


def test_watching_without_a_running_suite_is_refused(folder: Path) -> None:
    with refuses("nothing-runs"):
        watch.run(None, print)
    with refuses("no-plan"):
        watch.run(folder.parent, print)
