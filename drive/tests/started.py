"""`virtual-drive` as a storage developer starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from drive.initiator import Initiator
from drive.tests.process import REPOSITORY
from lab.network import Network

LOOPBACK = Network()
COMMAND = [sys.executable, "-m", "drive"]


class Started:
    """A drive started in `directory` with nothing but `words`; `said` is its greeting.

    In a network of the lab's own it listens on all of its addresses.
    """

    def __init__(self, directory: Path, *words: str, network: Network = LOOPBACK) -> None:
        everywhere = () if network == LOOPBACK else ("--address", "0.0.0.0")
        self.process = subprocess.Popen(
            network.enter([*COMMAND, *words, *everywhere]),
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        lines: list[str] = []
        while line := self.process.stdout.readline():
            lines.append(line)
            if line.lstrip().startswith("stop"):
                break
        self.said = "".join(lines)

    def _word_after(self, option: str) -> str:
        words = self.said.split()
        return words[words.index(option) + 1]

    @property
    def port(self) -> int:
        return int(self._word_after("-s"))

    @property
    def nqn(self) -> str:
        return self._word_after("-n")

    def connect(self) -> Initiator:
        return Initiator(self.port, self.nqn)

    def stop(self, number: int = signal.SIGINT) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        assert self.process.wait(30) == 0
        if self.process.stdout is not None:
            self.process.stdout.close()
