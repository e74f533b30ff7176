"""Drives that are killed, or whose disk fails, at a chosen step of writing their state.

They are forked from a process that has everything imported, and so start within some 50 ms; their
PINs' verifiers are cheap. The steps of a write are its calls into the operating system, counted by
the interpreter's own profiling hook, and the return from it.
"""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from drive import __main__, state
from drive.opal import credentials
from drive.tests.process import HANG_S, REPOSITORY, Drive

_START_LIMIT_S = 600  # a hang, also where a busy machine gives it hardly any time
_CALLS = frozenset({"open", "write", "flush", "fsync", "replace", "close"})
_START = multiprocessing.get_context("forkserver")
_START.set_forkserver_preload(["drive.tests.dying"])


@dataclass(frozen=True)
class End:
    """What happens at `step` (from 1) of the state's `write` since the start (0: at power-on)."""

    write: int
    step: int
    how: Literal["killed", "disk full"] = "killed"


class _Hook:
    """Watches `state.write_atomically`; before it acts it writes to `record` where that was.

    The record has what was to be written, `data`, and the call before which it ended, `at`.
    """

    def __init__(self, end: End, record: Path) -> None:
        self._end = end
        self._record = record
        self._writes = -1
        self._inside: tuple[FrameType, int] | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code is state.write_atomically.__code__ and event in ("call", "return"):
            if frame.f_locals["path"].name != "state.json":
                return
            if event == "call":
                self._writes += 1
                self._inside = frame, threading.get_ident()
                self._step = 0
            elif self._writes == self._end.write and self._inside is not None:
                self._inside = None
                if self._step < self._end.step and self._end.how == "killed":
                    self._act(frame, "return")
        elif event == "c_call" and self._inside and self._inside[1] == threading.get_ident():
            name = argument.__name__
            if name in _CALLS and self._writes == self._end.write:
                self._step += 1
                if self._step == self._end.step:
                    writer, self._inside = self._inside[0], None
                    self._act(writer, name)

    def _act(self, writer: FrameType, at: str) -> None:
        told = json.dumps({"at": at, "data": writer.f_locals["data"].hex()})
        unfinished = self._record.with_suffix(".unfinished")
        unfinished.write_text(told)
        unfinished.replace(self._record)
        if self._end.how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _run(arguments: list[str], log: Path, end: End | None, record: Path) -> None:
    os.chdir(REPOSITORY)
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    credentials.COST = 2
    if end is not None:
        hook = _Hook(end, record)
        threading.setprofile(hook)
        sys.setprofile(hook)
    sys.exit(__main__.main(arguments))


class _Process:
    """A forked process as `subprocess.Popen` would show it."""

    def __init__(self, *arguments: Any) -> None:
        self._process = _START.Process(target=_run, args=arguments, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.kill = self._process.kill
        self.terminate = self._process.terminate

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, limit_s: float = HANG_S) -> int:
        self._process.join(limit_s)
        assert self._process.exitcode is not None, "the drive hangs"
        return self._process.exitcode


@dataclass
class DyingDrive(Drive):
    """A drive that `start` makes end as it is told to; without an end it is like any other."""

    record: Path = field(init=False)

    def __post_init__(self) -> None:
        self.record = self.directory.with_name(f"{self.directory.name}.record")

    def start(self, end: End | None = None) -> None:
        self.launch(end)
        assert self.process is not None
        deadline = time.monotonic() + _START_LIMIT_S
        while not self.path("ready.json").exists():
            status = self.process.poll()
            assert status is None, f"it ended with {status} at its start: {self.log()[-1000:]}"
            assert time.monotonic() < deadline, f"it is not ready after {_START_LIMIT_S} s"
            time.sleep(0.01)

    def launch(self, end: End | None = None) -> None:
        """Starts it without waiting for its being ready."""
        self.prepare()
        self.record.unlink(missing_ok=True)
        arguments = self.command()[3:]
        self.process = _Process(arguments, self.path("log"), end, self.record)  # type: ignore[assignment]

    def wait(self) -> int:
        """Waits for its end; the number of the signal that killed it, negative."""
        assert self.process is not None
        return self.process.wait(HANG_S)

    def ended(self) -> tuple[str, bytes] | None:
        """The call before which the end came and the state that was being written, if it came."""
        if not self.record.exists():
            return None
        found = json.loads(self.record.read_text())
        return found["at"], bytes.fromhex(found["data"])
