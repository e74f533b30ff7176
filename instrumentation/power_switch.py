"""Switch a target's power by a program: `on` and `off` switch, `status` prints the state.

The state is read back after each switching: a program that succeeds shows that the switch was
asked, not that the outlet followed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from contract.problem import ProblemError

PROGRAM_S = 60.0
AGREE_S = 30.0  # after a switching, until the state is the one asked for
PAUSE_S = 2.0
_MOST_BYTES = 64
_PART_BYTES = 1 << 16


class PowerError(ProblemError):
    """A switch that did not follow a command, or whose state is unknown."""


def turn(argv: Sequence[str], *, on: bool) -> None:
    """Switch the power and wait until the switch reports that state.

    A program that fails may have switched before, so the state decides. Raises PowerError, OSError.
    """
    action = "on" if on else "off"
    try:
        _run(argv, action)
    except PowerError:
        with suppress(PowerError):
            if read_state(argv) == action:
                return
        raise
    until_s = time.monotonic() + AGREE_S
    while (state := read_state(argv)) != action:
        if time.monotonic() > until_s:
            raise PowerError("switch-disagrees", asked=action, state=state, limit_s=AGREE_S)
        time.sleep(PAUSE_S)


def read_state(argv: Sequence[str]) -> str:
    """Return `on` or `off`, as the program reports it. Raises PowerError, OSError."""
    state = _run(argv, "status").strip().lower()
    if state not in (b"on", b"off"):
        raise PowerError("switch-status", program=argv[0])  # its output may contain a secret
    return state.decode()


def _run(argv: Sequence[str], action: str) -> bytes:
    """Run a program to its end; return the first bytes that it prints as `status`."""
    with subprocess.Popen(
        [*argv, action],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if action == "status" else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as program:
        expired = threading.Event()

        def end() -> None:
            expired.set()
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)

        timer = threading.Timer(PROGRAM_S, end)
        timer.start()
        try:
            output = b""
            if program.stdout is not None:
                output = program.stdout.read(_MOST_BYTES)
                while program.stdout.read(_PART_BYTES):  # closed early, it would end the program
                    pass
            status = program.wait()
        finally:
            timer.cancel()
    if expired.is_set():
        raise PowerError("switch-silent", limit_s=PROGRAM_S)
    if status:
        raise PowerError("switch-program", program=argv[0], status=status)
    return output
