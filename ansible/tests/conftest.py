"""Plays against the session's lab, with a build folder of the tests' own."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from contract.errors import LabError
from contract.plan import TargetDocument, read_target
from controller.targets import secrets
from lab import lifecycle, ssh
from lab.state import Layout
from lab.tests import mysql

ROOT = Path(__file__).resolve().parents[2]
GUEST = Path(__file__).with_name("guest")
WATCH = "/run/fde-watch"
CONFIGURATIONS = ("plain", "opal", "dmcrypt-aes256")  # of each kind that the suite has


class Lab(Protocol):
    """What the root's `lab` fixture gives."""

    directory: Path
    state: dict[str, Any]
    ssh: Callable[..., subprocess.CompletedProcess[str]]
    send: Callable[[Path, str], None]


BLOCK = 2**20


def _hash(medium: Path) -> str:
    """Of all blocks that are not zeros and where they lie: holes need not be read."""
    digest = hashlib.sha256()
    with medium.open("rb") as file:
        end, offset = medium.stat().st_size, 0
        while offset < end:
            try:
                offset = os.lseek(file.fileno(), offset, os.SEEK_DATA) // BLOCK * BLOCK
            except OSError:  # nothing but a hole is left
                break
            file.seek(offset)
            block = file.read(BLOCK)
            if block.strip(b"\0"):
                digest.update(offset.to_bytes(8) + block)
            offset += BLOCK
    return digest.hexdigest()


@dataclass(frozen=True)
class Controller:
    """Our own commands, pointed at one lab or several.

    `directory` is that of the lab, or has one for each; `lab` is the one lab.
    """

    AGENT = (
        "cd /opt/fde-testbed && PYTHONPATH=/opt/fde-testbed:/opt/fde-testbed/lib python3 -m agent"
    )

    directory: Path
    build: Path
    lab: Lab | None = None
    inventory: str = "ansible/inventory/lab"

    @property
    def environment(self) -> dict[str, str]:
        """Of every command: where the lab is, and where to build."""
        return {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible" / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "FDE_BUILD": str(self.build),
            "FDE_TARGETS": str(self.build / "targets"),
            "FDE_LAB_DIR": str(self.directory),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    @property
    def target(self) -> Path:
        """The resolved target."""
        path = self.build / "targets" / "target.json"
        if not path.exists():
            assert self.play("resolve.yml").returncode == 0
        return path

    @property
    def resolved(self) -> TargetDocument:
        """The same, read."""
        return read_target(self.target)

    def media(self) -> list[str]:
        """Hashes of both drives' backing files, after the guest has written everything back."""
        self.lab.ssh("sync")
        return [_hash(Path(drive["backing"])) for drive in self.lab.state["drives"].values()]

    def agent(self, arguments: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Return the agent's own command in the guest."""
        return self.lab.ssh(f"{self.AGENT} {arguments}", check=check)

    def prepare(self) -> None:
        """Do what a play of site.yml does at its end."""
        secrets.place(self.resolved)
        self.agent("prepare")

    def play(
        self, playbook: str, *arguments: str, **variables: object
    ) -> subprocess.CompletedProcess[str]:
        """One play on the inventory."""
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        argv = [program, "-i", self.inventory, "-e", json.dumps(variables), *arguments]
        return self.run([*argv, str(ROOT / "ansible" / "playbooks" / playbook)])

    def run(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        """Return a command in the root of the sources; its output is shown where a test fails."""
        result = subprocess.run(
            argv, env=self.environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        print(result.stdout, result.stderr)
        return result

    @staticmethod
    def recap(result: subprocess.CompletedProcess[str]) -> dict[str, int]:
        """Return the counts of a play's last line."""
        line = result.stdout.split("PLAY RECAP")[-1]
        return {word: int(count) for word, count in re.findall(r"(\w+)=(\d+)", line)}

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Return a module of ours in this environment."""
        return self.run([sys.executable, "-m", *arguments])


@pytest.fixture(scope="session")
def controller(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Controller:
    """Provide the controller of the session's lab, which is not provisioned yet."""
    return Controller(lab.directory, tmp_path_factory.mktemp("build"), lab)


@pytest.fixture(scope="session")
def provisioned(controller: Controller) -> Controller:
    """Provide the same after a play of site.yml."""
    result = controller.play("site.yml")
    assert result.returncode == 0, "site.yml failed; its output stands above"
    return controller


@pytest.fixture(scope="module")
def two_hosts(
    lab_directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Controller]:
    """Provide the controller of two labs beside the session's, both provisioned by one play."""
    build = tmp_path_factory.mktemp("build")
    labs = [Layout(lab_directory / host) for host in ("first", "second")]
    try:
        for layout in labs:
            lifecycle.up(layout, print, lifecycle.LabOptions())
        controller = Controller(lab_directory, build, inventory="ansible/inventory/two-labs")
        result = controller.play("site.yml")
        assert result.returncode == 0, "site.yml failed; see its output above"
        yield controller
    finally:
        for layout in labs:
            lifecycle.down(layout)


@pytest.fixture(scope="module")
def with_mysql(
    another_lab: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Controller]:
    """Provide the controller of a guest with both servers, not provisioned yet."""
    try:
        packages = mysql.ensure(print)
    except LabError as error:
        pytest.skip(f"MySQL's packages cannot be had: {error}")
    with another_lab("mysql") as handle:
        mysql.install(handle.send, handle.ssh, packages)
        yield Controller(handle.directory, tmp_path_factory.mktemp("build"), handle)


@dataclass(frozen=True)
class Witness:
    """Two watches, in the guest and here, over the argv and environment of every process."""

    watches: dict[str, subprocess.Popen[str]]

    def observed(self) -> dict[str, dict[str, Any]]:
        """Return what each has seen so far.

        Lists `argv` and `environ`, and how many it `missed`.
        """
        arguments = {}
        for place, watch in self.watches.items():
            assert watch.stdin is not None
            assert watch.stdout is not None
            watch.stdin.write("\n")
            watch.stdin.flush()
            arguments[place] = json.loads(watch.stdout.readline())
        return arguments

    def close(self) -> None:
        """End them; the one here takes a third of a processor."""
        for watch in self.watches.values():
            watch.communicate()


@pytest.fixture(scope="session")
def witness(lab: Lab) -> Iterator[Witness]:
    """Watches from now until they are closed; see guest/record.py."""
    lab.send(GUEST, WATCH)
    record = f"{WATCH}/guest/record.py"
    commands = {
        "guest": ssh.command(lab.state["ssh"], [f"python3 {record}"]),
        "controller": [sys.executable, str(GUEST / "record.py"), "--poll"],
    }
    with ExitStack() as stack:
        watches = {
            place: stack.enter_context(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
                )
            )
            for place, command in commands.items()
        }
        witness = Witness(watches)
        witness.observed()  # they are at work
        yield witness
        witness.close()


@pytest.fixture(scope="session")
def suite(
    provisioned: Controller, witness: Witness, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Provide the folder of a finished, sealed and reported micro suite.

    Its processes were watched.
    """
    del witness
    out = tmp_path_factory.mktemp("suites")
    place = ["--target", str(provisioned.target), "--inventory", provisioned.inventory]
    result = provisioned.python(
        "controller",
        *("run", "--suite", "micro", "--blocks", "1", "--out", str(out), *place),
        *("--configurations", ",".join(CONFIGURATIONS)),
    )
    assert result.returncode == 0, "the suite failed; its output stands above"
    (folder,) = out.iterdir()
    result = provisioned.python("controller", "report", str(folder))
    assert result.returncode == 0, "the report failed; its output stands above"
    return folder
