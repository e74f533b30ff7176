"""Record when the controller's sessions began and how long they took, in sessions.jsonl."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
    """Write a session's begin to sessions.jsonl, and its duration at the end.

    The latter is `wall_s`, the `seconds` of its steps (`start_s`, `fetch_s`), and why it `ended`
    with runs left. Of a session that was killed only the begin is recorded.
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
    """Add the seconds spent in the context to `seconds[key]`."""
    start_ns = time.monotonic_ns()
    try:
        yield
    finally:
        seconds[key] = seconds.get(key, 0.0) + (time.monotonic_ns() - start_ns) / NS


@contextmanager
def cpu_timed(seconds: dict[str, float], *, less: bool = False) -> Iterator[None]:
    """Add the CPU time of this process and those that it waited for during the context.

    `controller_cpu_s` is out of `controller_cpu_wall_s`. With `less` the times are subtracted:
    those before the first run and after the last.
    """
    begin = os.times()
    try:
        yield
    finally:
        *cpu_s, wall_s = (end - start for end, start in zip(os.times(), begin, strict=True))
        for key, value in (("controller_cpu_s", sum(cpu_s)), ("controller_cpu_wall_s", wall_s)):
            seconds[key] = seconds.get(key, 0.0) + (-value if less else value)


@dataclass(frozen=True)
class PastSession:
    """A session by its last line; one that was killed lasted until its last clock reading."""

    line: SessionLine
    killed: bool

    @property
    def wall_s(self) -> float:
        """The session's duration in seconds."""
        return self.line.wall_s or 0.0


def read_sessions(suite_dir: Path, clock: Sequence[ClockReading] = ()) -> list[PastSession]:
    """Read the sessions of a suite from sessions.jsonl, oldest first."""
    return sessions_of(strict_json.lines(SessionLine, suite_dir / SESSIONS), clock)


def sessions_of(lines: Iterable[SessionLine], clock: Sequence[ClockReading]) -> list[PastSession]:
    """Return the sessions of the lines of sessions.jsonl, oldest first."""
    last_lines = {(line.controller_boot_id, line.begun_ns): line for line in lines}
    sessions = []
    for (boot, begun_ns), line in last_lines.items():
        if line.wall_s is not None:
            sessions.append(PastSession(line, killed=False))
            continue
        later = (begin_ns for other, begin_ns in last_lines if other == boot)
        until_ns = min((begin_ns for begin_ns in later if begin_ns > begun_ns), default=math.inf)
        received = (r.t_receive_ns for r in clock if r.controller_boot_id == boot)
        heard_ns = [time_ns for time_ns in received if begun_ns < time_ns < until_ns]
        wall_s = (max(heard_ns, default=begun_ns) - begun_ns) / NS
        sessions.append(PastSession(replace(line, wall_s=wall_s), killed=True))
    return sessions
