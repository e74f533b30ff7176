"""Fold the lines of a journal into attempts at runs, their outcomes and durations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from contract.journal import (
    BEGUN,
    CLOSED,
    INTERRUPTIONS,
    PRECONDITIONED,
    REPEAT,
    SKIPPED,
    TERMINAL,
    Entry,
    Fact,
)
from contract.plan import Run

NS = 1_000_000_000
# Limits for power cuts in a night and for crashes of the agent in the same run: a crash loop.
MOST_INTERRUPTIONS = 60
MOST_IN_ONE_BOOT = 5
_EDGES = CLOSED | {"suite-started", PRECONDITIONED}


def seconds_between(first: Entry, last: Entry) -> float | None:
    """Return the seconds from one line to another; None if they are of different boots."""
    if first.boot_id != last.boot_id:
        return None
    return (last.t_mono_ns - first.t_mono_ns) / NS


@dataclass
class Attempt:
    """The lines of a run up to the one that closes it.

    `previous` is the end of the preceding step: another attempt, the preconditioning of a disk or
    the agent's start. `rejection` requests that a finished attempt be repeated.
    """

    run_id: str
    entries: list[Entry] = field(default_factory=list)
    previous: Entry | None = None
    rejection: Entry | None = None

    @property
    def state(self) -> str:
        """Return the last state of the attempt."""
        return (self.rejection or self.entries[-1]).state

    @property
    def since_running(self) -> list[Entry]:
        """Return `running`, `proving` and closing lines since the last `running`.

        An attempt without one of these gives all its lines.
        """
        places = [place for place, e in enumerate(self.entries) if e.state == "running"]
        lines = self.entries[places[-1] :] if places else self.entries
        return [e for e in lines if e.state in ("running", "proving", *CLOSED)] or self.entries

    @property
    def closing(self) -> Entry | None:
        """Return the line that closed the attempt; None while it is open."""
        last = self.entries[-1]
        return last if last.state in CLOSED else None

    @property
    def void(self) -> Entry | None:
        """Return the line that made the attempt void, at its end or later."""
        closing = self.closing
        return closing if closing and closing.state == "void" else self.rejection

    @property
    def finished(self) -> Entry | None:
        """Return the line that finished the attempt, even if it was rejected later."""
        closing = self.closing
        return closing if closing and closing.state == "finished" else None

    @property
    def begun(self) -> Entry | None:
        """Return the last line of a step; None if the attempt was closed before its first."""
        return next((e for e in reversed(self.entries) if e.state in BEGUN), None)

    @property
    def cut_short(self) -> dict[str, Fact]:
        """Return the facts of a line that closes an interrupted attempt: its last state."""
        return {"during": self.entries[-1].state}

    @property
    def running(self) -> Entry | None:
        """Return the first line `running`."""
        return next((entry for entry in self.entries if entry.state == "running"), None)

    @property
    def lead_s(self) -> float | None:
        """Return the seconds from `previous` to `running`: switching and waiting."""
        running = self.running
        return seconds_between(self.previous, running) if self.previous and running else None

    @property
    def worked_s(self) -> float | None:
        """Return the seconds from `running` to the end without waiting; None across a boot."""
        running, closing = self.running, self.closing
        if not running or not closing or running.boot_id != closing.boot_id:
            return None
        lines = self.entries[self.entries.index(running) :]
        return sum(seconds_between(a, b) or 0.0 for a, b in pairwise(lines) if a.state != "waiting")

    @property
    def switches_s(self) -> list[float]:
        """Return the seconds of each switch of the configuration."""
        pairs = [pair for pair in pairwise(self.entries) if pair[0].state == "switching"]
        return [seconds for pair in pairs if (seconds := seconds_between(*pair)) is not None]


@dataclass
class Account:
    """State of a run after all its attempts.

    `failed` counts void attempts and rejected ones since the suite was last restarted;
    `interrupted` those that were cut short, by the boot in which they began. `cannot`: the target
    lacks what the workload needs.
    """

    attempts: list[Attempt] = field(default_factory=list)
    finished: bool = False
    cannot: bool = False
    failed: int = 0
    interrupted: dict[str, int] = field(default_factory=dict)

    @property
    def open(self) -> Attempt | None:
        """Return the attempt that has no closing line."""
        last = self.attempts[-1] if self.attempts else None
        return last if last and not last.closing else None

    def given_up(self, boot_id: str) -> bool:
        """Return whether the run was interrupted too often to be tried again in this boot."""
        return (
            sum(self.interrupted.values()) >= MOST_INTERRUPTIONS
            or self.interrupted.get(boot_id, 0) >= MOST_IN_ONE_BOOT
        )

    def due(self, attempts: int, boot_id: str) -> bool:
        """Return whether the run must be tried (again)."""
        tried = self.cannot or self.failed >= attempts or self.given_up(boot_id)
        return not self.finished and not tried

    def restart(self) -> None:
        """Reset the counts of failures of a run that is not finished."""
        if not self.finished:
            self.cannot, self.failed = False, 0
            self.interrupted.clear()


class History:
    """All attempts of a suite, in order, and the account of each run; fed line by line.

    Starting a suite that had ended resets the counts: void runs get all their attempts again,
    unless the suite was started only because a repetition was requested.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.attempts: list[Attempt] = []
        self.last: Entry | None = None
        self._accounts: dict[str, Account] = {}
        self._void_in_a_row: dict[str, None] = {}
        self._ended = False
        self._previous: Entry | None = None
        for entry in entries:
            self.add(entry)

    def account(self, run_id: str) -> Account:
        """Return the account of a run; an empty one if it was never tried."""
        return self._accounts.setdefault(run_id, Account())

    @property
    def latest(self) -> list[Attempt]:
        """Return the latest attempt of each run."""
        return [account.attempts[-1] for account in self._accounts.values() if account.attempts]

    @property
    def void_in_a_row(self) -> int:
        """Count the runs begun and void since one was finished: a fault of the machine."""
        return len(self._void_in_a_row)

    def begun(self) -> list[Attempt]:
        """Return the attempts that were begun and have no closing line."""
        attempts = (account.open for account in self._accounts.values())
        return [attempt for attempt in attempts if attempt and attempt.begun]

    def next_due(self, runs: Sequence[Run], attempts: int, boot_id: str) -> Run | None:
        """Return the first run of the plan that is due."""
        return next((r for r in runs if self.account(r.run_id).due(attempts, boot_id)), None)

    def add(self, entry: Entry) -> Attempt | None:
        """Process one more line; return the attempt that it belongs to."""
        self.last = entry
        if entry.state in TERMINAL:
            self._ended = True
        elif entry.state == "suite-started" and self._ended:
            self._ended = False
            self._void_in_a_row.clear()
            for account in self._accounts.values():
                account.restart()
        attempt = self._extend(entry) if entry.run_id else None
        if entry.state in _EDGES:
            self._previous = entry
        return attempt

    def _extend(self, entry: Entry) -> Attempt:
        account = self.account(entry.run_id)
        attempt, last = account.open, account.attempts[-1] if account.attempts else None
        begun = attempt.begun if attempt else None
        if entry.state == "void" and last and last.finished and not last.rejection:
            attempt, last.rejection = last, entry
        elif attempt is None:
            attempt = Attempt(entry.run_id)
            self.attempts.append(attempt)
            account.attempts.append(attempt)
        if attempt.rejection is not entry:
            if entry.state == "running" and not attempt.running:
                attempt.previous, self._previous = self._previous, None
            attempt.entries.append(entry)
        if entry.state in CLOSED:
            self._close(account, entry, begun)
        return attempt

    def _close(self, account: Account, entry: Entry, begun: Entry | None) -> None:
        account.finished = entry.state == "finished"
        if account.finished:
            self._void_in_a_row.clear()
            return
        if entry.cause == REPEAT:
            self._ended = False
            account.failed += 1
            return
        if entry.cause in INTERRUPTIONS:
            boot_id = (begun or entry).boot_id
            account.interrupted[boot_id] = account.interrupted.get(boot_id, 0) + 1
            if account.given_up(boot_id):
                self._void_in_a_row[entry.run_id] = None
            return
        account.failed += 1
        account.cannot = entry.cause == SKIPPED
        if begun:
            self._void_in_a_row[entry.run_id] = None


@dataclass(frozen=True)
class Span:
    """The time from one line of a journal to the next.

    `attempt` is that of the first line; `starting`: the second line is written by a starting agent.
    """

    entry: Entry
    after: Entry
    attempt: Attempt | None
    starting: bool

    @property
    def seconds(self) -> float | None:
        """Return the length of the span; None across a boot of the target."""
        return seconds_between(self.entry, self.after)


def spans(entries: Sequence[Entry]) -> list[Span]:
    """Return the spans between the lines of a journal, in order."""
    history = History()
    attempts = [history.add(entry) for entry in entries]
    starting = _starting(entries)
    return [
        Span(entry, after, attempt, place in starting)
        for place, (attempt, (entry, after)) in enumerate(
            zip(attempts, pairwise(entries), strict=False), 1
        )
    ]


def _starting(entries: Sequence[Entry]) -> set[int]:
    """Return the indexes of lines written by a starting agent.

    These are `suite-started` and, before it, the voids of attempts that an earlier agent left open
    and of runs to repeat.
    """
    places: set[int] = set()
    start: Entry | None = None
    folded = INTERRUPTIONS | {REPEAT}
    for place, entry in reversed(list(enumerate(entries))):
        if entry.state == "suite-started":
            start = entry
        elif start and not (
            entry.state == "void" and entry.boot_id == start.boot_id and entry.cause in folded
        ):
            start = None
        if start:
            places.add(place)
    return places
