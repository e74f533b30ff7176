"""Runs programs; what they keep secret goes through standard input, and this memory to no disk."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent import lock
from contract.errors import AgentError
from contract.private import no_core_dumps

_PR_SET_DUMPABLE = 4  # linux/prctl.h
# asm-generic/mman.h. Only what is used is kept in memory: a thread's whole stack is not.
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
_COREDUMP_FILTER = Path("/proc/self/coredump_filter")


class MemoryNotPrivateError(AgentError):
    """The kernel did not agree to it."""


def keep_private() -> None:
    """No core dump and no swap for this process; no memory in the dumps of programs it starts.

    Where a dump is made in spite of its limit, the filter leaves no memory in it, but registers,
    which hold what was copied last. Only root's processes, for nobody else can read the secrets.
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
        raise MemoryNotPrivateError(
            f"The agent's memory cannot be kept out of swap ({os.strerror(ctypes.get_errno())}): "
            "give it the capability CAP_IPC_LOCK."
        )


class CommandError(AgentError):
    """A program is missing, failed or hung; `code` is its exit code, None where it has none."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Output:
    """Exit code and what was printed."""

    code: int
    out: str
    err: str


def run(
    argv: Sequence[str],
    *,
    stdin: bytes = b"",
    ok: Collection[int] = (0,),
    timeout_s: float = 120,
) -> Output:
    """Run a program to its end; raises CommandError unless its exit code is in `ok`."""
    environment = {**os.environ, "LC_ALL": "C", "PATH": program_path()}
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            env=environment,
            timeout=timeout_s,
            check=False,
            pass_fds=lock.held(),
        )
    except FileNotFoundError as error:
        raise CommandError(f"The program {argv[0]} is missing: install its package.") from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(
            f"{_name(argv)} did not end within {timeout_s:g} s: look at the kernel log for "
            "a disk that does not answer."
        ) from error
    output = Output(
        done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    )
    if output.code not in ok:
        said = " ".join((output.err or output.out).split())[-300:] or "it said nothing"
        failed = f"{_name(argv)} failed with exit code {output.code}: {said}"
        raise CommandError(failed, output.code)
    return output


def program_path() -> str:
    """Where programs are searched; a service's or a shell's path may lack system folders."""
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin"


def _name(argv: Sequence[str]) -> str:
    words = [word for word in argv[1:] if not word.startswith("-")]
    return " ".join([argv[0], *words[:1]])
