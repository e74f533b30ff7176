"""A suite is resumed on the same target only; its folder's log."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from contract import plan as plans
from contract.errors import ControllerError
from contract.identity import Identity
from contract.tests.refusal import Refusal, refuses
from controller.session import suite_folder, target_identity
from controller.session.agent_client import AgentClient
from controller.session.suite_folder import locked
from controller.tests import examples
from controller.tests.examples import journal, plan, resolved, text_of
from controller.tests.standin import Standin

PLAN = plans.parse(plan())
LINES = [(0.0, "suite-started", ""), (1.0, "running", "r"), (2.0, "finished", "r")]


def identity_of(lines: int | None, machine_id: str = "m") -> Identity:
    return Identity(machine_id, "b", {PLAN.suite_id: lines})


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """Make a suite of which three lines were fetched."""
    target_identity.require_same_machine(PLAN, tmp_path, identity_of(0), None)
    (tmp_path / "journal.jsonl").write_text(text_of(journal(LINES)), encoding="utf-8")
    return tmp_path


def test_the_same_machine_is_accepted(begun: Path) -> None:
    for lines in (3, 40):
        target_identity.require_same_machine(PLAN, begun, identity_of(lines), PLAN.sha256)


@pytest.mark.parametrize(
    ("identity", "plan_sha256", "refusal"),
    [
        (identity_of(3, "another"), PLAN.sha256, refuses("other-machine")),
        (identity_of(2), PLAN.sha256, refuses("target-journal-shorter", lines=2, copied=3)),
        (identity_of(None), PLAN.sha256, refuses("target-journal-damaged")),
        (Identity("m", "b"), None, refuses("target-journal-shorter", lines=0)),
    ],
)
def test_another_machine_and_a_shorter_journal_are_refused(
    begun: Path, identity: Identity, plan_sha256: str | None, refusal: Refusal
) -> None:
    text = (begun / target_identity.IDENTITY).read_text(encoding="utf-8")
    with refusal:
        target_identity.require_same_machine(PLAN, begun, identity, plan_sha256)
    assert (begun / target_identity.IDENTITY).read_text(encoding="utf-8") == text


def test_another_plan_of_the_same_name_is_refused(tmp_path: Path) -> None:
    with refuses("other-plan-there"):
        target_identity.require_same_machine(PLAN, tmp_path, identity_of(0), "0" * 64)
    assert not (tmp_path / target_identity.IDENTITY).exists()


def test_identity_journal_and_plan_of_a_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent's own command over a shell that stands in for ssh."""
    standin = Standin(tmp_path / "there", monkeypatch)
    agent = AgentClient(resolved(), PLAN.suite_id)
    assert len(agent.identity().machine_id) == 64
    assert agent.journal() == []
    assert agent.plan_sha256() is None
    folder = examples.suite_folder(standin.suites / PLAN.suite_id, plan(), journal(LINES))
    assert agent.journal() == journal(LINES)
    assert agent.plan_sha256() == PLAN.sha256
    (folder / "plan.json").write_text("{", encoding="utf-8")
    assert agent.plan_sha256() == ""  # none of ours
    standin.unplug()
    with refuses("no-route"):
        agent.identity()


def test_the_log_has_one_line_per_record_and_the_final_error(tmp_path: Path) -> None:
    for error in (ControllerError("no\nroom"), KeyboardInterrupt()):
        with pytest.raises(type(error)), suite_folder.logged(tmp_path):
            logging.getLogger("controller.session.follow_loop").debug("a \x1b[2J try")
            raise error
    logging.getLogger("controller").error("after it")
    lines = (tmp_path / suite_folder.LOG).read_text(encoding="utf-8").splitlines()
    times, texts = zip(*(line.split(" ", 1) for line in lines), strict=True)
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    assert all(datetime.fromisoformat(time) > hour_ago for time in times)
    assert [" ".join(words.split()) for words in texts] == [
        "DEBUG controller.session.follow_loop: a \\x1b[2J try",
        "ERROR controller: ended: no room",
        "DEBUG controller.session.follow_loop: a \\x1b[2J try",
        "WARNING controller: interrupted",
    ]


def test_a_log_on_a_full_disk_raises_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / suite_folder.LOG).symlink_to("/dev/full")
    with suite_folder.logged(tmp_path):
        logging.getLogger("controller").warning("lost")
    assert capsys.readouterr().err == ""


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="No locks available") as raised, locked(tmp_path):
        pass
    assert raised.value.filename == str(tmp_path / suite_folder.LOCK)
