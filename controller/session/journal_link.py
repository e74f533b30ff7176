"""The journal of a running suite, read over a link that may drop."""

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

# A link that is back sooner is not worth a word.
PATIENCE_S = 8.0
REPEAT_S = 3600.0


class LinkMonitor:
    """Keeps count of when the target was last heard."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._since_s: float | None = None
        self._since_wall = ""
        self._reason = ""
        self._due_s = 0.0
        self._noted = False

    @property
    def gone(self) -> bool:
        """Whether the target cannot be heard now."""
        return self._since_s is not None

    @property
    def lost_s(self) -> float:
        """Seconds since the target was last heard; 0 where it is heard now."""
        return time.monotonic() - self._since_s if self._since_s is not None else 0.0

    def up(self) -> None:
        """Note that the link is there."""
        if self._since_s is not None and self._noted:
            away = progress_text.minutes(time.monotonic() - self._since_s)
            self._note(f"the target answers again, after {away}")
        self._since_s, self._noted = None, False

    def dropped(self, reason: str) -> None:
        """Note that it is not, for a reason."""
        self._reason = reason
        if self._since_s is None:
            self._since_s = time.monotonic()
            self._since_wall = f"{datetime.now():%H:%M}"
            self._due_s = self._since_s + PATIENCE_S

    def tick(self) -> None:
        """Note what is due."""
        if self._since_s is None or time.monotonic() < self._due_s:
            return
        still = "still " if self._noted else ""
        self._note(
            f"{still}no word from the target since {self._since_wall} ({self._reason}); "
            "the agent continues"
        )
        self._noted = True
        self._due_s = time.monotonic() + REPEAT_S


RETRY_S = 2.0
# A link that has lived so long without a word is up: a dead one would have been noticed.
STEADY_S = 20.0
# A line is an entry or a run's record; few wait, so that a target that does not end is held up.
MOST_LINE_BYTES, MOST_ENTRY_BYTES = 4 << 20, 1 << 16
MOST_WAITING = 8
# What the follower on the target ends with where nobody works on the suite.
ABANDONED = 4
# So many times in a row the same complaint of the follower itself: it does not recover by itself.
MOST_COMPLAINTS = 15


@dataclass(frozen=True)
class LinkEvents:
    """What becomes of the link: `dropped` with a reason, `up`, and `abandoned`.

    The latter gets the follower's sentence and may raise ControllerError to end it all. `record`
    gets lines that are no entries: the run.json of runs that have finished, ahead of the entry that
    switches the configuration or ends the suite.
    """

    dropped: Callable[[str], None]
    up: Callable[[], None]
    abandoned: Callable[[str], None]
    record: Callable[[str], None] = lambda _: None


def follow_command(target: TargetDocument, suite_id: str, start: int) -> list[str]:
    """Return the argv that prints a suite's journal there from entry `start` on."""
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
    """Entries from number `start` on; None every `tick_s` without one. Ends with the suite.

    `command(n)` is the argv that prints entries from number n on as JSON lines and ends with code 0
    once the suite has. Where it ends otherwise it is started again, from the last entry that was
    seen: that it comes again shows that the link is up. Raises ControllerError where the follower
    complains again and again, or sends too much: in one line, in all entries together
    (`most_bytes`), or in all other lines (`most_record_bytes`).
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
    """One process that prints entries; ended with the context."""

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
        """Yield entries until it ends, None every `tick_s`; with the length of the line.

        `events.up` is called when it is known to reach the target. Where a line is too long,
        `too_long` is set with the last.
        """
        steady_s = time.monotonic() + STEADY_S
        known = False
        while True:
            entry: Entry | None = None
            line = ""
            try:
                next_line = self._lines.get(timeout=tick_s)
            except queue.Empty:
                pass
            else:
                if next_line is None:
                    if self.too_long:
                        yield None, 0
                    return
                line = next_line
                try:
                    entry = journal.parse(line)
                except ValueError:
                    events.record(line)
                else:
                    self.too_long |= len(line) > MOST_ENTRY_BYTES
            if not known and (entry is not None or time.monotonic() > steady_s):
                known = True
                events.up()
            yield entry, len(line)

    def _pump(self) -> None:
        assert self._process.stdout is not None
        try:
            with self._process.stdout as stdout:
                for line in bounded.lines(stdout, MOST_LINE_BYTES):
                    if self._over:  # what it left behind may go on
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
