"""Drives that are killed, or whose disk fails, at a chosen step of writing their state.

The steps of a write are its calls into the operating system, counted by the interpreter's own
profiling hook, and the return from it.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from drive import state
from drive.tests.process import Drive

_CALLS = frozenset({"open", "write", "flush", "fsync", "replace", "close"})


class _Hook:
    """Acts at `step` (from 1) of the state's `write` since the start (0: at power-on).

    Before it acts it writes to `record` what was to be written, `data`, and the call before which
    it ended, `at`.
    """

    def __init__(self, write: int, step: int, how: str, record: Path) -> None:
        self._write, self._end_step, self._how = write, step, how
        self._record = record
        self._writes = -1
        self._inside: tuple[FrameType, int] | None = None

    def install(self) -> None:
        """For all threads of this process."""
        threading.setprofile(self)
        sys.setprofile(self)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code is state.write_atomically.__code__ and event in ("call", "return"):
            if frame.f_locals["path"].name != "state.json":
                return
            if event == "call":
                self._writes += 1
                self._inside = frame, threading.get_ident()
                self._step = 0
            elif self._writes == self._write and self._inside is not None:
                self._inside = None
                if self._step < self._end_step and self._how == "killed":
                    self._act(frame, "return")
        elif event == "c_call" and self._inside and self._inside[1] == threading.get_ident():
            name = argument.__name__
            if name in _CALLS and self._writes == self._write:
                self._step += 1
                if self._step == self._end_step:
                    writer, self._inside = self._inside[0], None
                    self._act(writer, name)

    def _act(self, writer: FrameType, at: str) -> None:
        record = json.dumps({"at": at, "data": writer.f_locals["data"].hex()})
        unfinished = self._record.with_suffix(".unfinished")
        unfinished.write_text(record)
        unfinished.replace(self._record)
        if self._how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@dataclass
class DyingDrive(Drive):
    """A drive that can be started to end at a step of a write of its state."""

    record: Path = field(init=False)

    def __post_init__(self) -> None:
        self.record = self.directory.with_name(f"{self.directory.name}.record")

    def at(
        self, write: int, step: int, how: Literal["killed", "disk full"] = "killed"
    ) -> Callable[[], None]:
        """For `start`: it ends at `step` (from 1) of the state's `write` (0: at power-on)."""
        self.record.unlink(missing_ok=True)
        return _Hook(write, step, how, self.record).install

    def ended(self) -> tuple[str, bytes] | None:
        """Return the call that the process died before, and the state being written, if it died."""
        if not self.record.exists():
            return None
        record = json.loads(self.record.read_text())
        return record["at"], bytes.fromhex(record["data"])
