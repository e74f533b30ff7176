"""Run programs; secrets go through standard input, and this process's memory to no disk."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.system import lock
from contract import system_text
from contract.errors import AgentError
from contract.private import no_core_dumps
from workloads import programs

# A program that works on a disk is looked at so often, and given so much for its size.
LOOK_S = 10.0
SLOWEST_BYTES_PER_S = 2**20
_listeners: list[Callable[[str], None]] = []
_PR_SET_DUMPABLE = 4  # linux/prctl.h
# asm-generic/mman.h. Only what is used is kept in memory: a thread's whole stack is not.
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
_COREDUMP_FILTER = Path("/proc/self/coredump_filter")


class MemoryNotPrivateError(AgentError):
    """The kernel refused to lock the memory."""


def keep_private() -> None:
    """Prevent core dumps and swap of this process, and memory in the dumps of its programs.

    If a dump is made in spite of its limit, the filter removes memory from it, but not registers,
    which hold what was copied last. Applies only to root, as no other user can read the secrets.
    Raises MemoryNotPrivateError.
    """
    if os.geteuid() != 0:
        return
    no_core_dumps()
    if _COREDUMP_FILTER.exists():  # without it the kernel writes no dumps at all
        _COREDUMP_FILTER.write_text("0")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if libc.mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) != 0:
        raise MemoryNotPrivateError("memory-not-locked", reason=os.strerror(ctypes.get_errno()))


class CommandError(AgentError):
    """A program is missing, failed or hung; of `program-failed`, `exit_code` is a fact."""


@contextmanager
def listening(listen: Callable[[str], None]) -> Iterator[None]:
    """Call `listen` with a clause while a program still works: for a watchdog, a terminal."""
    _listeners.append(listen)
    try:
        yield
    finally:
        _listeners.remove(listen)


@dataclass(frozen=True)
class Progress:
    """Counts that change as a program works on a disk, and the bytes it may have to go through."""

    counts: Callable[[], str]
    size_bytes: int = 0


@dataclass(frozen=True)
class Output:
    """Exit code and output of a program."""

    code: int
    out: str
    err: str


def run(
    argv: Sequence[str],
    *,
    stdin: bytes = b"",
    ok: Collection[int] = (0,),
    timeout_s: float = 120,
    progress: Progress | None = None,
) -> Output:
    """Run a program to its end; raises CommandError unless its exit code is in `ok`.

    With `progress` it may take longer than `timeout_s`, as long as it makes progress.
    """
    environment = {**programs.environment(), "PATH": program_path()}
    try:
        with subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            pass_fds=lock.descriptors(),
        ) as process:
            try:
                out, err = _communicate(process, stdin, timeout_s, progress, _name(argv))
            except BaseException:
                process.kill()
                raise
    except FileNotFoundError as error:
        raise CommandError("program-missing", program=argv[0]) from error
    except subprocess.TimeoutExpired as error:
        how = "made no progress for" if progress else "did not end within"
        raise CommandError(
            "program-silent", program=_name(argv), how=how, timeout=error.timeout
        ) from error
    output = Output(process.returncode, system_text.decode(out), system_text.decode(err))
    if output.code not in ok:
        reason = " ".join((output.err or output.out).split())[-300:] or "no output"
        raise CommandError(
            "program-failed", program=_name(argv), exit_code=output.code, reason=reason
        )
    return output


def _communicate(
    process: subprocess.Popen[bytes],
    stdin: bytes,
    timeout_s: float,
    progress: Progress | None,
    name: str,
) -> tuple[bytes, bytes]:
    """Return the program's output; report its progress to the listeners. Raises TimeoutExpired."""
    if progress is None:
        return process.communicate(stdin, timeout_s)
    begun_s = moved_s = time.monotonic()
    last_s = begun_s + timeout_s + progress.size_bytes / SLOWEST_BYTES_PER_S
    counts, input_pending = progress.counts(), True
    while True:
        try:
            return process.communicate(stdin if input_pending else None, min(LOOK_S, timeout_s))
        except subprocess.TimeoutExpired:
            input_pending, now_s = False, time.monotonic()
        if (current := progress.counts()) != counts:
            counts, moved_s = current, now_s
            for listen in _listeners:
                listen(f"{name} goes on, {now_s - begun_s:.0f} s so far")
        if now_s - moved_s >= timeout_s or now_s >= last_s:
            raise subprocess.TimeoutExpired(name, timeout_s)


def program_path() -> str:
    """Return the search path of programs; a service's or a shell's may lack system folders."""
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin"


def _name(argv: Sequence[str]) -> str:
    """Return the program, and its subcommand if it has one; never the value of an option."""
    words = list(argv[argv.index("--") + 1 :] if argv[0] == "nsenter" else argv)
    if words[0] == "env":
        words = [word for word in words[1:] if "=" not in word]
    return " ".join([words[0], *(w for w in words[1:2] if re.fullmatch("[a-z][A-Za-z-]*", w))])
