"""`virtual-opal-drive` as a storage developer starts it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from drive.initiator import Initiator
from drive.tests.installed import environment, program
from drive.tests.process import COMMAND, REPOSITORY
from lab.network import Network

LOOPBACK = Network()


class Started:
    """A drive started in `directory` with nothing but `words`; `greeting` is what it prints.

    In a network of the lab's own it listens on all of its addresses. It is the checkout's, or the
    one installed below a folder.
    """

    def __init__(
        self,
        directory: Path,
        *words: str,
        network: Network = LOOPBACK,
        installed: Path | None = None,
    ) -> None:
        everywhere = () if network == LOOPBACK else ("--address", "0.0.0.0")
        command, env = COMMAND, {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        if installed is not None:
            command, env = [str(program(installed))], environment(installed)
        self.process = subprocess.Popen(
            network.enter([*command, *words, *everywhere]),
            cwd=directory,
            env=env,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        lines: list[str] = []
        while line := self.process.stdout.readline():
            lines.append(line)
            if line.lstrip().startswith("stop"):
                break
        self.greeting = "".join(lines)

    def _word_after(self, option: str) -> str:
        words = self.greeting.split()
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
