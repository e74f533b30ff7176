"""Run the programs whose energy is measured: quiet, in the C locale, failures as one sentence."""

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

# Its standard input is a socket: it reports there that it is ready, and waits for a word or an end.
_SHELL = ("sh", "-c", 'echo >&0; read -r _ && exec "$@" < /dev/null', "sh")

KILL_LIMIT_S = 10.0

# Servers live in sbin, which is not on every user's path.
SEARCH_PATH_SUFFIX = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def find(*names: str) -> Path | None:
    """Return the first of the programs that exists, looked for in PATH and the sbin directories."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *SEARCH_PATH_SUFFIX])
    hits = (shutil.which(name, path=path) for name in names)
    return next((Path(hit) for hit in hits if hit), None)


# All that a program inherits: where programs and its user's files are, and the screen. Nothing else
# of a login, such as TAR_OPTIONS or LD_PRELOAD, changes what a program does.
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

    Output can be parsed, and grep is not slowed. `home` replaces the home directory, for programs
    that leave settings there.
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
    """Run a program, or several joined by pipes, to the end; return what the last one prints.

    `name` is what errors call it, where that is not the program itself; the first reads `stdin`.

    Raises WorkloadError, with the last line of its standard error, if a program cannot be started,
    exits with a status not in `ok`, or is not done within `timeout_s`. Whatever is still running
    then is killed with its children.
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
    """`run` in two steps, for a phase.

    What is yielded lets the programs begin, waits for their end, and is then what `run` is.

    To start a process is work of ours, so that it is done before the phase: a shell stands where
    the first program is to be, and becomes it at our word. The others wait for its output.
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
            theirs.close()  # else we never learn that the shell is gone
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
    """Run the programs, each with the output of the one before; killed at the end.

    What the last one prints goes to memory: a pipe would wake us for every line, within a phase.
    """
    started: list[Started] = []
    try:
        upstream = stdin
        for index, argv in enumerate(commands, start=1):
            printed = _memory("stdout") if index == len(commands) else None
            started.append(start(argv, upstream, environ, printed))
            if len(started) > 1:
                # Else the upstream program never learns that its reader is gone.
                started[-2].output.close()
            upstream = started[-1].output
        yield started
    finally:
        for each in started:
            each.close()


def _result(
    started: Sequence[Started], timeout_s: float | None, ok: tuple[int, ...], name: str
) -> str:
    last = started[-1]
    if not _ends(last.process, timeout_s):
        raise WorkloadError("not-done", program=last.name, timeout_s=timeout_s)
    for each in started:
        each.process.wait()
    last.output.seek(0)
    output = system_text.decode(last.output.read())
    # From the end: a reader that fails ends those before it.
    for each in reversed(started):
        if each.process.returncode not in ok:
            reason = each.last_words() or last_line(output) or "it printed no reason"
            code = each.process.returncode
            status = f"(signal {-code})" if code < 0 else f"(status {code})"
            raise WorkloadError(
                "program-failed", program=name or each.name, status=status, reason=reason
            )
    return output


def _ends(process: subprocess.Popen[bytes], timeout_s: float | None) -> bool:
    """Wait for its end, without a look in between as `Popen.wait` has them; whether it came."""
    descriptor = os.pidfd_open(process.pid)
    try:
        return bool(select.select([descriptor], [], [], timeout_s)[0])
    finally:
        os.close(descriptor)


def script(path: Path, commands: Sequence[Command], rounds: int = 1) -> Command:
    """Write a shell script that runs the commands in turn, all of them `rounds` times.

    It ends where one fails. Returns the command that runs it, which prints all that they print.
    """
    lines = [shlex.join(map(str, argv)) for argv in commands]
    loop = ["n=0", f"while [ $n -lt {rounds} ]; do", *lines, "n=$((n+1))", "done"]
    path.write_text("\n".join(["exec 2>&1", "set -e", *loop, ""]), encoding="utf-8")
    return ["sh", path]


def measured(context: Context, phase: str, *commands: Command, **how: Any) -> tuple[Work, str]:
    """Programs as a phase, `held` with what else that takes.

    Its work, still to be counted, and what the last one prints.
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
    """End a process started in a separate session, with its children, and reap it.

    A child that outlived it would hold the disk: it is waited for, too, as long as a kill may take.
    """
    deadline_s = time.monotonic() + KILL_LIMIT_S
    with suppress(ProcessLookupError):
        while time.monotonic() < deadline_s:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            time.sleep(0.01)


def copied(output: str) -> tuple[str, dict[str, float]]:
    """Return the lines in which dd reports what it copied, and these bytes and files."""
    lines = [line for line in output.splitlines(keepends=True) if " copied, " in line]
    sizes = [int(match[1]) for line in lines if (match := re.match(r"(\d+) bytes ", line))]
    return "".join(lines), {"bytes": float(sum(sizes)), "files": float(len(sizes))}


def size_bytes(file: Path) -> int:
    """Return the size of a file that a program was to write; 0 if it is not there, or a link."""
    try:
        status = file.lstat()
    except FileNotFoundError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def last_line(text: str) -> str:
    """Return the last line with a reason; empty if there is none."""
    # GNU tar ends with a sentence without one.
    lines = [
        line.strip()
        for line in text.splitlines()
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
        """End it with its children."""
        kill_group(self.process)
        self.output.close()
        self.errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _memory(name: str) -> IO[bytes]:
    """Return a file in memory: no pipe to drain, no write to any disk."""
    return os.fdopen(os.memfd_create(name), "w+b")


def start(
    argv: Command,
    stdin: IO[bytes] | int,
    environ: Mapping[str, str],
    output: IO[bytes] | None = None,
    **options: Any,
) -> Started:
    """Start a program, with what else `Popen` takes; WorkloadError where it cannot be.

    Its standard output goes to `output`, by default a pipe.
    """
    # The program's name, also where a shell holds its place.
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
