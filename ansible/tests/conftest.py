"""Plays against the session's lab, with a build folder of the tests' own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Lab(Protocol):
    """What the root's `lab` fixture gives."""

    directory: Path
    state: dict[str, Any]
    ssh: Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Controller:
    """Our own commands, pointed at one lab."""

    lab: Lab
    build: Path

    @property
    def environment(self) -> dict[str, str]:
        """Of every command: where the lab is, and where to build."""
        return {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible" / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "FDE_BUILD": str(self.build),
            "FDE_LAB_DIR": str(self.lab.directory),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    @property
    def target(self) -> Path:
        """The resolved target."""
        return self.build / "targets" / "target.json"

    def play(
        self, playbook: str, *arguments: str, **variables: object
    ) -> subprocess.CompletedProcess[str]:
        """One play on the lab's inventory."""
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        argv = [program, "-i", "ansible/inventory/lab", "-e", json.dumps(variables), *arguments]
        return self.run([*argv, f"ansible/{playbook}"])

    def run(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        """A command in the root of the sources; its output is shown where a test fails."""
        done = subprocess.run(
            argv, env=self.environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        print(done.stdout, done.stderr)
        return done

    @staticmethod
    def recap(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
        """The counts of a play's last line."""
        line = done.stdout.split("PLAY RECAP")[-1]
        return {word: int(count) for word, count in re.findall(r"(\w+)=(\d+)", line)}

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A module of ours in this environment."""
        return self.run([sys.executable, "-m", *arguments])


@pytest.fixture(scope="session")
def controller(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Controller:
    """The controller of the session's lab, which is not provisioned yet."""
    return Controller(lab, tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="session")
def provisioned(controller: Controller) -> Controller:
    """The same after a play of site.yml."""
    done = controller.play("site.yml")
    assert done.returncode == 0, "site.yml failed; its output stands above"
    return controller
