"""The virtual lab for tests marked `lab`: one guest for the whole session."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import lifecycle, ssh
from lab.state import Layout

REPOSITORY = Path(__file__).resolve().parent


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
def lab() -> Iterator[LabHandle]:
    """A lab of this session's own, in build/lab-test, taken down at the end."""
    if shutil.which("qemu-system-x86_64") is None:
        pytest.skip(
            "qemu-system-x86_64 is missing (run `make packages`), so no guest can be booted"
        )
    directory = REPOSITORY / "build" / "lab-test"
    layout = Layout(directory)
    lifecycle.down(layout)
    lifecycle.up(layout, print, lifecycle.Wish())
    try:
        yield LabHandle(directory, json.loads(layout.state.read_text(encoding="utf-8")))
    finally:
        lifecycle.down(layout)
