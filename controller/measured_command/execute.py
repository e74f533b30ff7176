"""One execution of a command, with its times and where its output goes."""

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
DRAINED_BYTES = 1 << 16  # what a pipe holds
DRAIN_LIMIT_S = 0.2  # where something that the command left running keeps the pipe open


@dataclass(frozen=True)
class Execution:
    """Start and end of a process on the monotonic clock, its processor time, its exit code.

    The time includes its children's; the code is minus the number of a signal that ended it.
    """

    t_start_ns: int
    t_end_ns: int
    user_s: float
    system_s: float
    exit_code: int


@contextmanager
def opened(where: str) -> Iterator[int]:
    """Open what a command writes to, both its standard output and error, for one run.

    A pipe is drained by a thread: programs that notice that their output is /dev/null (GNU grep,
    tar, cmp) then do all of their work. Raises OSError where a file cannot be written.
    """
    if where == options.INHERIT:
        yield sys.stderr.fileno()
        return
    if where == options.PIPE:
        drained, descriptor = os.pipe()
        thread = threading.Thread(target=_drain, args=(drained,), daemon=True)
        thread.start()
    else:
        path = os.devnull if where == options.NULL else where
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        if where == options.PIPE:
            thread.join(DRAIN_LIMIT_S)


def _drain(drained: int) -> None:
    buffer = bytearray(DRAINED_BYTES)
    with open(drained, "rb", buffering=0) as pipe:
        while pipe.readinto(buffer):
            pass


def execute(command: Command, output: int) -> Execution:
    """Run it to its end.

    Raises NotRunError where it cannot be started or was not found; on Ctrl-C it is ended with all
    that it started before that goes on.
    """
    name, program = printable(command.name), command.argv[0]
    t_start_ns = monotonic_ns()
    try:  # in a process group, to be ended as a whole
        process = subprocess.Popen(
            command.argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0
        )
    except OSError as error:
        is_missing = error.errno == errno.ENOENT and not ("/" in program and Path(program).exists())
        facts = {"command": name, "program": printable(program), "reason": error.strerror}
        code = options.NOT_FOUND if is_missing else options.NOT_EXECUTABLE
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
    """End a command and what it has started; at once where another signal comes."""
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(END_LIMIT_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ended(exit_code: int) -> str:
    """How a command failed, in words."""
    if exit_code < 0:
        names = (known.name for known in signal.Signals if known == -exit_code)
        return f"was ended by the signal {next(names, -exit_code)}"  # one for real time has no name
    return f"failed with exit code {exit_code}"
