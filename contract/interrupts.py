"""Handle signals of a session, and output after its terminal is gone."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

_Handler = Callable[[int, FrameType | None], object] | signal.Handlers
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_TERMINAL_GONE = (errno.EIO, errno.EPIPE)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore the signals of `ENDING` in a short block that must not be cut."""
    with handled(dict.fromkeys(ENDING, signal.SIG_IGN)):
        yield


@contextmanager
def deferred_interrupts() -> Iterator[Sequence[int]]:
    """Defer Ctrl-C and SIGTERM to the end of the block, which then raises KeyboardInterrupt.

    Use it to start a process that must be recorded before it can be left running. Yields the
    signals received so far.
    """
    with noted_signals(signal.SIGINT, signal.SIGTERM) as pending:
        yield pending
    if pending:
        raise KeyboardInterrupt


@contextmanager
def noted_signals(*numbers: signal.Signals) -> Iterator[Sequence[int]]:
    """Record these signals in the yielded list; the program checks it when it can."""
    received_signals: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received_signals.append(number)

    with handled(dict.fromkeys(numbers, note)):
        yield received_signals


@contextmanager
def term_interrupts(*also: signal.Signals) -> Iterator[None]:
    """Let SIGTERM, and the signals `also`, end the block as Ctrl-C does, with cleanup."""
    with handled(dict.fromkeys(heard(signal.SIGTERM, *also), signal.default_int_handler)):
        yield


def heard(*numbers: signal.Signals) -> list[signal.Signals]:
    """Return the signals that are not ignored; nohup and background jobs ignore some."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def outliving_the_terminal() -> Iterator[None]:
    """Ignore the closing of the terminal (SIGHUP) in the block."""
    with handled({signal.SIGHUP: signal.SIG_IGN}):
        yield


@contextmanager
def handled(handlers: dict[signal.Signals, _Handler]) -> Iterator[None]:
    """Handle these signals in the block, if it runs in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def lasting(say: Callable[[str], None]) -> Callable[[str], None]:
    """Wrap a printer of lines so that it never fails; lines without a terminal are dropped."""

    def lasting_say(line: str) -> None:
        try:
            say(line)
        except OSError as error:
            if error.errno in _TERMINAL_GONE:
                nowhere = os.open(os.devnull, os.O_RDWR)
                for fd in (1, 2):
                    os.dup2(nowhere, fd)
                os.close(nowhere)

    return lasting_say
