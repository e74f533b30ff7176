"""The queue of suites, with sessions that a short program stands for."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from contract.tests.refusal import refuses
from controller.cli.app import main
from controller.session import suite_queue
from controller.session.evening import Window
from controller.session.seal import MANIFEST
from controller.session.suite_queue import Entry
from controller.session.tests.test_recorders import wait_until

# What a session does by the name of the suite's folder.
SESSION = f"""
import pathlib, sys
folder = pathlib.Path(sys.argv[3])
with (folder.parent / "order").open("a") as file:
    file.write(" ".join([folder.name, *sys.argv[4:]]) + "\\n")
if folder.name == "slow":
    import time
    time.sleep(60)
if folder.name.startswith("good"):
    (folder / "{MANIFEST}").touch()
sys.exit(folder.name == "bad")
"""


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(
        suite_queue, "module_command", lambda *words: [sys.executable, "-c", SESSION, *words]
    )


def queue(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir()
        assert main(["queue", "add", str(folder / name), "-i", str(folder)]) == 0


def order(folder: Path) -> list[str]:
    return (folder / "order").read_text(encoding="utf-8").splitlines()


def states() -> list[str]:
    return [entry.queued.state for entry in suite_queue.read().entries]


def test_suites_are_measured_in_order_and_one_that_fails_stops_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue(tmp_path, "good-1", "bad", "good-2")
    assert states() == ["waiting"] * 3
    assert main(["queue", "run", "--between", "22:00-07:00"]) == 1
    begun = f"-i {tmp_path} --between 22:00-07:00"
    assert order(tmp_path) == [f"{name} {begun}" for name in ("good-1", "bad", "good-2")]
    capsys.readouterr()
    assert main(["queue", "list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in listed] == [
        ["1", "sealed"],
        ["2", "failed"],
        ["3", "sealed"],
    ]
    assert main(["queue", "run"]) == 1
    assert order(tmp_path)[3:] == [f"bad -i {tmp_path}"], "what is sealed is over"


def test_a_suite_that_is_not_complete_ends_the_evening_and_is_continued(tmp_path: Path) -> None:
    queue(tmp_path, "long", "good-1")
    assert main(["queue", "run"]) == 0
    assert states() == ["continues", "waiting"]
    assert main(["queue", "run"]) == 0
    assert [line.split()[0] for line in order(tmp_path)] == ["long", "long"]


def test_no_session_is_begun_in_the_last_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(tmp_path, "good-1")
    monkeypatch.setattr(suite_queue, "LEAST_S", 2 * 86400)
    assert suite_queue.run([], Window(None, "07:00"), print)
    assert states() == ["waiting"]


def test_there_is_one_runner_and_an_interrupt_ends_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(tmp_path, "slow")
    pending: list[int] = []
    codes: list[int] = []

    def watch() -> None:
        wait_until((tmp_path / "order").exists)
        try:
            with refuses("queue-in-use"):
                suite_queue.run([], None, print)
        finally:
            pending.append(2)

    monkeypatch.setattr(suite_queue, "deferred_interrupts", lambda: _Interrupts(pending))
    thread = threading.Thread(target=watch)
    thread.start()
    assert suite_queue.run([], None, print) is False
    thread.join()
    codes.extend(entry.outcome or 0 for entry in suite_queue.read().entries)
    assert codes == [-15]


class _Interrupts:
    """Signals that a test sends."""

    def __init__(self, pending: list[int]) -> None:
        self._pending = pending

    def __enter__(self) -> list[int]:
        return self._pending

    def __exit__(self, *_: object) -> None:
        pass


def test_a_queue_is_refused_what_it_cannot_keep(tmp_path: Path) -> None:
    queue(tmp_path, "good-1")
    with refuses("not-queued"):
        suite_queue.remove(tmp_path)
    assert main(["queue", "remove", str(tmp_path / "good-1")]) == 0
    assert states() == []
    assert main(["queue", "add", "-i", "x"]) == main(["queue", "timer"]) == 2
    (tmp_path / "state" / "fde-testbed" / "queue.json").write_text("{", encoding="utf-8")
    with refuses("queue-damaged"):
        suite_queue.add(Entry("a", "b"))


def test_the_units_run_the_queue_between_two_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    with refuses("timer-not-enabled"):
        suite_queue.install(Window("22:00", "07:00"))
    folder = tmp_path / suite_queue.UNITS
    assert "OnCalendar=*-*-* 22:00:00" in (folder / "fde-queue.timer").read_text("utf-8")
    assert "queue run --between 22:00-07:00" in (folder / "fde-queue.service").read_text("utf-8")
