"""Where a running suite is: `status/status.json`, a page for a phone, and the terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from contract.files import write_json
from contract.journal import BEGUN, PRECONDITIONED, PRECONDITIONING, TERMINAL, Entry
from contract.plan import Plan
from controller import live, progress, status_page
from controller.suite_folder import myself

FORMAT = "fde-status/1"
WRITE_PERIOD_S = 5.0
EVENTS = 3
TOLD_STATES = TERMINAL | {
    *("suite-started", "waiting", "running", "void"),
    *(PRECONDITIONING, PRECONDITIONED),
}


@dataclass(frozen=True)
class Event:
    """Something worth telling, with the wall time at which it was heard here."""

    wall: str
    text: str


def document(
    plan: Plan,
    entries: Sequence[Entry],
    *,
    watts: Mapping[str, float],
    gaps: Mapping[str, int],
    events: Sequence[Event],
    since_s: float,
    now: datetime,
    holder: str = "",
) -> dict[str, Any]:
    """The document of status.json; `since_s` is how long the last line has stood."""
    last = entries[-1] if entries else None
    run = next((run for run in plan.runs if last and run.run_id == last.run_id), None)
    left_s = _left_s(plan, entries, since_s)
    return {
        "format": FORMAT,
        "suite_id": plan.suite_id,
        "suite": plan.suite,
        "host": plan.host,
        "state": last.state if last else "starting",
        "since_s": round(since_s, 1),
        "block": run.block + 1 if run else None,
        "blocks": plan.runs[-1].block + 1 if plan.runs else 0,
        "run_index": run.index + 1 if run else None,
        "runs": len(plan.runs),
        "run_id": run.run_id if run else "",
        "configuration": run.configuration if run else "",
        "workload": run.workload if run else "",
        **progress.counts(entries),
        "waiting": last.detail if last and last.state == "waiting" else None,
        "left_s": None if left_s is None else round(left_s),
        "ends_wall": None if left_s is None else _wall(now + timedelta(seconds=left_s)),
        "watts": dict(watts),
        "gaps": dict(gaps),
        "events": [{"wall": event.wall, "text": event.text} for event in events],
        "updated_wall": _wall(now),
        "holder": holder,
    }


def _left_s(plan: Plan, entries: Sequence[Entry], since_s: float) -> float | None:
    """Time left, less what the present state has taken, but for waiting: that is no progress."""
    if not entries or entries[-1].state in TERMINAL:
        return 0.0 if entries else None
    left_s = progress.remaining_s(plan, entries)
    if left_s is None:
        return None
    costs_s = progress.run_costs_s(entries).values()
    worked_s = min(since_s, max(costs_s)) if entries[-1].state in BEGUN else 0.0
    return max(0.0, left_s - worked_s)


class Board:
    """Shows a session's progress; any thread may call it.

    Where standard output is a terminal, a view that is redrawn in place; else the lines go to
    `say`. A status that cannot be written (a full disk) never ends a suite: it is told once.
    """

    def __init__(
        self, plan: Plan, suite_dir: Path, say: Callable[[str], None], *, screen: bool = True
    ) -> None:
        self._plan = plan
        self._folder = suite_dir / "status"
        self._say = say
        self._holder = myself()
        self._screen = live.Screen(sys.stdout) if screen and sys.stdout.isatty() else None
        self._lock = threading.RLock()
        self._entries: list[Entry] = []
        self._events: list[Event] = []
        self._watts: Mapping[str, float] = {}
        self._gaps: Mapping[str, int] = {}
        self._heard_ns = time.monotonic_ns()
        self._written_ns: int | None = None
        self._write_failed = False

    def entry(
        self, entries: Sequence[Entry], watts: Mapping[str, float], gaps: Mapping[str, int]
    ) -> None:
        """Lines were added to the journal: all that are known now, oldest first.

        Of those that were there before the first call, only the last is told.
        """
        with self._lock:
            told = len(self._entries) if self._entries else len(entries) - 1
            for seq in range(told, len(entries)):
                self._tell(entries[: seq + 1], watts)
            self._entries = list(entries)
            self._heard_ns = time.monotonic_ns()
            self._show(watts, gaps, write=True)

    def tick(self, watts: Mapping[str, float], gaps: Mapping[str, int]) -> None:
        """Nothing new but the time: redraw, and write if the last writing is 5 s ago."""
        with self._lock:
            due_ns = (self._written_ns or 0) + WRITE_PERIOD_S * progress.NS
            self._show(watts, gaps, write=time.monotonic_ns() >= due_ns)

    def note(self, sentence: str) -> None:
        """Something of the session itself, which no line of the journal says."""
        with self._lock:
            self._event(sentence)
            if self._screen is None:
                self._say(sentence)
            self._show(self._watts, self._gaps, write=True)

    def _tell(self, entries: Sequence[Entry], watts: Mapping[str, float]) -> None:
        sentence = progress.event(self._plan, entries[-1])
        if sentence:
            self._event(sentence)
        if self._screen is None and entries[-1].state in TOLD_STATES:
            self._say(progress.line(self._plan, entries, watts))

    def _event(self, sentence: str) -> None:
        self._events = [*self._events, Event(_wall(datetime.now(UTC)), sentence)][-EVENTS:]

    def _show(self, watts: Mapping[str, float], gaps: Mapping[str, int], *, write: bool) -> None:
        self._watts, self._gaps = watts, gaps
        now_ns = time.monotonic_ns()
        found = document(
            self._plan,
            self._entries,
            watts=watts,
            gaps=gaps,
            events=self._events,
            since_s=(now_ns - self._heard_ns) / progress.NS,
            now=datetime.now(UTC),
            holder=self._holder,
        )
        if write:
            self._written_ns = now_ns
            self._write(found)
        if self._screen:
            try:
                self._screen.show(found)
            except OSError:  # the terminal was closed; the suite goes on
                self._screen = None
                self._say("the terminal is gone")

    def _write(self, found: Mapping[str, Any]) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_json(self._folder / "status.json", found)
            status_page.write(self._folder / "index.html", found)
            self._write_failed = False
        except OSError as error:
            if not self._write_failed:
                self._write_failed = True
                self.note(f"the status cannot be written ({error.strerror}); the suite goes on")


def _wall(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
