"""The execution of a command: its times, its exit code and the destination of its output."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from contract.names import printable
from controller.measured_command import options
from controller.measured_command.options import Command, NotRunError
from instrumentation.clock import monotonic_ns

END_LIMIT_S = 5.0
PIPE_BYTES = 1 << 16  # the capacity of a pipe
DRAIN_LIMIT_S = 0.2  # if a process that the command left running keeps the pipe open


@dataclass(frozen=True)
class Execution:
    """Start and end of a process on the monotonic clock, its processor time and its exit code.

    The processor time includes that of children. The code is negative for a signal.
    """

    t_start_ns: int
    t_end_ns: int
    user_s: float
    system_s: float
    exit_code: int


@contextmanager
def open_output(destination: str) -> Iterator[int]:
    """Open the destination of a command's standard output and error, for one run.

    A thread drains a pipe, because some programs (GNU grep, tar, cmp) do less work if their output
    is /dev/null. Raises OSError if a file cannot be written.
    """
    if destination == options.INHERIT:
        yield sys.stderr.fileno()
        return
    if destination == options.PIPE:
        reading_end, descriptor = os.pipe()

        def drain() -> None:
            while os.read(reading_end, PIPE_BYTES):
                pass
            os.close(reading_end)

        thread = threading.Thread(target=drain, daemon=True)
        thread.start()
    else:
        path = os.devnull if destination == options.NULL else destination
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        if destination == options.PIPE:
            thread.join(DRAIN_LIMIT_S)


def execute(command: Command, output: int) -> Execution:
    """Run a command and wait for its end.

    Raises NotRunError if it is not found or cannot be started. On Ctrl-C the command and its
    children are ended before KeyboardInterrupt is raised.
    """
    name, program = printable(command.name), command.argv[0]
    t_start_ns = monotonic_ns()
    try:  # in a process group, so that it can be ended with its children
        process = subprocess.Popen(
            command.argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0
        )
    except OSError as error:
        is_present = "/" in program and Path(program).exists()
        code, reason = options.NOT_EXECUTABLE, error.strerror
        if error.errno == errno.ENOENT:
            code = options.NOT_EXECUTABLE if is_present else options.NOT_FOUND
            reason = "the interpreter of its first line was not found" if is_present else reason
        facts = {"command": name, "program": printable(program), "reason": reason}
        raise NotRunError(code, "command-not-started", **facts) from None
    try:
        _, status, usage = os.wait4(process.pid, 0)
    except BaseException:
        _end(process)
        raise
    t_end_ns = monotonic_ns()
    process.returncode = code = os.waitstatus_to_exitcode(status)
    if code in (options.NOT_EXECUTABLE, options.NOT_FOUND):
        raise NotRunError(code, "command-did-not-run", command=name, exit_code=code)
    return Execution(t_start_ns, t_end_ns, usage.ru_utime, usage.ru_stime, code)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command and its children; kill them at once on another signal."""
    try:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(END_LIMIT_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def describe_failure(exit_code: int) -> str:
    """Describe how a command failed."""
    if exit_code < 0:
        names = (number.name for number in signal.Signals if number == -exit_code)
        return f"was ended by the signal {next(names, -exit_code)}"  # real-time ones have no name
    return f"failed with exit code {exit_code}"
