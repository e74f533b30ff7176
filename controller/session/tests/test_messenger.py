"""Messages to programs: good, slow, lying and full ones."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract import strict_json
from contract.messages import EventCode, Message, Notify, Receiver
from contract.plan import TargetDocument
from contract.status import SuiteStatus
from contract.tests.programs import has_ended, wait_until
from controller.session import delivery, messenger
from controller.session.messenger import Messenger, conditions, send_tests
from controller.session.status import Board
from controller.session.tests.test_status import ENTRIES, PLAN, document
from controller.tests.examples import ANSWER, resolved

MESSAGE = Message(
    "fde-message/1", "void-runs", "s", "target", "2 runs in a row were void", "now", document()
)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the limits of deliveries for a busy machine."""
    monkeypatch.setattr(delivery.deliver, "__defaults__", (120.0,))
    monkeypatch.setattr(messenger, "CLOSE_S", 120.0)


def program(*argv: str, name: str = "p", events: tuple[EventCode, ...] = ()) -> Receiver:
    return Receiver(name=name, argv=argv, events=events)


def keeper(out: Path, events: tuple[EventCode, ...] = ()) -> Receiver:
    """Return a receiver that appends its messages to a file, one a line."""
    return program("sh", "-c", 'tr -d "\\n" >>"$0"; echo >>"$0"', str(out), events=events)


def received(out: Path) -> list[Message]:
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    return [strict_json.parse(Message, line) for line in lines]


def notifying(*receivers: Receiver) -> TargetDocument:
    return replace(resolved(), notify=Notify(receivers=receivers))


def test_a_program_receives_json_and_words(tmp_path: Path) -> None:
    out, words = tmp_path / "out", tmp_path / "words"
    message = replace(MESSAGE, status=document(answer=ANSWER))
    script = 'cat >"$0"; printf "%s\\n" "$FDE_TITLE" "$FDE_TEXT" >"$1"'
    assert delivery.deliver(program("sh", "-c", script, str(out), str(words)), message) == ""
    assert strict_json.parse(Message, out.read_bytes()) == message
    title, sentence, _, changes = words.read_text(encoding="utf-8").splitlines()
    assert (title, sentence) == ("target: void runs", message.sentence)
    assert "AES-128 +41.0 %" in changes


@pytest.mark.parametrize("verbose", [True, False])
def test_the_words_of_a_program_reach_only_a_test(
    verbose: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    fails = program("sh", "-c", "echo token >&2; exit 3")
    assert delivery.deliver(fails, MESSAGE, verbose=verbose) == "it ended with 3"
    assert capfd.readouterr().err == "token\n" * verbose


BAD = {
    "lying": program("sh", "-c", "echo delivered; exit 3"),
    "full": program("sleep", "1000"),  # it reads nothing
}


def night(folder: Path, target: TargetDocument) -> SuiteStatus:
    """Simulate ten hours of a suite, with a line each ten minutes; return its last status."""
    with Messenger(PLAN.suite_id, target) as sender:
        board = Board(PLAN, folder, lambda _: None, messenger=sender, watts={"system": 1.0})
        entries = []
        for line in range(60):
            entry = ENTRIES[line % len(ENTRIES)]
            t_ns = line * 600 * 10**9
            entries.append(replace(entry, seq=line, t_mono_ns=t_ns))
            board.entry(entries)
            sender.send("interrupted", "again")
        board.close()
    return strict_json.parse(SuiteStatus, (folder / "status" / "status.json").read_bytes())


def without_times(status: SuiteStatus) -> SuiteStatus:
    return replace(status, since_s=0, updated_wall="", ends_wall="", events=(), holder="")


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_receiver_changes_no_status_and_is_logged_once(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A program that fails has failed once it ran; another is not waited for.
    monkeypatch.setattr(messenger, "CLOSE_S", 60.0 if kind == "lying" else 0.5)
    quiet = night(tmp_path / "quiet", notifying())
    with caplog.at_level(logging.WARNING, "controller"):
        receiver = replace(BAD[kind], name=kind)
        disturbed = night(tmp_path / "bad", notifying(receiver))
    assert without_times(disturbed) == without_times(quiet)
    # A receiver that was not waited for may fail during another test.
    noted = [record.args for record in caplog.records if record.name == messenger.__name__]
    failures = [args for args in noted if isinstance(args, tuple) and args[0] == kind]
    assert len(failures) == 1, "noted once, whatever failed"


def test_a_bad_receiver_delays_neither_sender_nor_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messenger, "CLOSE_S", 0.5)
    out = tmp_path / "out"
    with Messenger("s", notifying(*BAD.values(), keeper(out))) as sender:
        sender.send("started", "6 runs")
        wait_until(lambda: len(received(out)) == 1)
        sender.send("sealed", "sealed")
        wait_until(lambda: len(received(out)) == 2)
    assert [message.event for message in received(out)] == ["started", "sealed"]


def test_a_hanging_receiver_is_killed_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    hangs = program("sh", "-c", f"sleep 1000 & echo $! >{pid}; wait")
    assert delivery.deliver(hangs, MESSAGE, 1.0) == "no end in 1 s"
    wait_until(lambda: has_ended(int(pid.read_text())))


def test_a_receiver_that_another_kills_did_not_hang() -> None:
    assert delivery.deliver(program("sh", "-c", "kill -9 $$"), MESSAGE) == "it ended with -9"


@pytest.mark.parametrize("mode", [None, 0o644])
def test_a_program_that_cannot_be_started_is_named(mode: int | None, tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    if mode is not None:
        hook.touch(mode)
    cause = "was not found" if mode is None else "is not executable"
    assert delivery.deliver(program(str(hook)), MESSAGE) == f"its program {hook} {cause}"
    lost = program("no-such-program")
    assert delivery.deliver(lost, MESSAGE) == "its program no-such-program was not found"


def test_a_missing_program_fails_and_other_events_are_not_sent(tmp_path: Path) -> None:
    out = tmp_path / "out"
    lost, picky = program(str(tmp_path / "none")), keeper(out, events=("failed",))
    (_, problem), second = send_tests(notifying(lost, picky))
    assert problem == f"its program {tmp_path}/none was not found" and second == ("p", "")
    assert [message.event for message in received(out)] == ["test"]
    with pytest.raises(KeyError), Messenger("s", notifying(picky)) as sender:
        sender.send("started", "6 runs")
        raise KeyError("disk")
    assert [message.event for message in received(out)] == ["test", "failed"]


@pytest.mark.parametrize(
    ("changes", "events"),
    [
        ({}, set()),
        ({"void_in_a_row": 1}, set()),
        ({"void_in_a_row": 2}, {"void-runs"}),
        ({"waiting": "it is warm", "waiting_for": "temperature", "since_s": 599.0}, set()),
        ({"waiting": "it is warm", "waiting_for": "temperature", "since_s": 601.0}, {"waiting"}),
        ({"waiting": "its disk is full", "waiting_for": "room", "since_s": 16.0}, {"waiting"}),
        ({"state": "suite-finished"}, {"finished"}),
        ({"answer": ANSWER}, set()),
    ],
)
def test_events_of_a_status(changes: dict[str, Any], events: set[str]) -> None:
    assert set(conditions(document(**changes), Notify())) == events


def test_an_interruption_is_one_event() -> None:
    before, after = document(interrupted=1), document(interrupted=2)
    assert set(conditions(after, Notify(), before)) == {"interrupted"}
    assert not conditions(after, Notify(), after) and not conditions(after, Notify())


def test_a_lasting_event_is_sent_once_and_a_flapping_one_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out = document(), tmp_path / "out"
    with Messenger("s", notifying(keeper(out))) as sender:
        for silent in (True, True, False, True):
            sender.observe(status, {"meter-silent": "m"} if silent else {})
        monkeypatch.setattr(messenger, "PAUSE_S", 0.0)
        for _ in range(2):
            sender.observe(status, {"meter-silent": "again"})
        sender.observe(status, {})
        sender.observe(status, {"target-lost": "t"})
    sent = received(out)
    assert [(message.event, message.sentence) for message in sent] == [
        ("meter-silent", "m"),
        ("meter-silent", "again"),
        ("target-lost", "t"),
    ]
    assert sent[0].status == status
