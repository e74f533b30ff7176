"""The drive's program as a process of its own, started for a test, and its host's side."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drive import __main__
from drive.control import ask
from drive.initiator import Initiator
from drive.opal import credentials
from drive.state import DriveState, parse

REPOSITORY = Path(__file__).resolve().parents[2]
NQN = "nqn.2026-01.org.fde-testbed:test"
PSID = b"LABELOFTHETESTDRIVE0123456789ABC"
SIZE_BYTES = 64 << 20
HANG_S = 300  # on a busy machine too
COMMAND = [sys.executable, "-m", "drive"]
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["drive.tests.process", "pytest"])


def until(condition: Callable[[], bool]) -> None:
    """Wait for what must become true; a hang fails."""
    deadline = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < deadline, "the drive hangs"
        time.sleep(0.01)


def _run(
    words: Sequence[str],
    directory: Path,
    environment: dict[str, str],
    outputs: tuple[Path, Path],
    prepare: Callable[[], None] | None,
) -> None:
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), number)
    credentials.COST = 2
    if prepare is not None:
        prepare()
    sys.exit(__main__.main(list(words)))


class Forked:
    """`virtual-opal-drive` with `words`, forked from a process that has imported everything.

    It starts in a tenth of the time of a new interpreter, and its verifiers of PINs are cheap.
    Standard output and error output are appended to `outputs`; `prepare` is called before `main`.
    """

    def __init__(
        self,
        words: Sequence[str],
        directory: Path,
        outputs: tuple[Path, Path],
        prepare: Callable[[], None] | None = None,
    ) -> None:
        arguments = (words, directory, dict(os.environ), outputs, prepare)
        self._process = _FORKS.Process(target=_run, args=arguments, daemon=True)
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


def run(directory: Path, *words: str) -> tuple[int, str, str]:
    """Exit status, output and error output of a drive that ends by itself."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        code = Forked(words, directory, (out, err)).wait()
        return code, out.read_text(), err.read_text()


@dataclass
class Drive:
    """A drive in `directory`; start, kill and start it again as a test needs.

    With `own_interpreter` it is started as its users start it, and is as slow.
    """

    directory: Path
    opal: bool
    block_bytes: int = 4096
    second_bytes: int = 0
    own_interpreter: bool = False
    words: list[str] = field(default_factory=list)
    hosts: list[Initiator] = field(default_factory=list)
    process: Forked | subprocess.Popen[bytes] | None = None

    def path(self, name: str) -> Path:
        return self.directory / name

    def options(self) -> list[str]:
        options = {
            "backing": self.path("disk.img"),
            "size-bytes": SIZE_BYTES,
            "block-size": self.block_bytes,
            "second-namespace": self.second_bytes,
            "model": "fde-test-model",
            "serial": "SERIAL0001",
            "nqn": NQN,
            "ready-file": self.path("ready.json"),
            "stats": self.path("stats"),
            "control": self.path("control"),
        }
        words = ["--verbose"]
        words += [word for name, value in options.items() for word in (f"--{name}", str(value))]
        if self.opal:
            state, label = str(self.path("state.json")), str(self.path("psid"))
            words += ["--opal", "--state", state, "--psid-file", label]
        return words + self.words

    def launch(self, prepare: Callable[[], None] | None = None) -> None:
        """Start it without waiting for its being ready."""
        if self.opal and not self.path("psid").exists():
            self.path("psid").write_bytes(PSID)
        self.path("ready.json").unlink(missing_ok=True)
        log = self.path("log")
        if self.own_interpreter:
            with log.open("ab") as file:
                command = [*COMMAND, *self.options()]
                self.process = subprocess.Popen(command, cwd=REPOSITORY, stdout=file, stderr=file)
        else:
            self.process = Forked(self.options(), REPOSITORY, (log, log), prepare)

    def start(self, prepare: Callable[[], None] | None = None) -> None:
        self.launch(prepare)
        assert self.process is not None
        deadline = time.monotonic() + HANG_S
        while not self.path("ready.json").exists():
            status = self.process.poll()
            assert status is None, f"it ended with {status} at its start: {self.log()}"
            assert time.monotonic() < deadline, "the drive hangs"
            time.sleep(0.005)

    def log(self) -> str:
        return self.path("log").read_text()

    def state(self) -> DriveState:
        return parse(self.path("state.json").read_bytes())

    @property
    def port(self) -> int:
        return int(json.loads(self.path("ready.json").read_text())["port"])

    def connect(self, **options: Any) -> Initiator:
        host = Initiator(self.port, NQN, **options)
        self.hosts.append(host)
        return host

    def io(self, **options: Any) -> Initiator:
        """Return an I/O queue on a controller of its own."""
        admin = self.connect()
        return self.connect(queue_id=1, controller_id=admin.controller_id, **options)

    def ask(self, command: str, **parameters: Any) -> dict[str, Any]:
        return ask(self.path("control"), command, **parameters)

    def fault(self, fault: str, **parameters: Any) -> None:
        """Put a fault into force."""
        answer = self.ask("fault", **{"name": fault, **parameters})
        assert answer["ok"], answer

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def proc(self, name: str) -> int:
        """Return a number of /proc/PID/status, such as VmRSS (KiB), Threads or FDSize."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])

    def wait(self) -> int:
        """Wait for its end; the number of the signal that killed it, negative."""
        assert self.process is not None
        return self.process.wait(HANG_S)

    def kill(self) -> None:
        """End the process without a chance to tidy up."""
        assert self.process is not None
        self.process.kill()
        self.wait()

    def stop(self) -> None:
        for host in self.hosts:
            host.close()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            assert self.wait() == 0, self.log()
        log = self.log()
        assert "Traceback" not in log, log
