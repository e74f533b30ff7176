"""Following a journal over a link that drops, hangs and comes back."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace

import pytest

from contract.errors import ControllerError
from contract.journal import Entry
from contract.tests.refusal import refuses
from controller.session import journal_link
from controller.session.journal_link import LinkEvents, LinkMonitor, follow
from controller.tests.examples import journal, text_of

LINES = [(0.0, "suite-started", ""), (1.0, "running", "r"), (2.0, "finished", "r")]
ENTRIES = journal([*LINES, (3.0, "suite-finished", "")])


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_link, "RETRY_S", 0.01)


def printing(entries: list[Entry], code: int = 0, cut_off: int = 0, error: str = "") -> list[str]:
    """Return a command that prints entries, the last cut off, complains and ends."""
    text = text_of(entries)
    text = text[: len(text) - cut_off]
    script = "import sys; sys.stdout.write(sys.argv[1]); sys.exit(sys.argv[2] or int(sys.argv[3]))"
    if error:
        script = "import sys; print(sys.argv[2], file=sys.stderr); sys.exit(int(sys.argv[3]))"
    return [sys.executable, "-c", script, text, error, str(code)]


class Ear:
    """Callbacks of a link that note its events."""

    def __init__(self, abandoned: Callable[[str], None] | None = None) -> None:
        self.events: list[str] = []
        self.calls = LinkEvents(
            dropped=lambda reason: self.events.append(f"dropped: {reason}"),
            up=lambda: self.events.append("up"),
            abandoned=abandoned or (lambda reason: self.events.append(f"abandoned: {reason}")),
        )


def _all(entries: Iterator[Entry | None]) -> list[Entry]:
    return [entry for entry in entries if entry]


def test_a_dropped_link_resumes_at_the_last_received_entry() -> None:
    asked: list[int] = []
    ear = Ear()

    def command(start: int) -> list[str]:
        asked.append(start)
        if len(asked) == 1:  # the link breaks within the third line
            return printing(ENTRIES[:3], code=255, cut_off=9)
        if len(asked) == 2:
            return printing([], code=255, error="Connection refused")
        return printing(ENTRIES[start:])

    assert _all(follow(command, ear.calls, stop=threading.Event())) == ENTRIES
    assert asked == [0, 1, 1]  # the last line seen comes again, to show that the link is up
    assert ear.events == [
        "up",
        "dropped: the connection was lost",
        "dropped: Connection refused",
        "up",
    ]


def test_run_records_reach_the_callback_and_are_not_yielded() -> None:
    record = json.dumps({"run_id": "r", "phases": []})
    text = [json.dumps(asdict(entry)) for entry in ENTRIES]
    text[3:3] = [record, record[:9], "[1]"]
    script = f"print({chr(10).join(text)!r})"
    records: list[str] = []
    calls = replace(Ear().calls, record=records.append)
    command = [sys.executable, "-c", script]
    assert _all(follow(lambda _: command, calls, stop=threading.Event())) == ENTRIES
    assert [text.strip() for text in records] == [record, record[:9], "[1]"]


def test_exit_code_0_before_the_last_entry_counts_as_a_drop() -> None:
    ear = Ear()
    got = _all(follow(lambda n: printing(ENTRIES[n : n + 2]), ear.calls, stop=threading.Event()))
    assert got == ENTRIES
    assert ear.events.count("dropped: code 0") == 2


def test_a_drop_after_the_last_entry_reads_it_again_and_ends() -> None:
    asked: list[int] = []

    def command(start: int) -> list[str]:
        asked.append(start)
        return printing(ENTRIES[start:], code=255 if len(asked) == 1 else 0)

    assert _all(follow(command, Ear().calls, stop=threading.Event())) == ENTRIES
    assert asked == [0, 3]


def test_a_resumed_suite_ignores_its_old_last_line() -> None:
    """The first command asks for new entries only."""
    asked: list[int] = []
    again = journal([*LINES, (3.0, "suite-failed", ""), (4.0, "suite-started", "")])
    ended = [*again, *journal([*LINES, (5.0, "suite-finished", "")])[3:]]

    def command(start: int) -> list[str]:
        asked.append(start)
        return printing(ended[start:])

    got = _all(follow(command, Ear().calls, start=4, stop=threading.Event()))
    assert [entry.state for entry in got] == ["suite-started"]
    assert asked[0] == 4


def test_a_silent_link_yields_none_each_tick_and_counts_as_up_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal_link, "STEADY_S", 0.3)
    silent = [sys.executable, "-c", "import time; time.sleep(60)"]
    ear = Ear()
    entries = follow(lambda _: silent, ear.calls, stop=threading.Event(), tick_s=0.05)
    assert next(entries) is None and ear.events == []
    assert any(next(entries) is None and ear.events for _ in range(100))
    entries.close()  # type: ignore[attr-defined]
    assert ear.events == ["up"]


def test_an_abandoned_suite_passes_on_the_followers_sentence() -> None:
    def ended(reason: str) -> None:
        raise ControllerError(reason)

    command = printing([], code=4, error="fde: No agent runs in /x.")
    with pytest.raises(ControllerError, match=r"^No agent runs in /x"):
        _all(follow(lambda _: command, Ear(ended).calls, stop=threading.Event()))


def test_a_follower_that_always_fails_raises() -> None:
    command = printing([], code=1, error="fde: Line 3 of journal.jsonl is damaged.")
    with refuses("journal-not-followed"):
        _all(follow(lambda _: command, Ear().calls, stop=threading.Event()))


def test_a_short_drop_is_not_reported() -> None:
    messages: list[str] = []
    word = LinkMonitor(messages.append)
    word.dropped("reset")
    word.tick()
    word.up()
    assert messages == []
