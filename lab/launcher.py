"""Starts the lab's processes and writes each down before anything else can go wrong."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict, cast

from contract import private
from contract.errors import AgentError, LabError
from contract.interrupts import deferred_interrupts
from contract.strict_json import read_object
from lab import processors
from lab.state import REPOSITORY, Layout, Process, Started, write_started

READY_LIMIT_S = 120.0  # a process that ended is not waited for; a busy computer starts slowly


def wait_for(condition: Callable[[], bool], limit_s: float) -> bool:
    """Whether the condition became true within the limit."""
    deadline = time.monotonic() + limit_s
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return met


class Ready(TypedDict):
    """What a process writes once it is ready; a drive also the port where it listens."""

    pid: int
    port: NotRequired[int]


class Launcher:
    """Starts processes for one lab; `sockets` is a directory for Unix sockets, made with it.

    `going_on` is what the lab has started before: more is added to it. The guest runs on the host's
    `processor`, all else beside it; None leaves that to the host.
    """

    def __init__(
        self, layout: Layout, going_on: Started | None = None, processor: int | None = None
    ) -> None:
        self.layout = layout
        self.processor = processor
        if going_on is not None and going_on.sockets:
            self.sockets, self._started = Path(going_on.sockets), going_on
            try:
                private.require(self.sockets)
            except AgentError as error:  # another user's by now, or gone
                raise LabError("sockets-unusable", error=error) from None
            return
        with deferred_interrupts():
            # Not in the lab's directory: the path of a Unix socket must fit into 108 bytes.
            self.sockets = Path(tempfile.mkdtemp(prefix="fde-lab-"))
            self._started = Started(str(self.sockets), ())
            write_started(layout, self._started)

    def start(
        self, name: str, command: Sequence[str], log: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Start one process in a new session, its output in `log`, or in `<name>.log`."""
        path = log or self.layout.directory / f"{name}.log"
        bound = processors.bound(command, self.processor, beside=name != "guest")
        with path.open("wb") as output, deferred_interrupts():
            process = subprocess.Popen(
                bound,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=REPOSITORY,
                start_new_session=True,
            )
            # A process that is gone already is missed by whoever waits for it.
            with contextlib.suppress(ProcessLookupError):
                self._started = self._started.with_process(Process.from_pid(name, process.pid))
            write_started(self.layout, self._started)
        return process

    def start_ready(self, name: str, command: Sequence[str]) -> Ready:
        """Start a process that takes `--ready-file`; returns what it writes there once it is ready.

        Raises LabError, with the end of its log, if it does not become ready.
        """
        ready = self.layout.directory / f"{name}.ready"
        ready.unlink(missing_ok=True)
        process = self.start(name, [*command, "--ready-file", str(ready)])
        wait_for(lambda: ready.exists() or process.poll() is not None, READY_LIMIT_S)
        if not (announced := read_object(ready)):
            log = tail(self.layout.directory / f"{name}.log")
            code = process.poll()
            how = f"not within {READY_LIMIT_S:.0f} s" if code is None else f"exit status {code}"
            raise LabError("not-started", name=name, how=how, log=log)
        return cast(Ready, announced)


def tail(path: Path, lines: int = 15) -> str:
    """Return the last lines of a log, without control characters; empty if there is none."""
    if not path.exists():
        return ""
    text = path.read_bytes()[-65536:].decode("utf-8", "replace")
    printable = "".join(c for c in text.replace("\r", "\n") if c.isprintable() or c in "\t\n")
    return "\n".join([line.rstrip() for line in printable.split("\n") if line.strip()][-lines:])
