"""Read the journal of a running suite over a link that may drop."""

from __future__ import annotations

import logging
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from contract import bounded, journal
from contract.errors import ControllerError
from contract.journal import TERMINAL, Entry
from contract.plan import TargetDocument
from controller.session import progress_text
from controller.targets import connection
from controller.targets.connection import SSH_FAILED

log = logging.getLogger(__name__)

PATIENCE_S = 8.0  # a link that is back sooner is not reported
REPEAT_S = 3600.0


@dataclass
class LinkMonitor:
    """Tracks since when the target has been silent, and reports a long silence."""

    note: Callable[[str], None]
    _since_s: float | None = None
    _since_wall: str = ""
    _reason: str = ""
    _due_s: float = 0.0
    _noted: bool = False

    @property
    def gone(self) -> bool:
        """Whether the target is silent now."""
        return self._since_s is not None

    @property
    def lost_s(self) -> float:
        """Seconds since the target was last heard; 0 if it is heard now."""
        return time.monotonic() - self._since_s if self._since_s is not None else 0.0

    def up(self) -> None:
        """Note that the target is heard; report the end of a silence that was reported."""
        if self._noted:
            self.note(f"the target answers again, after {progress_text.minutes(self.lost_s)}")
        self._since_s, self._noted = None, False

    def dropped(self, reason: str) -> None:
        """Note that the target is silent, and why."""
        self._reason = reason
        if self._since_s is None:
            self._since_s = time.monotonic()
            self._since_wall = f"{datetime.now():%H:%M}"
            self._due_s = self._since_s + PATIENCE_S

    def tick(self) -> None:
        """Report a silence that has lasted, and again each hour."""
        if self._since_s is None or time.monotonic() < self._due_s:
            return
        still = "still " if self._noted else ""
        self.note(
            f"{still}no word from the target since {self._since_wall} ({self._reason}); "
            "the agent continues"
        )
        self._noted = True
        self._due_s = time.monotonic() + REPEAT_S


RETRY_S = 2.0
# A link that has lived that long without a line is up: ssh would have noticed a dead one.
STEADY_S = 20.0
MOST_LINE_BYTES, MOST_ENTRY_BYTES = 4 << 20, 1 << 16  # a line is an entry or a run's record
MOST_WAITING = 8  # lines; a target that sends without end is held up
ABANDONED = 4  # exit status of the follower on the target if no agent works on the suite
MOST_COMPLAINTS = 15  # failures of the follower in a row; more do not help


@dataclass(frozen=True)
class LinkEvents:
    """Callbacks for events of the link: `dropped` with a reason, `up`, `abandoned`, `record`.

    `abandoned` gets the follower's sentence and may raise ControllerError to stop following.
    `record` gets lines that are not entries: the run.json of runs that have finished, before the
    entry that switches the configuration or ends the suite.
    """

    dropped: Callable[[str], None]
    up: Callable[[], None]
    abandoned: Callable[[str], None]
    record: Callable[[str], None] = lambda _: None


def follow_command(target: TargetDocument, suite_id: str, start: int) -> list[str]:
    """Return the argv that prints a suite's journal on the target from entry `start` on."""
    path = connection.suite_dir(suite_id)
    arguments = ("-m", "agent", "follow", "--suite-dir", path, "--from", str(start))
    return connection.python(target, *arguments)


def follow(
    command: Callable[[int], Sequence[str]],
    events: LinkEvents,
    *,
    start: int = 0,
    stop: threading.Event,
    tick_s: float = 1.0,
    most_bytes: int = bounded.MOST_ANSWER_BYTES,
    most_record_bytes: int = 256 << 20,
) -> Iterator[Entry | None]:
    """Yield entries from number `start` on until the suite ends; None every `tick_s` without one.

    `command(n)` is the argv that prints entries from number n on as JSON lines and ends with code 0
    once the suite has. If it ends otherwise it is started again from the last entry that was
    received: receiving that again shows that the link is up. Raises ControllerError if the follower
    fails again and again or sends too much: in one line, in all entries together (`most_bytes`), or
    in all other lines (`most_record_bytes`).
    """
    next_seq, left_bytes, left_record_bytes = start, most_bytes, most_record_bytes
    complaints = 0
    while not stop.is_set():
        terminal = False
        with _Link(command(next_seq if next_seq == start else next_seq - 1)) as link:
            for entry, line_bytes in link.entries(tick_s, events):
                left_bytes -= line_bytes if entry else 0
                left_record_bytes -= 0 if entry else line_bytes
                if link.too_long or min(left_bytes, left_record_bytes) < 0:
                    raise ControllerError("journal-too-long", most_mib=most_bytes >> 20)
                if entry is not None:
                    complaints = 0
                    terminal = entry.state in TERMINAL
                    if entry.seq < next_seq:
                        continue
                    next_seq = entry.seq + 1
                yield entry
        if link.code == 0 and terminal:
            return
        if link.code == ABANDONED:
            events.up()
            events.abandoned(link.last_words)
        else:
            log.debug("the link to the journal ended: %s", link.last_words)
            events.dropped(link.last_words)
            complaints += link.code not in (0, SSH_FAILED) and link.code > 0
            if complaints >= MOST_COMPLAINTS:
                raise ControllerError("journal-not-followed", error=link.last_words)
        end = time.monotonic() + RETRY_S
        while time.monotonic() < end and not stop.wait(min(tick_s, RETRY_S)):
            yield None


class _Link:
    """A process that prints entries; ended with the context."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is handled here, in order
        )
        assert self._process.stderr is not None
        self._complaint = bounded.Tail(self._process.stderr)
        self.too_long = self._over = False
        self._lines: queue.Queue[str | None] = queue.Queue(MOST_WAITING)
        self._reader = threading.Thread(target=self._pump, daemon=True)
        self._reader.start()
        self.code = 0
        self.last_words = ""

    def entries(self, tick_s: float, events: LinkEvents) -> Iterator[tuple[Entry | None, int]]:
        """Yield entries with their lines' lengths until the process ends; None every `tick_s`.

        Calls `events.up` once the link is certain to reach the target. If a line is too long,
        `too_long` is set with the last.
        """
        steady_s = time.monotonic() + STEADY_S
        is_up = False
        while True:
            entry: Entry | None = None
            try:
                line = self._lines.get(timeout=tick_s)
            except queue.Empty:
                line = ""
            if line is None:
                if self.too_long:
                    yield None, 0
                return
            if line:
                try:
                    entry = journal.parse(line)
                    self.too_long |= len(line) > MOST_ENTRY_BYTES
                except ValueError:
                    events.record(line)
            if not is_up and (entry is not None or time.monotonic() > steady_s):
                is_up = True
                events.up()
            yield entry, len(line)

    def _pump(self) -> None:
        assert self._process.stdout is not None
        try:
            with self._process.stdout as stdout:
                for line in bounded.lines(stdout, MOST_LINE_BYTES):
                    if self._over:  # a process that it left behind may still write
                        break
                    self._lines.put(line)
        except bounded.TooLongError:
            self.too_long = True
        self._lines.put(None)

    def __enter__(self) -> _Link:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.code = self._process.wait()
        self._over = True
        self._process.kill()
        self._process.wait()
        with suppress(queue.Empty):  # it may wait for room there
            while self._reader.is_alive() and self._lines.get(timeout=1) is not None:
                pass
        self._reader.join(timeout=1)
        lost = self.code == SSH_FAILED or self.code < 0
        silent = "the connection was lost" if lost else f"code {self.code}"
        lines = self._complaint.text().splitlines()
        self.last_words = (lines[-1] if lines else silent).removeprefix("fde: ")
