"""The virtual lab for tests marked `lab`: one guest for the whole session."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import lifecycle, ssh
from lab.state import Layout

REPOSITORY = Path(__file__).resolve().parent


def pytest_configure() -> None:
    """Hear Ctrl-C also as a background job, whose shell switches it off; some tests send it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class LabHandle:
    """A lab that is up. `state` is the content of its state.json."""

    directory: Path
    state: dict[str, Any]

    def ssh(
        self, command: str, check: bool = True, stdin: bytes | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command in the guest as root; with `check`, a failure fails the test."""
        done = subprocess.run(
            ssh.command(self.state["ssh"], [command]), input=stdin, capture_output=True, check=False
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        if check and done.returncode != 0:
            pytest.fail(f"in the guest, `{command}` ended with {done.returncode}:\n{out}{err}")
        return subprocess.CompletedProcess(command, done.returncode, out, err)

    def send(self, source: Path, destination: str) -> None:
        """Copy a file or directory into a directory of the guest."""
        packed = subprocess.run(
            ["tar", "-C", str(source.parent), "--exclude=__pycache__", "-cf", "-", source.name],
            capture_output=True,
            check=True,
        )
        self.ssh(f"mkdir -p {destination} && tar -C {destination} -xf -", stdin=packed.stdout)


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest) -> Iterator[LabHandle]:
    """A lab of this session's own, below build/lab-test, taken down at the end.

    Its directory, with the logs, is kept if a test failed, until the next session.
    """
    if shutil.which("qemu-system-x86_64") is None:
        pytest.skip(
            "qemu-system-x86_64 is missing (run `make packages`), so no guest can be booted"
        )
    labs = REPOSITORY / "build" / "lab-test"
    _sweep(labs)
    directory = labs / str(os.getpid())
    layout = Layout(directory)
    lifecycle.up(layout, print, lifecycle.Wish())
    try:
        yield LabHandle(directory, json.loads(layout.state.read_text(encoding="utf-8")))
    finally:
        lifecycle.down(layout)
        if not request.session.testsfailed:
            shutil.rmtree(directory)


def _sweep(labs: Path) -> None:
    """Take down and remove what killed sessions left; a session that still runs keeps its lab."""
    for directory in labs.glob("[0-9]*"):
        if not Path(f"/proc/{directory.name}").exists():
            lifecycle.down(Layout(directory))
            shutil.rmtree(directory)
