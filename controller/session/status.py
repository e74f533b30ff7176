"""Show the progress of a running suite in `status/status.json` and on the terminal."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from contract import names
from contract.attempts import NS
from contract.files import write_json
from contract.journal import Entry
from contract.messages import EventCode
from contract.plan import Plan
from contract.status import Event, RunningAnswer, SuiteStatus
from controller.session import progress_text
from controller.session.messenger import Messenger
from controller.session.progress import suite_status
from controller.session.suite_folder import myself

if TYPE_CHECKING:
    from rich.console import OverflowMethod
    from rich.live import Live

log = logging.getLogger(__name__)

WRITE_PERIOD_S = 5.0
EVENTS = 3
BAR = 24
# Without a terminal: waits longer than the first are printed, and a line at least each period.
LONG_WAIT_S = 10.0
PRINT_PERIOD_S = 600.0
# Shorter alarms are not reported: a recorder is started again sooner.
ALARM_S = 8.0


class Screen:
    """Rows redrawn in place on a terminal, below all other output.

    Without a terminal, or on one that cannot move its cursor, it is not `live` and draws nothing.
    """

    def __init__(self) -> None:
        self._view: Live | None = None
        if sys.stdout.isatty():
            from rich.console import Console  # a quarter of a second: not for every command
            from rich.live import Live

            console = Console(highlight=False, markup=False, emoji=False)
            if not console.is_dumb_terminal:
                self._view = Live(console=console, auto_refresh=False)

    @property
    def live(self) -> bool:
        """Whether the screen draws."""
        return self._view is not None

    def show(self, rows: Iterable[tuple[str, str]]) -> None:
        """Draw rows of a label and a text, cut at the width of the terminal.

        Raises OSError if the terminal was closed.
        """
        if self._view is None:
            return
        from rich.text import Text

        console = self._view.console
        if not console.is_terminal:  # rich would say nothing
            raise OSError("the terminal is gone")
        cut: OverflowMethod = "crop" if console.options.ascii_only else "ellipsis"
        shown = [(names.sentence(label), names.sentence(text)) for label, text in rows]
        width = max(len(label) for label, _ in shown)
        lines = "\n".join(f"{label:<{width}}  {text}" for label, text in shown)
        if not self._view.is_started:
            self._view.start()
            console.show_cursor()  # else it stays hidden if this process is killed
        self._view.update(Text(lines, no_wrap=True, overflow=cut), refresh=True)

    def close(self) -> None:
        """End the view; later output is printed below the last one."""
        if self._view is not None:
            self._view.stop()


def rows(status: SuiteStatus) -> list[tuple[str, str]]:
    """Return the rows that show a status, as pairs of label and text."""
    share = min(status.finished / status.runs, 1.0) if status.runs else 0.0
    bar = f"[{'#' * round(share * BAR):-<{BAR}}] {share:4.0%}"
    watts = "  ".join(f"{name} {power_w:.2f} W" for name, power_w in status.watts.items())
    gaps = ", ".join(f"{name} {count}" for name, count in status.gaps.items() if count)
    trouble = [*progress_text.troubles(status), *([f"gaps of meters: {gaps}"] if gaps else [])]
    position = progress_text.position(status) or f"{status.finished} of {status.runs} runs"
    return [
        ("suite", status.suite_id),
        ("done", f"{bar}  {position}"),
        ("now", f"{progress_text.doing(status)} for {progress_text.minutes(status.since_s)}"),
        ("left", progress_text.remaining(status)),
        ("power", watts or "unknown"),
        *([("so far", progress_text.changes(status.answer))] if status.answer else []),
        *([("trouble", ", ".join(trouble))] if trouble else []),
        *((progress_text.clock(event.wall), event.text) for event in status.events),
    ]


class Lines:
    """The lines that show a suite's progress without a terminal.

    One as each block begins, one for a long wait, the answer so far after each block, and one after
    ten minutes without a line.
    """

    def __init__(self) -> None:
        self._printed: set[str] = set()
        self._answer: RunningAnswer | None = None
        self._printed_s = 0.0

    def next(self, status: SuiteStatus, *, between: bool = True) -> list[str]:
        """Return the lines to print for a status; with `between` also for states between runs."""
        lines: list[str] = []
        if status.answer and status.answer != self._answer:
            self._answer = status.answer
            lines.append(f"so far {progress_text.changes(status.answer)}")
        state = status.state
        shown = state in ("running", "waiting") or (between and status.run_index is None)
        long = state != "waiting" or status.since_s >= LONG_WAIT_S
        key = f"{status.block} {state} {status.waiting_for}"
        due = key not in self._printed or time.monotonic() - self._printed_s >= PRINT_PERIOD_S
        if shown and long and due:
            self._printed.add(key)
            self._printed_s = time.monotonic()
            lines.append(progress_text.compact(status))
        return lines


class Hosts:
    """A view of several sessions: rows by host on a terminal, else all their lines as they come."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._screen = Screen()
        self._width = max(map(len, hosts))
        self._rows = {host: ["starting"] for host in hosts}

    def line(self, host: str, text: str) -> None:
        """Show a line of a session; on a terminal as its only row, until it has a status."""
        if self._screen.live:
            self._rows[host] = [text]
        else:
            print(f"{host:<{self._width}} | {names.sentence(text)}", flush=True)

    def status(self, host: str, status: SuiteStatus | None) -> None:
        """Show a session's status, if it has one."""
        if status and self._screen.live:
            so_far = [f"so far {progress_text.changes(status.answer)}"] if status.answer else []
            self._rows[host] = [progress_text.compact(status), *so_far]

    def ended(self, host: str, outcome: str) -> None:
        """Show how a session ended."""
        self._rows[host] = [outcome]

    def draw(self) -> None:
        """Redraw the rows on a terminal."""
        self._screen.show(
            (host if number == 0 else "", line)
            for host, lines in self._rows.items()
            for number, line in enumerate(lines)
        )

    def close(self) -> None:
        """End the view; later output is printed below it."""
        self._screen.close()


@dataclass
class Board:
    """The view of one session's progress; any thread may call it.

    It is redrawn in place if standard output is a terminal; else its lines are printed. Notes are
    also logged. A status that cannot be written (a full disk) never ends a suite: it is noted once.
    `watts` and `gaps` are the latest readings of the meters.
    """

    plan: Plan
    suite_dir: Path
    say: Callable[[str], None]
    screen: Screen | None = field(default_factory=Screen)
    messenger: Messenger | None = None
    watts: Mapping[str, float] = field(default_factory=dict)
    gaps: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._holder = myself()
        self._alarms: dict[EventCode, tuple[str, float]] = {}  # sentence, since when
        self._lock = threading.RLock()
        self._entries: list[Entry] = []
        self._events: list[Event] = []
        self._answer: RunningAnswer | None = None
        self._lines = Lines()
        self._heard_ns = time.monotonic_ns()
        self._written_ns: int | None = None
        self._write_failed = False

    def entry(self, entries: Sequence[Entry]) -> None:
        """Show the new lines of the journal; `entries` are all of them, oldest first.

        Of the lines of the first call, only the last is shown.
        """
        with self._lock:
            first = len(self._entries) if self._entries else len(entries) - 1
            for entry in entries[first:]:
                if sentence := progress_text.event(self.plan, entry):
                    self._add_event(sentence, is_printed=entry.state != "waiting")
            self._entries = list(entries)
            self._heard_ns = time.monotonic_ns()
            self._show()

    def tick(self) -> None:
        """Redraw with the current time; write the status if that was last done 5 s ago."""
        with self._lock:
            due_ns = (self._written_ns or 0) + WRITE_PERIOD_S * NS
            self._show(write=time.monotonic_ns() >= due_ns)

    def answer(self, answer: RunningAnswer) -> None:
        """Show a new answer so far."""
        with self._lock:
            self._answer = answer
            log.info("so far %s", progress_text.changes(answer))
            self._show()

    def note(self, sentence: str, level: int = logging.INFO) -> None:
        """Log and show an event of the session that is not in the journal."""
        log.log(level, sentence)
        with self._lock:
            self._add_event(sentence)
            self._show()

    def warn(self, sentence: str) -> None:
        """Note a problem."""
        self.note(sentence, logging.WARNING)

    def alarm(self, event: EventCode, sentence: str) -> None:
        """Begin or continue an alarm, which is sent if it lasts; an empty sentence ends it."""
        with self._lock:
            if sentence:
                since_s = self._alarms.get(event, ("", time.monotonic()))[1]
                self._alarms[event] = sentence, since_s
            else:
                self._alarms.pop(event, None)

    def close(self) -> None:
        """End the view; later output is printed below it."""
        with self._lock, suppress(OSError):
            screen, self.screen = self.screen, None
            if screen is not None:
                screen.close()

    @property
    def _is_live(self) -> bool:
        return self.screen is not None and self.screen.live

    def _add_event(self, sentence: str, *, is_printed: bool = True) -> None:
        event = Event(progress_text.utc(datetime.now(UTC)), sentence)
        self._events = [*self._events, event][-EVENTS:]
        if is_printed and not self._is_live:
            self.say(sentence)

    def _show(self, *, write: bool = True) -> None:
        now_ns = time.monotonic_ns()
        status = suite_status(
            self.plan,
            self._entries,
            watts=self.watts,
            gaps=self.gaps,
            events=self._events,
            since_s=(now_ns - self._heard_ns) / NS,
            moment=datetime.now(UTC),
            holder=self._holder,
            answer=self._answer,
        )
        if self.messenger:
            old_s = time.monotonic() - ALARM_S
            alarms = {event: text for event, (text, since) in self._alarms.items() if since < old_s}
            self.messenger.observe(status, alarms)
        for line in () if self._is_live else self._lines.next(status, between=False):
            self.say(line)
        if write:
            self._written_ns = now_ns
            self._write(status)
        if self.screen:
            try:
                self.screen.show(rows(status))
            except OSError:  # the terminal was closed; the suite continues
                self.close()
                self.say("the terminal is gone")

    def _write(self, status: SuiteStatus) -> None:
        path = self.suite_dir / "status" / "status.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, asdict(status))
            self._write_failed = False
        except OSError as error:
            if not self._write_failed:
                self._write_failed = True
                self.warn(f"the status cannot be written ({error.strerror}); the suite continues")
