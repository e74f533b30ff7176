"""Calls of ansible-playbook; a suite's output is kept in a file and shown where it fails.

`python -m controller.playbook …` is ansible-playbook as this project calls it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contract.errors import ControllerError

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
