"""Why a session ends before its suite: its time is over, or a person asked."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from pathlib import Path

from agent.system.admission import Bounds, boottime_ns
from contract.attempts import NS, History
from contract.documents import EndCode
from contract.errors import ControllerError
from contract.journal import TERMINAL, Entry
from contract.plan import Plan
from controller.planning.past_durations import longest_s, read_durations
from controller.session.agent_client import AgentClient
from controller.session.progress import unfinished
from controller.session.secrets_delivery import SECRETS

STOP = ".stop"
"""A file in a suite's folder by which a person asks its session to end after the run."""
RETRY_S = 2.0
FETCH_S = 60.0  # reserved before the end for the last mark and the results
MINUTE_S = 60


class TimeOverError(Exception):
    """A session's time is over, whether or not a run is under way."""


@dataclass
class Ending:
    """When a session ends and, by `code`, why it did; sets the agent's bounds accordingly.

    `end_ns` is on CLOCK_BOOTTIME, so that neither a step of the wall clock nor sleep moves it.
    While `unsent` the target does not have the current bounds.
    """

    plan: Plan
    suite_dir: Path
    agent: AgentClient
    end_ns: int | None = None
    code: EndCode = ""
    unsent: bool = False
    _longest_s: Mapping[str, float] = field(default_factory=dict)
    _retry_s: float = 0.0
    _last: Entry | None = None

    def begin(self, entries: Sequence[Entry]) -> None:
        """Set the bounds before the agent starts. Raises ControllerError if that fails."""
        if self.end_ns is not None and not self._longest_s:
            durations = read_durations(self.suite_dir.parent, self.plan.host, self.plan.origin)
            self._longest_s = longest_s(durations, self.plan)
        bounded = self._bounds != Bounds()
        if not entries and not bounded:
            return  # a suite that has not begun has no bounds of an earlier session
        if not self.agent.bound(self._bounds) and bounded:
            raise ControllerError("bounds-not-set", host=self.plan.host)

    def follow(self, entries: Sequence[Entry], *, reached: bool) -> None:
        """Set the bounds again after a request to stop or a boot of the target.

        Raises TimeOverError at the end, also during a run.
        """
        if self.end_ns is not None and boottime_ns() >= self.end_ns:
            self.code = "until"
            raise TimeOverError
        if not self.code and (self.suite_dir / STOP).exists():
            self.code, self.unsent = "stopped", True
        last = entries[-1] if entries else None
        if last is not None and last is not self._last and last.state == "waiting":
            self._last = last
            # A target that has booted waits for its secrets, and has no bounds.
            self.unsent |= last.cause == SECRETS and self._bounds != Bounds()
        if self.unsent and reached and time.monotonic() >= self._retry_s:
            self._retry_s = time.monotonic() + RETRY_S
            self.unsent = not self.agent.bound(self._bounds)

    def conclude(self, entries: Sequence[Entry]) -> bool:
        """Set `code` if the agent has closed the suite with runs left; return whether it has."""
        if not unfinished(self.plan, History(entries)) or entries[-1].state not in TERMINAL:
            self.code = ""
        elif self.end_ns is not None:
            self.code = self.code or "until"
        return bool(self.code)

    @property
    def _bounds(self) -> Bounds:
        if self.code:
            return Bounds(0.0)
        seconds = None
        if self.end_ns is not None:
            seconds = (self.end_ns - boottime_ns()) / NS - FETCH_S
        return Bounds(seconds, self._longest_s)


def next_time(now_s: float, clock: datetime, zone: tzinfo | None = None) -> float:
    """Return the next moment at which clocks show a time of day, or skip it in spring.

    A time that clocks show twice in autumn occurs twice. Moments are seconds of the Unix epoch. Of
    `clock` only hour and minute count; `zone` is the local one by default.
    """

    def shown(moment_s: float) -> datetime:
        return datetime.fromtimestamp(moment_s, zone).replace(tzinfo=None)

    moment_s = now_s // MINUTE_S * MINUTE_S
    while True:
        before, moment_s = shown(moment_s), moment_s + MINUTE_S
        if before < datetime.combine(shown(moment_s), clock.time()) <= shown(moment_s):
            return moment_s
