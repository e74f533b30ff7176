"""A separate lab, provisioned once, and commands on the controller's side and in the guest."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.errors import LabError
from contract.interrupts import term_interrupts
from contract.places import module_command
from lab import lifecycle, power, ssh
from lab.cache import Say
from lab.machines import Machine
from lab.state import REPOSITORY, LabState, Layout

HOME = "/opt/fde-testbed"
SUITES = "/var/lib/fde-testbed/suites"
SSH_LIMIT_S, MODULE_LIMIT_S = 120.0, 1800.0
# A dead link is to be noticed soon, but a guest on a busy machine is slow to answer.
QUICK = ("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3")


@dataclass(frozen=True)
class Scene:
    """A lab; `folder` is for trials and their logs, `build` for what the plays build.

    `disks` names a model of disks, `inventory` the lab's inventory.
    """

    folder: Path
    layout: Layout
    build: Path
    say: Say
    inventory: Path
    disks: str

    @classmethod
    def at(cls, folder: Path, inventory: str = "lab", disks: str = "") -> Scene:
        """Return a scene whose messages go to the terminal and, with their time, to `log.txt`."""
        folder.mkdir(parents=True, exist_ok=True)

        def say(line: str) -> None:
            stamped = f"{time.strftime('%H:%M:%S')} {line}"
            print(stamped, flush=True)
            with (folder / "log.txt").open("a", encoding="utf-8") as log:
                log.write(stamped + "\n")

        layout, place = Layout(folder / "lab"), REPOSITORY / "ansible" / "inventory" / inventory
        return cls(folder, layout, folder / "build", say, place, disks)

    @property
    def environment(self) -> dict[str, str]:
        """Environment of every command on the controller's side."""
        return {
            **os.environ,
            "ANSIBLE_CONFIG": str(REPOSITORY / "ansible" / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "FDE_BUILD": str(self.build),
            "FDE_TARGETS": str(self.build / "targets"),
            "FDE_LAB_DIR": str(self.layout.directory),
            "PYTHONPATH": str(REPOSITORY),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    @property
    def target_file(self) -> Path:
        """The resolved target, available once the lab is provisioned."""
        return self.build / "targets" / "target.json"

    @property
    def target(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.target_file.read_text(encoding="utf-8"))
        return document

    @property
    def state(self) -> LabState:
        """The lab's state."""
        return power.require_state(self.layout)

    @property
    def machine(self) -> Machine:
        """The guest's machine; the lab must be up."""
        return power.machine_of(self.state)

    def drive(self, role: str) -> Path:
        """Return the control socket of a drive."""
        return Path(self.state["drives"][role]["control"])

    def ready(self) -> None:
        """Start and provision the lab with the present sources; raises LabError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        options = lifecycle.LabOptions(disks=self.disks)
        lifecycle.up(self.layout, self.say, options)
        if self._provisioned():
            return
        self.say("lab: provisioning failed; starting a new one")
        lifecycle.down(self.layout)
        lifecycle.up(self.layout, self.say, options)
        if not self._provisioned():
            raise LabError(f"site.yml fails in the lab: see {self._log}")

    @property
    def _log(self) -> Path:
        return self.folder / "provision.log"

    def _provisioned(self) -> bool:
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        playbook = REPOSITORY / "ansible" / "playbooks" / "site.yml"
        argv = [program, "-i", str(self.inventory), str(playbook)]
        with self._log.open("w", encoding="utf-8") as log:
            result = subprocess.run(
                argv, env=self.environment, stdout=log, stderr=subprocess.STDOUT, check=False
            )
        return result.returncode == 0

    def ssh_argv(self, command: Sequence[str]) -> list[str]:
        """Return the argument list that runs a command in the guest."""
        argv = ssh.command(self.state["ssh"], [shlex.join(command)], connect_s=10)
        return [argv[0], *QUICK, *argv[1:]]

    def ssh(
        self, command: str, *, check: bool = True, stdin: bytes = b"", limit_s: float = SSH_LIMIT_S
    ) -> str:
        """Run a shell command in the guest and return its output. Raises LabError if it fails."""
        argv = self.ssh_argv(["sh", "-c", command])
        try:
            result = subprocess.run(
                argv, input=stdin, capture_output=True, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise LabError(f"in the guest, `{command}` did not end in {limit_s:g} s") from None
        if check and result.returncode:
            message = result.stderr.decode(errors="replace").strip()
            raise LabError(f"in the guest, `{command}` ended with {result.returncode}: {message}")
        return result.stdout.decode(errors="replace")

    def put(self, source: Path, place: str) -> None:
        """Copy a small file into the guest."""
        quoted = shlex.quote(place)
        command = f"mkdir -p $(dirname {quoted}) && cat > {quoted}"
        self.ssh(command, stdin=source.read_bytes())

    def agent(self, *arguments: str, check: bool = True) -> str:
        """Run the agent's command line in the guest."""
        command = shlex.join(["python3", "-m", "agent", *arguments])
        return self.ssh(f"cd {HOME} && PYTHONPATH={HOME}:{HOME}/lib {command}", check=check)

    def python(self, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a module of ours on the controller's side, to its end."""
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env=self.environment,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=MODULE_LIMIT_S,
            check=False,
        )

    def plan(self, suite: str, scale: str, seed: int, out: Path, blocks: int | None = None) -> Path:
        """Create a new suite below `out` and return its folder. Raises LabError without a plan."""
        blocks_option = ["--blocks", str(blocks)] if blocks else []
        result = self.python(
            "controller",
            *("plan", "--suite", suite, "--scale", scale, "--seed", str(seed), *blocks_option),
            *("--target", str(self.target_file), "--out", str(out.absolute())),
        )
        if result.returncode:
            raise LabError(f"{suite} has no plan: {result.stderr.strip()}")
        return Path(result.stdout.split()[-1])

    def session_argv(self, verb: str, suite_dir: Path, target: Path | None = None) -> list[str]:
        """Return the controller's command, `run` or `resume`, for this resolved target or ours."""
        argv = module_command("controller", verb, str(suite_dir))
        argv += ["--no-report", "--inventory", str(self.inventory)]
        return [*argv, "--target", str(target or self.target_file)]

    def run(self, work: Callable[[], int], keep_lab: bool, results: Path) -> int:
        """Run `work`, then stop the lab; return its exit status, 1 for LabError, 130 for Ctrl-C.

        `results` is the folder with the results of an interrupted one.
        """
        try:
            with term_interrupts():
                return work()
        except LabError as error:
            print(f"fde: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print(f"fde: interrupted; what was measured is kept below {results}", file=sys.stderr)
            return 130
        finally:
            if not keep_lab:
                lifecycle.down(self.layout)


def lab_parser(module: str, description: str | None, place: Path) -> argparse.ArgumentParser:
    """Return a command line with the options of all programs that run in a separate lab."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--seed", type=int, default=1, help="of the plans and of what is random")
    default = place.relative_to(REPOSITORY)
    parser.add_argument("--dir", type=Path, default=place, help=f"default {default}")
    parser.add_argument("--keep-lab", action="store_true", help="do not take the lab down")
    return parser
