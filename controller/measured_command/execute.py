"""One execution of a command, with its times."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from contract.errors import ControllerError
from contract.names import printable
from controller.measured_command.options import Command
from instrumentation.clock import monotonic_ns

SHOWN_BYTES = 400
END_LIMIT_S = 5.0


@dataclass(frozen=True)
class Execution:
    """Start and end on the monotonic clock, processor time with that of its children, exit code
    (minus the signal's number where one ended it)."""

    t_start_ns: int
    t_end_ns: int
    user_s: float
    system_s: float
    exit_code: int


def execute(command: Command, *, show: bool = False, given: Path | None = None) -> Execution:
    """Run it to its end. Its output goes nowhere, or to standard error if it is to be shown:
    standard output is for the result.

    Raises ControllerError where it cannot be started; on Ctrl-C it is ended before that goes on.
    """
    output = sys.stderr.fileno() if show else subprocess.DEVNULL
    with (given or Path(os.devnull)).open("rb") as stdin:
        t_start_ns = monotonic_ns()
        try:
            process = subprocess.Popen(command.argv, stdin=stdin, stdout=output, stderr=output)
        except OSError as error:
            raise ControllerError(
                f"The command {printable(command.name)} cannot be started: "
                f"{printable(command.argv[0])}: {error.strerror}."
            ) from None
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            _end(process)
            raise
        t_end_ns = monotonic_ns()
    process.returncode = os.waitstatus_to_exitcode(status)
    return Execution(t_start_ns, t_end_ns, usage.ru_utime, usage.ru_stime, process.returncode)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(END_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def auxiliary(command: Command, what: str) -> None:
    """Run what prepares or cleans up. Raises ControllerError with its last words if it fails."""
    try:
        done = subprocess.run(
            command.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
    except OSError as error:
        raise ControllerError(
            f"{what} {printable(command.name)} cannot be started: {error.strerror}."
        ) from None
    if done.returncode:
        words = done.stderr[-SHOWN_BYTES:].decode(errors="replace").strip().splitlines()
        raise ControllerError(
            f"{what} {printable(command.name)} {ended(done.returncode)}"
            f"{': ' + printable(words[-1]) if words else ''}."
        )


def ended(exit_code: int) -> str:
    """How a command failed, in words."""
    if exit_code < 0:
        return f"was ended by the signal {signal.Signals(-exit_code).name}"
    return f"failed with exit code {exit_code}"
