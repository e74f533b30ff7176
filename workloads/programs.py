"""Run the programs whose energy is measured: quiet, in the C locale, failures as one sentence."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from workloads.base import Context, WorkloadError

Argument = str | Path
Command = Sequence[Argument]

# Servers live in sbin, which is not on every user's path.
SEARCH_PATH_SUFFIX = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def find(*names: str) -> Path | None:
    """The first of the programs that exists, looked for in PATH and the sbin directories."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *SEARCH_PATH_SUFFIX])
    hits = (shutil.which(name, path=path) for name in names)
    return next((Path(hit) for hit in hits if hit), None)


def environment() -> Mapping[str, str]:
    """The caller's environment in the C locale: output can be parsed, and grep is not slowed."""
    return {**os.environ, "LC_ALL": "C"}


def run(argv: Command, *, timeout_s: float | None = None, ok: tuple[int, ...] = (0,)) -> str:
    """Run one program to its end and return its standard output.

    Raises WorkloadError if it cannot be started, exits with a status not in `ok`, or is not done
    within `timeout_s`. Whatever happens, neither it nor its children are left running.
    """
    return pipe(argv, timeout_s=timeout_s, ok=ok)


def pipe(*commands: Command, timeout_s: float | None = None, ok: tuple[int, ...] = (0,)) -> str:
    """Run programs joined by pipes and return what the last one prints; raises like `run`."""
    started: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
    try:
        upstream: IO[bytes] | int = subprocess.DEVNULL
        for argv in commands:
            process, errors = _start(argv, upstream)
            if not isinstance(upstream, int):
                upstream.close()  # else the upstream program never learns that its reader is gone
            started.append((process, errors))
            assert process.stdout is not None
            upstream = process.stdout
        output = _finish([process for process, _ in started], timeout_s)
        for (process, errors), argv in zip(started, commands, strict=True):
            if process.returncode not in ok:
                raise WorkloadError(
                    f"{argv[0]} failed {_status(process)}: {last_line(_read(errors))}"
                )
        return output
    finally:
        for process, errors in started:
            kill_group(process)
            errors.close()


def cold_start(context: Context, *commands: Command) -> None:
    """Empty the page cache, then run the commands once: a phase loads its data, not programs."""
    context.drop_caches()
    for argv in commands:
        run(argv)


def kill_group(process: subprocess.Popen[Any]) -> None:
    """End a process started in a session of its own, with its children, and reap it."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def last_line(text: str) -> str:
    """The last line that says something, or words for silence."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed no reason"


def _start(argv: Command, stdin: IO[bytes] | int) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    # Standard error goes to memory: no second pipe to drain, no write to any disk.
    errors = os.fdopen(os.memfd_create("stderr"), "w+b")
    try:
        process = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment(),
            start_new_session=True,
        )
    except OSError as error:
        errors.close()
        raise WorkloadError(f"{argv[0]} cannot be started: {error.strerror}.") from error
    return process, errors


def _finish(processes: list[subprocess.Popen[bytes]], timeout_s: float | None) -> str:
    try:
        output, _ = processes[-1].communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        name = Path(os.fspath(error.cmd[0])).name
        raise WorkloadError(f"{name} was not done after {timeout_s:g} s and was ended.") from error
    for process in processes[:-1]:
        process.wait()
    return output.decode(errors="replace")


def _status(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    return f"(signal {-code})" if code < 0 else f"(status {code})"


def _read(errors: IO[bytes]) -> str:
    errors.seek(0)
    return errors.read().decode(errors="replace")
