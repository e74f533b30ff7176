"""An inventory resolved by Ansible, quietly: which hosts came through, and why others did not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from contract.errors import ControllerError
from controller import remote
from controller.names import unknown

RESULT = re.compile(r"^fatal: \[([^]]+)\]: FAILED! =>[ \t]*\n((?:[ \t]+.*\n|\n)+)", re.MULTILINE)
RECAP = re.compile(r"^(\S+)\s+: ok=\d+.* failed=(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Inventory:
    """Resolved targets, and reasons by host where the inventory was refused."""

    targets: list[dict[str, Any]]
    refused: dict[str, list[str]]


def resolve(path: Path) -> Inventory:
    """Play resolve.yml; raises ControllerError where there is no such inventory, or none at all."""
    if not path.exists():
        known = [str(entry) for entry in sorted(path.parent.glob("*/"))]
        raise ControllerError(
            unknown("inventory", str(path), known)
            if known
            else f"There is no inventory {path}: copy ansible/inventory/hardware.example."
        )
    program = Path(sys.executable).with_name("ansible-playbook")
    with environment() as variables:
        done = subprocess.run(
            [str(program), "--inventory", str(path), str(ROOT / "ansible" / "resolve.yml")],
            env={**variables, "ANSIBLE_NOCOLOR": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    refused = {host: _reasons(host, block) for host, block in RESULT.findall(done.stdout)}
    hosts = [host for host, failed in RECAP.findall(done.stdout) if failed == "0"]
    if not hosts and not refused:
        raise ControllerError(
            f"Ansible cannot read {path}: {_last_words(done.stdout, done.stderr)}"
        )
    return Inventory([remote.read_target(target_file(host)) for host in hosts], refused)


def target_file(host: str) -> Path:
    """Where resolve.yml writes a host's resolved target."""
    build = Path(os.environ.get("FDE_BUILD") or ROOT / "build")
    return build / "targets" / f"{host}.json"


def _reasons(host: str, block: str) -> list[str]:
    """The sentences in a failed task's result."""
    try:
        result = yaml.safe_load(textwrap.dedent(block))
    except yaml.YAMLError:
        return [" ".join(block.split())]
    if result.get("argument_errors"):
        return [str(reason) for reason in result["argument_errors"]]
    said = str(result.get("msg", json.dumps(result))).removeprefix(f"{host}: ")
    return said.split("; ")


def _last_words(out: str, err: str) -> str:
    lines = [line for line in (err + out).splitlines() if "ERROR" in line or "WARNING" in line]
    return lines[0] if lines else "it names no host in the group `targets`."


ROOT = Path(__file__).resolve().parents[1]
SHOWN_LINES = 25


@contextmanager
def environment() -> Iterator[dict[str, str]]:
    """What ansible-playbook is to be started with: its connections lie open in a folder that is
    ours alone and that nobody can know beforehand, for as long as this context."""
    with tempfile.TemporaryDirectory(prefix="fde-cp-") as sockets:
        config = str(ROOT / "ansible" / "ansible.cfg")
        yield {**os.environ, "ANSIBLE_CONFIG": config, "ANSIBLE_SSH_CONTROL_PATH_DIR": sockets}


def suite(tag: str, *, inventory: Path, host: str, log: Path, variables: Mapping[str, Any]) -> None:
    """Play suite.yml with one tag (`start`, `fetch`) on one host. Raises ControllerError."""
    program = _program()
    argv = [str(program), "--inventory", str(inventory), "--limit", host, "--tags", tag]
    argv += ["--extra-vars", json.dumps(variables), str(ROOT / "ansible" / "suite.yml")]
    with log.open("w", encoding="utf-8") as output, environment() as variables_of_ansible:
        try:
            done = subprocess.run(
                argv,
                env=variables_of_ansible,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        except FileNotFoundError:
            raise ControllerError(f"{program} is not there: run make venv.") from None
    if done.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").rstrip().splitlines()
        print("\n".join(lines[-SHOWN_LINES:]), file=sys.stderr)
        raise ControllerError(
            f"Ansible could not {tag} the suite on {host}; its last lines stand above, all of them "
            f"in {log}. Is the target up and provisioned (make provision)?"
        )


def _program() -> Path:
    return Path(sys.executable).with_name("ansible-playbook")


def main(arguments: Sequence[str]) -> int:
    """Its own status."""
    with environment() as variables:
        try:
            return subprocess.run(
                [str(_program()), *arguments], env=variables, check=False
            ).returncode
        except FileNotFoundError:
            print(f"fde: {_program()} is not there: run make venv.", file=sys.stderr)
            return 1
        except KeyboardInterrupt:  # it has heard it, too, and has said so
            return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
