"""Signals of a session: what may end it, what must not, and output whose terminal is gone."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_TERMINAL_GONE = (errno.EIO, errno.EPIPE)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM are not heard meanwhile: for what is short and must be done whole."""
    with _handled({signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: signal.SIG_IGN}):
        yield


@contextmanager
def outliving_the_terminal() -> Iterator[None]:
    """A terminal that is closed (SIGHUP) does not end what goes on inside."""
    with _handled({signal.SIGHUP: signal.SIG_IGN}):
        yield


@contextmanager
def _handled(handlers: dict[signal.Signals, signal.Handlers]) -> Iterator[None]:
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
    """`say` that never fails: what nobody can read any more is let pass."""

    def said(line: str) -> None:
        try:
            say(line)
        except OSError as error:
            if error.errno in _TERMINAL_GONE:
                _let_go_of_terminal()

    return said


def _let_go_of_terminal() -> None:
    """Whatever is still written goes nowhere, instead of failing."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (1, 2):
        os.dup2(nowhere, fd)
    os.close(nowhere)
