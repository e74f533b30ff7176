"""One execution of a command, with its times and where its output goes."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from contract.errors import ControllerError
from contract.interrupts import ENDING, noted_signals
from contract.names import printable
from controller.measured_command.options import (
    INHERIT,
    NOT_EXECUTABLE,
    NOT_FOUND,
    NULL,
    PIPE,
    Command,
    NotRunError,
)
from instrumentation.clock import monotonic_ns

SHOWN_BYTES = 400
END_LIMIT_S = 5.0
POLL_S = 0.02
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
DRAINED_BYTES = 1 << 16  # what a pipe holds
DRAIN_LIMIT_S = 0.2  # where something that the command left running keeps the pipe open
# By a shell and by programs that start others (env, timeout, nice): found but not executable, and
# not found (POSIX.1-2024, XCU 2.8.2).
NOT_RUN = {NOT_EXECUTABLE: "it cannot be executed", NOT_FOUND: "it was not found"}


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


class Output:
    """Where a command writes: an open descriptor, and whether that is /dev/null by any name.

    A pipe counts its bytes and is drained by a thread that discards them: programs that notice that
    their output is /dev/null (GNU grep, tar, cmp) then do all of their work. Processes that the
    command leaves running may go on writing: the thread ends with the last of them.
    """

    def __init__(self, descriptor: int, drained: int | None = None) -> None:
        self.descriptor = descriptor
        self.is_null = os.path.samestat(os.fstat(descriptor), Path(os.devnull).stat())
        self.bytes = None if drained is None else 0
        self._thread = threading.Thread(target=self._drain, args=(drained,), daemon=True)
        if drained is not None:
            self._thread.start()

    def close(self) -> None:
        """Close our end, and wait for what is still in the pipe."""
        os.close(self.descriptor)
        if self.bytes is not None:
            self._thread.join(DRAIN_LIMIT_S)

    def _drain(self, drained: int) -> None:
        buffer, count = bytearray(DRAINED_BYTES), 0
        with open(drained, "rb", buffering=0) as pipe:
            while number := pipe.readinto(buffer):
                count += number
                self.bytes = count


@contextmanager
def opened(where: str) -> Iterator[Output]:
    """Open what a command writes to, both its standard output and error, for one run.

    Raises ControllerError where a file cannot be written.
    """
    if where == INHERIT:
        yield Output(sys.stderr.fileno())
        return
    if where == PIPE:
        drained, descriptor = os.pipe()
        output = Output(descriptor, drained)
    else:
        path = os.devnull if where == NULL else where
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise ControllerError(
                "output-unwritable", path=printable(path), reason=error.strerror
            ) from None
        output = Output(descriptor)
    try:
        yield output
    finally:
        output.close()


def execute(command: Command, output: Output, input_file: Path | None = None) -> Execution:
    """Run it to its end.

    Raises ControllerError where it cannot be started; on Ctrl-C it is ended before that goes on.
    """
    descriptor = output.descriptor
    with (input_file or Path(os.devnull)).open("rb") as stdin:
        t_start_ns = monotonic_ns()
        try:
            process = subprocess.Popen(
                command.argv, stdin=stdin, stdout=descriptor, stderr=descriptor
            )
            _, status, usage = os.wait4(process.pid, 0)
        except OSError as error:
            raise _not_started(command, error) from None
        except BaseException:
            _end_all()
            raise
        t_end_ns = monotonic_ns()
    process.returncode = os.waitstatus_to_exitcode(status)
    return Execution(t_start_ns, t_end_ns, usage.ru_utime, usage.ru_stime, process.returncode)


def _not_started(command: Command, error: OSError) -> NotRunError:
    program, reason = command.argv[0], error.strerror
    is_missing = error.errno == errno.ENOENT and not ("/" in program and os.path.lexists(program))
    if error.errno == errno.ENOENT and not is_missing:
        reason = "what its first line or its link names was not found"
    elif error.errno == errno.EACCES and Path(program).is_dir():
        reason = os.strerror(errno.EISDIR)
    return NotRunError(
        NOT_FOUND if is_missing else NOT_EXECUTABLE,
        "command-not-started",
        command=printable(command.name),
        program=printable(program),
        reason=reason,
    )


@contextmanager
def adopting() -> Iterator[None]:
    """Be the parent of what commands start and leave behind (prctl(2)), so that it can be ended.

    A separate process group would do as well, but could not ask anything at the terminal.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _end_all() -> None:
    """End what runs of our commands and of what they have started: at once at another signal."""
    with noted_signals(*ENDING) as came:
        for number in (signal.SIGTERM, signal.SIGKILL):
            signalled: set[int] = set()
            limit_s = time.monotonic() + END_LIMIT_S
            while (family := _family()) and time.monotonic() < limit_s:
                for pid in family - signalled:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
                signalled |= family
                time.sleep(POLL_S)
                if came and number != signal.SIGKILL:
                    break


def _family() -> set[int]:
    """Return the processes below this one, except those with a separate session.

    Recorders have one, and what a command meant to stay. Children that have ended are waited for.
    """
    parents: dict[int, int] = {}
    group_pids: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # proc_pid_stat(5); the name in parentheses may hold blanks
            fields = path.read_bytes().rpartition(b")")[2].split()
            pid, parent, session = int(path.parent.name), int(fields[1]), int(fields[3])
            if parent == os.getpid() and session == os.getsid(0):
                if os.waitpid(pid, os.WNOHANG) != (0, 0):
                    continue
                group_pids.add(pid)
            parents[pid] = parent
    pids = set(group_pids)
    while more := {pid for pid, parent in parents.items() if parent in pids} - pids:
        pids |= more
    return pids


def auxiliary(command: Command, what: str) -> None:
    """Run what prepares or cleans up. Raises ControllerError with its last words if it fails."""
    with opened(PIPE) as output, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command.argv, stdin=subprocess.DEVNULL, stdout=output.descriptor, stderr=errors
            )
            process.wait()
        except OSError as error:
            raise ControllerError(
                "helper-not-started",
                what=what,
                command=printable(command.name),
                reason=error.strerror,
            ) from None
        except BaseException:
            _end_all()
            raise
        if process.returncode:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - SHOWN_BYTES))
            words = errors.read().decode(errors="replace").strip().splitlines()
            raise ControllerError(
                "helper-failed",
                what=what,
                command=printable(command.name),
                ended=ended(process.returncode),
                output=": " + printable(words[-1]) if words else "",
            )


def ended(exit_code: int) -> str:
    """How a command failed, in words."""
    if exit_code < 0:
        names = (known.name for known in signal.Signals if known == -exit_code)
        return f"was ended by the signal {next(names, -exit_code)}"  # one for real time has no name
    return f"failed with exit code {exit_code}"
