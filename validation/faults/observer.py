"""An observer of the target's journal that keeps every line it has ever shown."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from contract.errors import LabError
from contract.journal import Entry
from validation.scene import SUITES, Scene

WATCH = Path(__file__).with_name("guest") / "watch.py"
RETRY_S = 0.5


@dataclass(frozen=True)
class Line:
    """A line of the journal, and when it arrived here, in s of this machine's clock."""

    entry: Entry
    received_s: float


class Observer:
    """Follows one suite's journal over SSH from a thread, through every cut.

    It shares nothing with the product but the format of a line. Its lines are also written to the
    file `lines_file`.
    """

    def __init__(self, scene: Scene, suite_id: str, lines_file: Path) -> None:
        self._scene = scene
        self._path = f"{SUITES}/{suite_id}/journal.jsonl"
        self._lines_file = lines_file
        self._lines: list[Line] = []
        self._known: set[Entry] = set()
        self._news = threading.Condition()
        self._stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._process is not None:
            self._process.kill()
        self._thread.join(timeout=10)

    def lines(self, start: int = 0) -> list[Line]:
        """Return the lines from number `start` on, in the order of arrival."""
        with self._news:
            return self._lines[start:]

    def wait(
        self, matches: Callable[[Line], bool], *, start: int, limit_s: float, event: str
    ) -> Line:
        """Return the first matching line from number `start` on, as soon as it arrives.

        Raises LabError, with the last line that came, where none was in `limit_s`.
        """
        deadline = time.monotonic() + limit_s
        at = start
        with self._news:
            while True:
                for line in self._lines[at:]:
                    if matches(line):
                        return line
                at = len(self._lines)
                if not self._news.wait(timeout=min(1.0, deadline - time.monotonic())) and (
                    time.monotonic() > deadline
                ):
                    last = self._lines[-1].entry if self._lines else "nothing at all"
                    raise LabError(f"no {event} in {limit_s:.0f} s; the journal's last: {last}")

    def _follow(self) -> None:
        command = ["python3", "-u", "-c", WATCH.read_text(encoding="utf-8"), self._path]
        argv = self._scene.ssh_argv(command)  # a machine that boots again has its old address
        while not self._stopped.is_set():
            with subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            ) as self._process:
                assert self._process.stdout is not None
                for text in self._process.stdout:
                    self._take(text)
                self._process.kill()
            self._stopped.wait(RETRY_S)

    def _take(self, text: bytes) -> None:
        try:
            entry = Entry(**json.loads(text))
        except (ValueError, TypeError):
            return  # the empty line of a live link, or a line that the link has cut off
        if entry in self._known:
            return
        self._known.add(entry)
        line = Line(entry, time.monotonic())
        with self._lines_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**asdict(entry), "received_s": line.received_s}) + "\n")
        with self._news:
            self._lines.append(line)
            self._news.notify_all()
