"""The controller's process: started as a person would, and ended by any signal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from contract.errors import LabError
from lab.state import REPOSITORY
from validation.scene import Scene


class Controller:
    """`python -m controller run|resume` in a new process group, its output in a log.

    `options` of ours come behind its own; the command starts with `prefix`.
    """

    def __init__(self, scene: Scene, suite_dir: Path, log: Path, target: Path) -> None:
        self._scene = scene
        self._target = target
        self._suite_dir = suite_dir
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.prefix: Sequence[str] = ()
        self.options: Sequence[str] = ()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the session, first as `run`, later as `resume`."""
        verb = "resume" if self.starts else "run"
        self.starts += 1
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"--- {verb}\n")
            log.flush()
            argv = self._scene.session_argv(verb, self._suite_dir, self._target)
            self._process = subprocess.Popen(
                [*self.prefix, *argv, *self.options],
                env=self._scene.environment,
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self, limit_s: float) -> int:
        """Return its exit status. Raises LabError if it does not end."""
        assert self._process is not None
        try:
            return self._process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise LabError(f"the controller has not ended in {limit_s:.0f} s") from None

    def kill(self) -> None:
        """Send SIGKILL to the controller only, not to its children."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait(10)

    def interrupt(self) -> None:
        """Send Ctrl-C, as a terminal does, to the whole group."""
        os.killpg(self.pid, signal.SIGINT)

    def recorders(self) -> set[int]:
        """Return the process ids of the recorders that write for this suite."""
        pids = set()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                argv = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            ours = "instrumentation.recorder" in argv and str(self._suite_dir) in " ".join(argv)
            if ours and state not in "ZX":
                pids.add(int(folder.name))
        return pids

    def end(self) -> None:
        """Kill the controller, its group and its recorders."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait(timeout=10)
        for pid in self.recorders():
            os.kill(pid, signal.SIGKILL)
