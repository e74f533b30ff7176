"""Times of the controller's sessions: when they began and what they took (sessions.jsonl)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from contract import strict_json
from contract.attempts import NS
from contract.documents import SessionLine
from contract.files import append_line
from contract.journal import boot_id
from instrumentation.clock import ClockReading, monotonic_ns

SESSIONS = "sessions.jsonl"


@contextmanager
def recorded(
    suite_dir: Path, seconds: dict[str, float], ended: Callable[[], str] = str
) -> Iterator[None]:
    """Write a session's begin to sessions.jsonl, and at its end what it took.

    That is `wall_s`, the `seconds` of its steps (`start_s`, `fetch_s`), and why it `ended` with
    runs left. One that was killed is known by its begin alone.
    """
    path = suite_dir / SESSIONS
    begin = {"begun_ns": monotonic_ns(), "controller_boot_id": boot_id()}
    append_line(path, {**begin, "pid": os.getpid()})
    try:
        with timed(seconds, "wall_s"):
            yield
    finally:
        append_line(path, {**begin, **seconds, **({"ended": ended()} if ended() else {})})


@contextmanager
def timed(seconds: dict[str, float], key: str) -> Iterator[None]:
    """Add the seconds spent within."""
    start_ns = time.monotonic_ns()
    try:
        yield
    finally:
        seconds[key] = seconds.get(key, 0.0) + (time.monotonic_ns() - start_ns) / NS


@contextmanager
def cpu_timed(seconds: dict[str, float], *, less: bool = False) -> Iterator[None]:
    """Add the CPU time that this process and those that it waited for took within.

    `controller_cpu_s` in `controller_cpu_wall_s`; with `less`, take that off again: it was before
    the first run, or after the last.
    """
    before = os.times()
    try:
        yield
    finally:
        took = [after - then for after, then in zip(os.times(), before, strict=True)]
        for key, value in (("controller_cpu_s", sum(took[:4])), ("controller_cpu_wall_s", took[4])):
            seconds[key] = seconds.get(key, 0.0) + (-value if less else value)


@dataclass(frozen=True)
class Session:
    """A session by its last line; a killed one lasted until its last clock reading."""

    line: SessionLine
    killed: bool = False

    @property
    def wall_s(self) -> float:
        """How long it lasted."""
        return self.line.wall_s or 0.0


def read_sessions(suite_dir: Path, clock: Iterable[ClockReading] = ()) -> list[Session]:
    """Return the sessions of a suite's sessions.jsonl, oldest first."""
    return sessions_of(strict_json.lines(SessionLine, suite_dir / SESSIONS), clock)


def sessions_of(lines: Iterable[SessionLine], clock: Iterable[ClockReading]) -> list[Session]:
    """Return the sessions of these lines, oldest first."""
    sessions: dict[tuple[str | None, int], Session] = {}
    begins: list[SessionLine] = []
    for line in lines:
        key = line.controller_boot_id, line.begun_ns
        sessions[key] = Session(line, killed=line.wall_s is None)
        if line.wall_s is None:
            begins.append(line)
    for begin, after in pairwise([*begins, None]):
        assert begin is not None
        key = begin.controller_boot_id, begin.begun_ns
        if sessions[key].killed:
            lived = replace(begin, wall_s=_lived_s(begin, after, clock))
            sessions[key] = Session(lived, killed=True)
    return list(sessions.values())


def _lived_s(begin: SessionLine, after: SessionLine | None, clock: Iterable[ClockReading]) -> float:
    """Seconds from a session's begin to its last clock reading; the next session's come later."""
    boot = begin.controller_boot_id
    same = after is not None and after.controller_boot_id == boot
    until_ns = after.begun_ns if after is not None and same else None
    heard_ns = [
        reading.t_receive_ns
        for reading in clock
        if reading.controller_boot_id == boot
        and reading.t_receive_ns > begin.begun_ns
        and (until_ns is None or reading.t_receive_ns < until_ns)
    ]
    return (max(heard_ns) - begin.begun_ns) / NS if heard_ns else 0.0
