"""Switch a target's power by a program: `on` and `off` switch, `status` prints the state.

The state decides, not the program: one that succeeds may not have switched, one that fails may
have. What cannot be read back is reported with the state that the target may be in.
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
    """A switching that failed or is not confirmed; its text names the power's state."""


def turn(argv: Sequence[str], *, on: bool) -> None:
    """Switch the power and wait until the switch reports that state. Raises PowerError."""
    action = "on" if on else "off"
    reason = ""
    try:
        _run(argv, action)
    except PowerError as error:
        reason = str(error).rstrip(".")
    until_s = time.monotonic() + AGREE_S
    while True:
        try:
            state, unread = read_state(argv), ""
        except PowerError as error:
            state, unread = "", str(error).rstrip(".")
        if state == action:
            return
        if time.monotonic() > until_s:
            break
        time.sleep(PAUSE_S)  # the network of a plug may be away for a while
    if state:
        reason = reason or f"nothing changed in {AGREE_S:g} s"
        raise PowerError("switch-disagrees", asked=action, reason=reason, state=state)
    raise PowerError("switch-unconfirmed", asked=action, reason=reason or unread)


def read_state(argv: Sequence[str]) -> str:
    """Return `on` or `off`, as the program reports it. Raises PowerError."""
    state = _run(argv, "status").strip().lower()
    if state not in (b"on", b"off"):
        raise PowerError("switch-status", program=argv[0])  # its output may contain a secret
    return state.decode()


def _run(argv: Sequence[str], action: str) -> bytes:
    """Run a program to its end; return the first bytes that it prints as `status`."""
    try:
        program = subprocess.Popen(
            [*argv, action],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if action == "status" else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise PowerError("switch-unstarted", program=argv[0], reason=error.strerror) from None
    expired = threading.Event()

    def end() -> None:
        expired.set()
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)

    timer = threading.Timer(PROGRAM_S, end)
    timer.start()
    try:
        with program:
            output = b""
            if program.stdout is not None:
                output = program.stdout.read(_MOST_BYTES)
                while program.stdout.read(_PART_BYTES):  # closed early, it would end the program
                    pass
            status = program.wait()
    finally:
        timer.cancel()
    if expired.is_set():
        raise PowerError("switch-silent", program=argv[0], limit_s=PROGRAM_S)
    if status:
        raise PowerError("switch-program", program=argv[0], status=status)
    return output
