"""Start the lab's processes and record each one immediately."""

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

READY_LIMIT_S = 120.0  # a busy computer starts slowly; the wait stops if the process ends


def wait_for(condition: Callable[[], bool], limit_s: float) -> bool:
    """Return whether the condition became true within the limit."""
    deadline = time.monotonic() + limit_s
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return met


class Ready(TypedDict):
    """Data that a process writes once it is ready; a drive adds the port where it listens."""

    pid: int
    port: NotRequired[int]


class Launcher:
    """Starts processes for one lab; `sockets` is a new directory for Unix sockets.

    `earlier` has the processes started before, to which more are added. The guest runs on the
    host's `processor`, all others on the remaining ones; None leaves the choice to the host.
    """

    def __init__(
        self, layout: Layout, earlier: Started | None = None, processor: int | None = None
    ) -> None:
        self.layout = layout
        self.processor = processor
        if earlier is not None and earlier.sockets:
            self.sockets, self._started = Path(earlier.sockets), earlier
            try:
                private.require(self.sockets)
            except AgentError as error:  # the folder is now another user's, or was removed
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
        bound = processors.bound(command, self.processor, guest=name == "guest")
        with path.open("wb") as output, deferred_interrupts():
            process = subprocess.Popen(
                bound,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=REPOSITORY,
                start_new_session=True,
            )
            # The caller that waits for the process notices if it has ended already.
            with contextlib.suppress(ProcessLookupError):
                self._started = self._started.with_process(Process.from_pid(name, process.pid))
            write_started(self.layout, self._started)
        return process

    def start_ready(self, name: str, command: Sequence[str]) -> Ready:
        """Start a process that takes `--ready-file`; return what it writes there when ready.

        Raises LabError, with the end of its log, if it does not become ready.
        """
        ready = self.layout.directory / f"{name}.ready"
        ready.unlink(missing_ok=True)
        process = self.start(name, [*command, "--ready-file", str(ready)])
        wait_for(lambda: ready.exists() or process.poll() is not None, READY_LIMIT_S)
        if not (announcement := read_object(ready)):
            log = tail(self.layout.directory / f"{name}.log")
            code = process.poll()
            how = f"not within {READY_LIMIT_S:.0f} s" if code is None else f"exit status {code}"
            raise LabError("not-started", name=name, how=how, log=log)
        return cast(Ready, announcement)


def tail(path: Path, lines: int = 15) -> str:
    """Return the last lines of a log, without control characters; empty if it does not exist."""
    if not path.exists():
        return ""
    text = path.read_bytes()[-65536:].decode("utf-8", "replace")
    printable = "".join(c for c in text.replace("\r", "\n") if c.isprintable() or c in "\t\n")
    return "\n".join([line.rstrip() for line in printable.split("\n") if line.strip()][-lines:])
