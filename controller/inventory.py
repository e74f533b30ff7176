"""An inventory resolved by Ansible, quietly: which hosts came through, and why others did not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from contract.errors import ControllerError
from controller import remote
from controller.names import unknown
from controller.playbook import ROOT, environment

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
