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


def printing(entries: list[Entry], code: int = 0, cut_off: int = 0, said: str = "") -> list[str]:
    """Return a command that prints entries, the last cut off, complains and ends."""
    text = text_of(entries)
    text = text[: len(text) - cut_off]
    script = "import sys; sys.stdout.write(sys.argv[1]); sys.exit(sys.argv[2] or int(sys.argv[3]))"
    if said:
        script = "import sys; print(sys.argv[2], file=sys.stderr); sys.exit(int(sys.argv[3]))"
    return [sys.executable, "-c", script, text, said, str(code)]


class Ear:
    """What was heard of the link."""

    def __init__(self, abandoned: Callable[[str], None] | None = None) -> None:
        self.told: list[str] = []
        self.heard = LinkEvents(
            dropped=lambda reason: self.told.append(f"dropped: {reason}"),
            up=lambda: self.told.append("up"),
            abandoned=abandoned or (lambda said: self.told.append(f"abandoned: {said}")),
        )


def _all(entries: Iterator[Entry | None]) -> list[Entry]:
    return [entry for entry in entries if entry]


def test_a_dropped_link_is_taken_up_where_it_broke() -> None:
    asked: list[int] = []
    ear = Ear()

    def command(start: int) -> list[str]:
        asked.append(start)
        if len(asked) == 1:  # the link breaks within the third line
            return printing(ENTRIES[:3], code=255, cut_off=9)
        if len(asked) == 2:
            return printing([], code=255, said="Connection refused")
        return printing(ENTRIES[start:])

    assert _all(follow(command, ear.heard, stop=threading.Event())) == ENTRIES
    assert asked == [0, 1, 1]  # the last line seen comes again, to show that the link is up
    assert ear.told == [
        "up",
        "dropped: the connection was lost",
        "dropped: Connection refused",
        "up",
    ]


def test_records_of_runs_are_handed_on_and_are_no_entries() -> None:
    record = json.dumps({"run_id": "r", "phases": []})
    text = [json.dumps(asdict(entry)) for entry in ENTRIES]
    text[3:3] = [record, record[:9], "[1]"]
    script = f"print({chr(10).join(text)!r})"
    records: list[str] = []
    heard = replace(Ear().heard, record=records.append)
    command = [sys.executable, "-c", script]
    assert _all(follow(lambda _: command, heard, stop=threading.Event())) == ENTRIES
    assert [text.strip() for text in records] == [record, record[:9], "[1]"]


def test_a_link_that_ends_well_but_early_is_a_dropped_one() -> None:
    ear = Ear()
    got = _all(follow(lambda n: printing(ENTRIES[n : n + 2]), ear.heard, stop=threading.Event()))
    assert got == ENTRIES
    assert ear.told.count("dropped: code 0") == 2


def test_a_link_that_breaks_after_the_closing_line_still_ends() -> None:
    asked: list[int] = []

    def command(start: int) -> list[str]:
        asked.append(start)
        return printing(ENTRIES[start:], code=255 if len(asked) == 1 else 0)

    assert _all(follow(command, Ear().heard, stop=threading.Event())) == ENTRIES
    assert asked == [0, 3]


def test_a_suite_that_goes_on_is_not_ended_by_its_old_closing_line() -> None:
    """The first question is for what is new only."""
    asked: list[int] = []
    again = journal([*LINES, (3.0, "suite-failed", ""), (4.0, "suite-started", "")])
    ended = [*again, *journal([*LINES, (5.0, "suite-finished", "")])[3:]]

    def command(start: int) -> list[str]:
        asked.append(start)
        return printing(ended[start:])

    got = _all(follow(command, Ear().heard, start=4, stop=threading.Event()))
    assert [entry.state for entry in got] == ["suite-started"]
    assert asked[0] == 4


def test_silence_ticks_instead_of_blocking() -> None:
    silent = [sys.executable, "-c", "import time; time.sleep(60)"]
    ear = Ear()
    entries = follow(lambda _: silent, ear.heard, stop=threading.Event(), tick_s=0.05)
    assert next(entries) is None
    assert next(entries) is None
    entries.close()  # type: ignore[attr-defined]
    assert ear.told == []


def test_a_silent_link_that_lives_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_link, "STEADY_S", 0.1)
    silent = [sys.executable, "-c", "import time; time.sleep(60)"]
    ear = Ear()
    entries = follow(lambda _: silent, ear.heard, stop=threading.Event(), tick_s=0.05)
    while not ear.told:
        next(entries)
    entries.close()  # type: ignore[attr-defined]
    assert ear.told == ["up"]


def test_a_suite_that_nobody_works_on_is_told_with_the_sentence() -> None:
    def ended(reason: str) -> None:
        raise ControllerError(reason)

    command = printing([], code=4, said="fde: No agent runs in /x.")
    with pytest.raises(ControllerError, match=r"^No agent runs in /x"):
        _all(follow(lambda _: command, Ear(ended).heard, stop=threading.Event()))


def test_a_journal_that_cannot_be_read_ends_it() -> None:
    command = printing([], code=1, said="fde: Line 3 of journal.jsonl is damaged.")
    with refuses("journal-not-followed"):
        _all(follow(lambda _: command, Ear().heard, stop=threading.Event()))


def test_a_link_that_is_back_soon_is_not_worth_a_word() -> None:
    messages: list[str] = []
    word = LinkMonitor(messages.append)
    word.dropped("reset")
    word.tick()
    word.up()
    assert messages == []
