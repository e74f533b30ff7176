"""Run the measured programs without output, in the C locale; report failures in one sentence."""

from __future__ import annotations

import errno
import os
import re
import select
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from contract import system_text
from workloads.base import Context, Work, WorkloadError

Argument = str | Path
Command = Sequence[Argument]

# Its standard input is a socket, on which it reports that it is ready, and waits for a line.
_SHELL = ("sh", "-c", 'echo >&0; read -r _ && exec "$@" < /dev/null', "sh")

KILL_LIMIT_S = 10.0

# Servers are in sbin, which is not on every user's path.
SEARCH_PATH_SUFFIX = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def find(*names: str) -> Path | None:
    """Return the first program that exists in PATH or the sbin directories."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *SEARCH_PATH_SUFFIX])
    hits = (shutil.which(name, path=path) for name in names)
    return next((Path(hit) for hit in hits if hit), None)


# All variables that a program inherits: paths, user and screen. Others of a login, such as
# TAR_OPTIONS or LD_PRELOAD, could change what it does.
INHERITED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "PYTHONPATH",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
)


def environment(home: Path | None = None) -> dict[str, str]:
    """Return the environment of every program: `INHERITED`, in the C locale.

    So output can be parsed, and grep is not slowed. `home` replaces the home directory, for
    programs that write settings there.
    """
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {**inherited, "LC_ALL": "C", **({"HOME": str(home)} if home else {})}


def run(
    *commands: Command,
    timeout_s: float | None = None,
    ok: tuple[int, ...] = (0,),
    home: Path | None = None,
    name: str = "",
    stdin: IO[bytes] | int = subprocess.DEVNULL,
) -> str:
    """Run a program, or several joined by pipes, to the end; return the output of the last one.

    `name` replaces the program's name in errors; the first program reads `stdin`.

    Raises WorkloadError, with the last line of its standard error, if a program cannot be started,
    exits with a status not in `ok`, or does not end within `timeout_s`. Programs still running then
    are killed with their children.
    """
    with _all(commands, stdin, environment(home)) as started:
        return _result(started, timeout_s, ok, name)


@contextmanager
def held(
    *commands: Command,
    timeout_s: float | None = None,
    ok: tuple[int, ...] = (0,),
    home: Path | None = None,
    name: str = "",
) -> Iterator[Callable[[], str]]:
    """Run programs as `run` does, but start them before the phase and let them begin in it.

    Yields a function that lets the programs begin, waits for their end, and returns the output.

    Starting a process is our work, so it is done before the phase: a shell is started in place of
    the first program, and executes it on our signal. The others wait for its output.
    """
    first = commands[0]
    if shutil.which(first[0]) is None:
        raise WorkloadError(
            "not-started", program=Path(first[0]).name, reason=os.strerror(errno.ENOENT)
        )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        shell = [*_SHELL, *first]
        with _all([shell, *commands[1:]], theirs.fileno(), environment(home)) as started:
            theirs.close()  # otherwise the end of the shell would go unnoticed
            ours.recv(1)

            def go() -> str:
                with suppress(OSError):
                    ours.send(b"\n")
                return _result(started, timeout_s, ok, name)

            yield go


@contextmanager
def _all(
    commands: Sequence[Command], stdin: IO[bytes] | int, environ: Mapping[str, str]
) -> Iterator[list[Started]]:
    """Run the programs, each with the output of the previous one; kill them at the end.

    The output of the last one goes to memory: a pipe would wake us for every line, within a phase.
    """
    started: list[Started] = []
    try:
        upstream = stdin
        for index, argv in enumerate(commands, start=1):
            printed = _memory("stdout") if index == len(commands) else None
            started.append(start(argv, upstream, environ, printed))
            if len(started) > 1:
                # Otherwise the upstream program would not notice the end of its reader.
                started[-2].output.close()
            upstream = started[-1].output
        yield started
    finally:
        for program in started:
            program.close()


def _result(
    started: Sequence[Started], timeout_s: float | None, ok: tuple[int, ...], name: str
) -> str:
    last = started[-1]
    descriptor = os.pidfd_open(last.process.pid)
    try:
        # `Popen.wait` with a limit would wake up again and again within the phase.
        ended = select.select([descriptor], [], [], timeout_s)[0]
    finally:
        os.close(descriptor)
    if not ended:
        raise WorkloadError("not-done", program=last.name, timeout_s=timeout_s)
    for program in started:
        program.process.wait()
    last.output.seek(0)
    output = system_text.decode(last.output.read())
    # From the end: a reader that fails ends those before it.
    for program in reversed(started):
        code = program.process.returncode
        if code not in ok:
            reason = program.last_words() or last_line(output) or "it printed no reason"
            status = f"(signal {-code})" if code < 0 else f"(status {code})"
            raise WorkloadError(
                "program-failed", program=name or program.name, status=status, reason=reason
            )
    return output


def script(path: Path, commands: Sequence[Command], rounds: int = 1) -> Command:
    """Write a shell script that runs the commands in turn, all of them `rounds` times.

    It ends at the first failure. Returns the command that runs it and prints their output.
    """
    lines = [shlex.join(map(str, argv)) for argv in commands]
    loop = ["n=0", f"while [ $n -lt {rounds} ]; do", *lines, "n=$((n+1))", "done"]
    path.write_text("\n".join(["exec 2>&1", "set -e", *loop, ""]), encoding="utf-8")
    return ["sh", path]


def measured(context: Context, phase: str, *commands: Command, **how: Any) -> tuple[Work, str]:
    """Run programs as a phase; `how` are options of `held`.

    Returns its work, still to be counted, and the output of the last one.
    """
    with held(*commands, **how) as go, context.phase(phase) as work:
        output = go()
    return work, output


def cold_start(context: Context, *commands: Command) -> None:
    """Empty the page cache, then run the commands once: a phase loads its data, not programs."""
    context.drop_caches()
    for argv in commands:
        run(argv)


def kill_group(process: subprocess.Popen[Any]) -> None:
    """Kill a process in a separate session, with its children, and reap it.

    A surviving child would hold the disk, so this waits for children, too, up to `KILL_LIMIT_S`.
    """
    deadline_s = time.monotonic() + KILL_LIMIT_S
    with suppress(ProcessLookupError):
        while time.monotonic() < deadline_s:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            time.sleep(0.01)


def copied(output: str) -> tuple[str, dict[str, float]]:
    """Return the lines in which dd reports its copies, and the sums of bytes and files."""
    lines = [line for line in output.splitlines(keepends=True) if " copied, " in line]
    sizes = [int(match[1]) for line in lines if (match := re.match(r"(\d+) bytes ", line))]
    return "".join(lines), {"bytes": float(sum(sizes)), "files": float(len(sizes))}


def size_bytes(file: Path) -> int:
    """Return the size of a file that a program should have written; 0 if missing or a link."""
    try:
        status = file.lstat()
    except FileNotFoundError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def last_line(text: str) -> str:
    """Return the last line that has a reason; empty if there is none."""
    # GNU tar ends with a sentence without a reason, dpkg with a list of packages.
    lines = [
        line.strip()
        for line in text.partition("Errors were encountered while processing:")[0].splitlines()
        if line.strip() and not line.endswith("due to previous errors")
    ]
    return lines[-1] if lines else ""


@dataclass(frozen=True)
class Started:
    """A program in a separate session; `errors` is its standard error so far."""

    name: str
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    errors: IO[bytes]

    def last_words(self) -> str:
        """Return the last line on standard error; empty if there is none."""
        self.errors.seek(0)
        return last_line(system_text.decode(self.errors.read()))

    def close(self) -> None:
        """Kill the program with its children."""
        kill_group(self.process)
        self.output.close()
        self.errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _memory(name: str) -> IO[bytes]:
    """Return a file in memory, which needs no reader and no disk."""
    return os.fdopen(os.memfd_create(name), "w+b")


def start(
    argv: Command,
    stdin: IO[bytes] | int,
    environ: Mapping[str, str],
    output: IO[bytes] | None = None,
    **options: Any,
) -> Started:
    """Start a program with further `options` of `Popen`; WorkloadError if it cannot be started.

    Its standard output goes to `output`, by default a pipe.
    """
    # The program's name, even if a shell starts it.
    words = argv[len(_SHELL) :] if tuple(argv[: len(_SHELL)]) == _SHELL else argv
    name = Path(words[0]).name
    errors = _memory("stderr")
    try:
        process = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=output or subprocess.PIPE,
            stderr=errors,
            env=environ,
            start_new_session=True,
            **options,
        )
    except OSError as error:
        for file in filter(None, (errors, output)):
            file.close()
        raise WorkloadError("not-started", program=name, reason=error.strerror) from error
    printed = output or process.stdout
    assert printed is not None
    return Started(name, process, printed, errors)
