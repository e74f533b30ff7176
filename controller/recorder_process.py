"""One recorder as a process: started, heard, ended in order, also where it outlived a session."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent import lock
from contract.errors import ControllerError
from instrumentation.clock import monotonic_ns

POLL_S = 0.1
STOP_LIMIT_S = 15.0
# A recorder goes on so long without the session that started it: till somebody resumes the suite.
OUTLIVE_S = 24 * 3600
# A recorder tells its state twice a second; one that has not for so long hangs, or cannot write.
STALE_NS = 10 * 10**9


class RecorderProcess:
    """The recorder of one meter into one folder; what it last told is in a file."""

    def __init__(self, meter: Mapping[str, Any], folder: Path, told: Path) -> None:
        self.name: str = meter["name"]
        self._meter = meter
        self._folder = folder
        self._told = told
        self._process: subprocess.Popen[bytes] | None = None
        self._words = -1

    def start(self, *, wait: bool = False) -> None:
        """Start it; with `wait` the meter was heard before and is waited for. Raises OSError."""
        self._told.parent.mkdir(parents=True, exist_ok=True)
        self._told.unlink(missing_ok=True)  # of an earlier one: it would say "recording"
        argv = [
            sys.executable,
            "-m",
            "instrumentation.recorder",
            "--meter",
            json.dumps(self._meter),
        ]
        argv += ["--out", str(self._folder), "--status", str(self._told)]
        argv += ["--outlive", str(OUTLIVE_S), *(["--wait"] if wait else [])]
        if self._words >= 0:
            os.close(self._words)
        # Neither a pipe, which breaks with us, nor a file on a disk that may be full.
        self._words = os.memfd_create(f"recorder-{self.name}")
        # Apart from the terminal: Ctrl-C must not end it before the suite is stopped.
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._words,
            start_new_session=True,
        )

    @property
    def ended(self) -> bool:
        """Whether it is not at work any more."""
        return self._process is None or self._process.poll() is not None

    def status(self) -> dict[str, Any]:
        """What it told last; empty if that cannot be known."""
        try:
            found = json.loads(self._told.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def silence(self) -> str:
        """A sentence where nothing of the meter is being recorded, else nothing."""
        status = self.status()
        now_ns = monotonic_ns()
        if self.ended or not status or now_ns - status["t_mono_ns"] > STALE_NS:
            return f"the recorder of meter {self.name} is not at work"
        if status["state"] == "full":
            return f"the recorder of meter {self.name} has no room on its disk"
        limit_ns = (3 / status["due_hz"] + 2) * 1e9
        if status["state"] != "recording" or now_ns - status["t_record_ns"] > limit_ns:
            return f"meter {self.name} is silent"
        return ""

    def last_words(self) -> str:
        """The last line that it said before it ended."""
        said = os.pread(self._words, 1 << 16, 0).decode(errors="replace").strip()
        return said.splitlines()[-1].removeprefix("fde: ") if said else "it gave no reason"

    def tell_to_stop(self) -> None:
        """Ask it to end in order; `wait_for_end` waits for that."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait_for_end(self) -> None:
        """What it has written is whole then."""
        if self._process is None:
            return
        try:
            self._process.wait(timeout=STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def end_leftovers(suite_dir: Path) -> list[str]:
    """End recorders that outlived their session, in order; the names of their folders.

    Raises ControllerError where one cannot be ended.
    """
    ended = []
    for folder in sorted((suite_dir / "meters").glob("*/")):
        pid = lock.holder(folder)
        if pid is None:
            continue
        for number in (signal.SIGTERM, signal.SIGKILL):
            _signal(pid, number, folder)
            if _let_go(folder):
                break
        else:
            raise ControllerError(
                f"{folder} is still recorded into by process {pid}: end it, then start again."
            )
        ended.append(folder.name)
    return ended


def _signal(pid: int, number: signal.Signals, folder: Path) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise ControllerError(
            f"{folder} is recorded into by process {pid} of another user: have it ended."
        ) from None


def _let_go(folder: Path) -> bool:
    deadline = time.monotonic() + STOP_LIMIT_S
    while lock.holder(folder) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
