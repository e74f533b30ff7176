"""Interruptions of the main thread: a signal to stop, and the end of a run's time."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TypeVar

from contract import system_text
from contract.interrupts import handled

T = TypeVar("T")

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
# Tidying up after a run that took too long may hang as well.
AGAIN_S = 60.0
# How long killed programs may take to be gone.
DYING_S = 10.0


class Stop(BaseException):
    """Asked to stop by a signal; no handler of ordinary failures may swallow it."""


class TooLong(BaseException):
    """The time of a run is over; no handler of ordinary failures may swallow it."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise Stop once on SIGTERM or SIGINT; a second signal is ignored while it tidies up."""
    numbers = (signal.SIGTERM, signal.SIGINT)

    def stop(_number: int, _frame: FrameType | None) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        # The tidying up is no part of the run's time.
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise Stop

    with handled(dict.fromkeys(numbers, stop)):
        yield


class Limit:
    """The time of one run. Only in the main thread, and only one at a time."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Kill the programs that the block started after `seconds`, and raise TooLong in it.

        It is raised again every minute until the block ends. None: no limit.
        """
        if self._seconds is None:
            yield
            return

        def over(_number: int, _frame: FrameType | None) -> None:
            kill_children()
            raise TooLong

        with handled({signal.SIGALRM: over}):
            signal.setitimer(signal.ITIMER_REAL, self._seconds, AGAIN_S)
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)

    def outside(self, wait: Callable[[], T]) -> T:
        """Call `wait` with the clock of the run stopped."""
        if self._seconds is None:
            return wait()
        left_s, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            return wait()
        finally:
            signal.setitimer(signal.ITIMER_REAL, max(left_s, 0.001), AGAIN_S)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that `kill_children` finds them."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_children() -> None:
    """Kill every descendant of this process, and return once they are gone (or cannot go)."""
    end_s = time.monotonic() + DYING_S
    while (descendants := _descendants(os.getpid())) and time.monotonic() < end_s:
        for pid in descendants:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def reap() -> None:
    """Collect children that have ended; only between runs, when no code waits for one."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _descendants(root: int) -> list[int]:
    """Return processes below `root` that are not dead already."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in brackets, may hold anything: what follows the last one is fixed.
            state, parent = system_text.read(stat).rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it ended while we looked
        if state not in "ZX":
            children.setdefault(int(parent), []).append(int(stat.parent.name))
    descendants: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        descendants += below
        waiting += below
    return descendants
