"""Calls of ansible-playbook; its output is kept in a file and shown where it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.controller.errors import ControllerError

ROOT = Path(__file__).resolve().parents[2]
SHOWN_LINES = 25


def suite(tag: str, *, inventory: Path, host: str, log: Path, variables: Mapping[str, Any]) -> None:
    """Play suite.yml with one tag (`start`, `fetch`) on one host. Raises ControllerError."""
    program = Path(sys.executable).with_name("ansible-playbook")
    argv = [str(program), "--inventory", str(inventory), "--limit", host, "--tags", tag]
    argv += ["--extra-vars", json.dumps(variables), str(ROOT / "ansible" / "suite.yml")]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible" / "ansible.cfg")}
    with log.open("w", encoding="utf-8") as output:
        try:
            done = subprocess.run(
                argv,
                env=environment,
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
