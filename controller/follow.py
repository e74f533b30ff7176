"""The journal of a running suite as it grows, over a link that may drop."""

from __future__ import annotations

import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from contract import journal
from contract.errors import ControllerError
from contract.journal import TERMINAL, Entry
from controller.remote import SSH_FAILED

RETRY_S = 2.0
# A link that has lived so long without a word is up: a dead one would have been noticed.
STEADY_S = 20.0
# What the follower on the target ends with where nobody works on the suite.
ABANDONED = 4
# So many times in a row the same complaint of the follower itself: it will not mend by itself.
MOST_COMPLAINTS = 15


@dataclass(frozen=True)
class Heard:
    """What becomes of the link: `dropped` with a reason, `up`, and `abandoned` with the follower's
    sentence, which may raise ControllerError to end it all."""

    dropped: Callable[[str], None]
    up: Callable[[], None]
    abandoned: Callable[[str], None]


def follow(
    command: Callable[[int], Sequence[str]],
    heard: Heard,
    *,
    start: int = 0,
    stop: threading.Event,
    tick_s: float = 1.0,
) -> Iterator[Entry | None]:
    """Entries from number `start` on; None every `tick_s` without one. Ends with the suite.

    `command(n)` is the argv that prints entries from number n on as JSON lines and ends with code 0
    once the suite has. Where it ends otherwise it is started again, from the last entry that was
    seen: that it comes again shows that the link is up. Raises ControllerError where the follower
    complains again and again.
    """
    seen = start
    complaints = 0
    while not stop.is_set():
        terminal = False
        with _Link(command(seen if seen == start else seen - 1)) as link:
            for entry in link.entries(tick_s, heard.up):
                if entry is not None:
                    complaints = 0
                    terminal = entry.state in TERMINAL
                    if entry.seq < seen:
                        continue
                    seen = entry.seq + 1
                yield entry
        if link.code == 0 and terminal:
            return
        if link.code == ABANDONED:
            heard.up()
            heard.abandoned(link.said)
        else:
            heard.dropped(link.said)
            complaints += link.code not in (0, SSH_FAILED) and link.code > 0
            if complaints >= MOST_COMPLAINTS:
                raise ControllerError(f"The journal on the target cannot be followed: {link.said}")
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
            text=True,
            start_new_session=True,  # Ctrl-C is handled here, in order
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._complaint: list[str] = []
        self._readers = [
            threading.Thread(target=target, daemon=True) for target in (self._pump, self._listen)
        ]
        for reader in self._readers:
            reader.start()
        self.code = 0
        self.said = ""

    def entries(self, tick_s: float, up: Callable[[], None]) -> Iterator[Entry | None]:
        """Until it ends; None every `tick_s`. `up` is called when it is known to reach the
        target."""
        steady_s = time.monotonic() + STEADY_S
        known = False
        while True:
            entry: Entry | None = None
            try:
                line = self._lines.get(timeout=tick_s)
            except queue.Empty:
                pass
            else:
                if line is None:
                    return
                entry = _parse(line)
            if not known and (entry is not None or time.monotonic() > steady_s):
                known = True
                up()
            yield entry

    def _pump(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _listen(self) -> None:
        assert self._process.stderr is not None
        self._complaint += self._process.stderr.read().strip().splitlines()

    def __enter__(self) -> _Link:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.code = self._process.wait()
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join(timeout=1)
        lost = self.code == SSH_FAILED or self.code < 0
        silent = "the connection was lost" if lost else f"code {self.code}"
        last = self._complaint[-1] if self._complaint else silent
        self.said = last.removeprefix("fde: ")


def _parse(line: str) -> Entry | None:
    """An entry; None for a line that a dropped link has cut off."""
    try:
        return journal.parse(line)
    except (ValueError, TypeError):
        return None
