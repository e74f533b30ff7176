"""The real drive process, started for a test, and its host's side."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drive.control import ask
from drive.initiator import Initiator

REPOSITORY = Path(__file__).resolve().parents[2]
NQN = "nqn.2026-01.org.fde-testbed:test"
PSID = b"LABELOFTHETESTDRIVE0123456789ABC"
SIZE_BYTES = 64 << 20
HANG_S = 60


def until(condition: Callable[[], bool]) -> None:
    """Waits for what must become true; a hang fails."""
    deadline = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < deadline, "the drive hangs"
        time.sleep(0.01)


@dataclass
class Drive:
    """A drive in `directory`; start, kill and start it again as a test needs."""

    directory: Path
    opal: bool
    block_bytes: int = 4096
    second_bytes: int = 0
    words: list[str] = field(default_factory=list)
    hosts: list[Initiator] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    def path(self, name: str) -> Path:
        return self.directory / name

    def command(self) -> list[str]:
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
        command = [sys.executable, "-m", "drive", "--verbose"]
        command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
        if self.opal:
            state, label = str(self.path("state.json")), str(self.path("psid"))
            command += ["--opal", "--state", state, "--psid-file", label]
        return command + self.words

    def prepare(self) -> None:
        """The label, and no word of an earlier start."""
        if self.opal and not self.path("psid").exists():
            self.path("psid").write_bytes(PSID)
        self.path("ready.json").unlink(missing_ok=True)

    def start(self) -> None:
        self.prepare()
        with self.path("log").open("ab") as log:
            self.process = subprocess.Popen(self.command(), cwd=REPOSITORY, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not self.path("ready.json").exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(self.log())
            time.sleep(0.02)

    def log(self) -> str:
        return self.path("log").read_text()

    @property
    def port(self) -> int:
        return int(json.loads(self.path("ready.json").read_text())["port"])

    def connect(self, **options: Any) -> Initiator:
        host = Initiator(self.port, NQN, **options)
        self.hosts.append(host)
        return host

    def io(self, **options: Any) -> Initiator:
        """An I/O queue on a controller of its own."""
        admin = self.connect()
        return self.connect(queue_id=1, controller_id=admin.controller_id, **options)

    def ask(self, command: str, **parameters: Any) -> dict[str, Any]:
        return ask(self.path("control"), command, **parameters)

    def fault(self, fault: str, **parameters: Any) -> None:
        """Puts a fault into force."""
        answer = self.ask("fault", **{"name": fault, **parameters})
        assert answer["ok"], answer

    def proc(self, name: str) -> int:
        """A number of /proc/PID/status, such as VmRSS (KiB), Threads or FDSize."""
        assert self.process is not None
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])

    def kill(self) -> None:
        """Ends the process without a chance to tidy up."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        for host in self.hosts:
            host.close()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(30) == 0, self.log()
        log = self.log()
        assert "Traceback" not in log, log
