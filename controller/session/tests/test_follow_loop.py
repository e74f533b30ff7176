"""Following a suite across failures of link, target and agent, with the target on this machine.

A process that takes the suite's lock and writes its journal replaces the agent.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from contract import plan as plans
from contract import strict_json
from contract.errors import ControllerError
from contract.journal import Entry
from contract.messages import Message, Notify, Receiver
from contract.places import ROOT
from contract.plan import TargetDocument
from controller.session import journal_link, secrets_delivery, status
from controller.session.agent_client import AgentClient
from controller.session.ending import Ending
from controller.session.follow_loop import FollowLoop
from controller.session.messenger import Messenger
from controller.session.recorders import Recorders
from controller.session.status import Board
from controller.targets import secrets as secrets_file_module
from controller.tests.examples import plan, resolved, suite_folder
from controller.tests.standin import Standin

PLAN = plans.parse(plan())
WORKS = """
import pathlib, sys
from agent.system import lock
from contract.journal import Journal
folder = pathlib.Path(sys.argv[1])
with lock.suite(folder):
    journal = Journal(folder / "journal.jsonl")
    print("at work", flush=True)
    for line in sys.stdin:
        state, cause, detail = (line.strip() + "||").split("|")[:3]
        journal.append(state, detail=detail, cause=cause)
"""


class Agent:
    """A process that writes the journal entries that a test asks for, until it is killed."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKS, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def tell(self, state: str, reason: str = "") -> None:
        """Append a line to the journal; `reason` is `cause|detail`."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{state}|{reason}\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Watched:
    """A follower in a thread with the lines that it printed; a program receives its messages."""

    def __init__(self, suite_dir: Path, secrets_file: Path) -> None:
        self.lines: list[str] = []
        self.messages = suite_dir / "messages"
        note = ("sh", "-c", f"tr -d '\\n' >>{self.messages}; echo >>{self.messages}")
        receiver = Receiver(name="log", argv=note)
        target = resolved(secrets_file=str(secrets_file))
        target = replace(target, notify=Notify(receivers=(receiver,)))
        sender = Messenger(PLAN.suite_id, target)
        board = Board(PLAN, suite_dir, self.lines.append, messenger=sender)
        client = AgentClient(target, PLAN.suite_id)
        recorders = Recorders([], suite_dir)
        ending = Ending(PLAN, suite_dir, client)
        self._loop = FollowLoop(PLAN, target, client, board, recorders, ending=ending)
        self.last: Entry | None = None
        self.error: ControllerError | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        try:
            self.last = self._loop.follow([])
        except ControllerError as error:
            self.error = error

    def wait_until(self, condition: Callable[[], object]) -> None:
        while not condition():
            assert self._thread.is_alive(), self.error
            time.sleep(0.05)

    @property
    def events(self) -> list[str]:
        """Events of the messages so far."""
        return [message.event for message in strict_json.lines(Message, self.messages)]

    def has_line(self, words: str) -> bool:
        return any(words in line for line in self.lines)

    def end(self) -> None:
        self._thread.join()


@pytest.fixture
def standin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Standin:
    monkeypatch.setattr(journal_link, "RETRY_S", 0.1)
    defaults = {**(journal_link.follow.__kwdefaults__ or {}), "tick_s": 0.1}
    monkeypatch.setattr(journal_link.follow, "__kwdefaults__", defaults)
    monkeypatch.setattr(journal_link, "PATIENCE_S", 0.0)
    target = Standin(tmp_path / "there", monkeypatch)
    suite_folder(target.suites / PLAN.suite_id, plan())
    return target


@pytest.fixture
def suite(standin: Standin) -> Path:
    return standin.suites / PLAN.suite_id


@pytest.fixture
def agent(suite: Path) -> Iterator[Agent]:
    standin_agent = Agent(suite)
    yield standin_agent
    standin_agent.kill()


@pytest.fixture
def secrets_file(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.json"
    path.write_text(json.dumps({"luks_passphrase": "p", "opal_admin_pin": "q"}), encoding="utf-8")
    path.chmod(0o600)
    return path


@pytest.fixture
def watched(tmp_path: Path, agent: Agent, secrets_file: Path) -> Watched:
    agent.tell("suite-started")
    watcher = Watched(tmp_path, secrets_file)
    watcher.wait_until(
        lambda: watcher.has_line("the agent starts") or watcher.has_line("suite-started")
    )
    return watcher


def test_a_dropped_link_is_reported_once_and_resumes(
    standin: Standin, agent: Agent, watched: Watched
) -> None:
    standin.unplug()
    standin.drop("agent follow")
    watched.wait_until(lambda: watched.has_line("no word from the target since"))
    agent.tell("switching")  # it continues by itself
    standin.unplug(away=False)
    watched.wait_until(lambda: watched.has_line("the target answers again"))
    agent.tell("suite-finished")
    watched.end()
    assert watched.last is not None
    assert [watched.last.seq, watched.last.state] == [2, "suite-finished"]
    for words in ("no word from the target since", "the target answers again, after "):
        assert sum(words in line for line in watched.lines) == 1
    text = "".join(watched.lines)  # the link's last reason, or the next try's
    assert "the connection was lost" in text or "No route to host" in text


def test_a_silent_target_is_reported_once(
    standin: Standin, agent: Agent, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "ALARM_S", 0.1)
    agent.tell("suite-started")
    watched.wait_until(lambda: watched.has_line("the agent starts"))
    standin.unplug()
    standin.drop("follow")
    watched.wait_until(lambda: "target-lost" in watched.events)
    standin.unplug(away=False)
    agent.tell("suite-finished")
    watched.end()
    assert watched.events.count("target-lost") == 1


def test_a_wait_for_secrets_places_them_and_logs_none(
    standin: Standin,
    agent: Agent,
    watched: Watched,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    place = standin.folder / "run" / "secrets.json"
    monkeypatch.setattr(
        "controller.targets.secrets.PUT", f"mkdir -p {place.parent}; cat >{place}; echo changed"
    )
    agent.tell("waiting", "load|something else runs")
    agent.tell("waiting", "secrets|/run/fde-testbed/secrets.json is not there")
    watched.wait_until(place.exists)
    watched.wait_until(lambda: watched.has_line("asked for the secrets, and has them again"))
    agent.tell("suite-finished")
    watched.end()
    assert json.loads(place.read_text()) == {"luks_passphrase": "p", "opal_admin_pin": "q"}
    assert "has them again" in caplog.text
    assert '"p"' not in standin.asked + "".join(watched.lines) + caplog.text


def test_unreadable_secrets_are_reported_once_and_retried(
    secrets_file: Path, agent: Agent, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets_delivery, "RETRY_S", 0.0)
    refused: list[ControllerError] = []

    def place(target: TargetDocument) -> bool:
        try:
            return original(target)
        except ControllerError as error:
            refused.append(error)
            raise

    original = secrets_file_module.place
    monkeypatch.setattr(secrets_file_module, "place", place)
    secrets_file.chmod(0o644)
    agent.tell("waiting", "secrets|/run/fde-testbed/secrets.json is not there")
    watched.wait_until(lambda: watched.has_line("could not be placed"))
    watched.wait_until(lambda: len(refused) > 3)
    agent.tell("suite-finished")
    watched.end()
    assert sum("could not be placed" in line for line in watched.lines) == 1


def test_a_killed_agent_is_not_started_while_systemd_starts_it(
    standin: Standin, suite: Path, agent: Agent, watched: Watched
) -> None:
    standin.unit("activating", system="degraded")
    agent.kill()
    watched.wait_until(lambda: "systemctl show" in standin.asked)
    second_agent = Agent(suite)
    second_agent.tell("suite-finished")
    watched.end()
    second_agent.kill()
    assert watched.last is not None
    assert watched.last.state == "suite-finished"
    assert not standin.started


def test_an_inactive_agent_is_started_and_a_failed_one_raises(
    standin: Standin, agent: Agent, watched: Watched
) -> None:
    standin.unit("inactive")
    agent.kill()
    watched.wait_until(lambda: standin.started)
    standin.unit("failed")
    watched.end()
    assert "ended without closing its journal" in str(watched.error)
    assert "fde resume" in str(watched.error)
