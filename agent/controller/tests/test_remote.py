"""How the target is reached: by OpenSSH itself, as it reads what we ask of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from agent.controller import remote
from agent.controller.playbook import ROOT

TARGET = {"ssh": {"host": "testbench", "port": 22, "user": "root", "known_hosts": None}}


def settings(argv: list[str], careless: Path) -> str:
    """What ssh makes of its command line beside such a configuration of the user's."""
    careless.write_text("Host *\n  StrictHostKeyChecking no\n", encoding="utf-8")
    command = [argv[0], "-G", "-F", str(careless), *argv[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_host_key_is_checked_whatever_the_users_configuration_says(tmp_path: Path) -> None:
    strict = "stricthostkeychecking true"  # what ssh -G calls yes
    assert strict in settings(remote.ssh(TARGET, ["true"]), tmp_path / "config")
    (line,) = [
        line
        for line in (ROOT / "ansible" / "ansible.cfg").read_text(encoding="utf-8").splitlines()
        if line.startswith("ssh_args = ")
    ]
    ansible = ["ssh", *line.partition(" = ")[2].split(), "testbench"]
    assert strict in settings(ansible, tmp_path / "config")
    assert strict not in settings(["ssh", "testbench"], tmp_path / "config")
