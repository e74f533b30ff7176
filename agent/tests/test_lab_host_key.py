"""First contact with a host: the guest's sshd."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from controller.targets import connection
from controller.tests import examples

pytestmark = pytest.mark.lab


def test_an_unknown_host_shows_its_fingerprint_and_the_command_to_accept_it(
    lab: Any, tmp_path: Path
) -> None:
    known_hosts = tmp_path / "known"
    target = examples.resolved(ssh={**lab.state["ssh"], "known_hosts": str(known_hosts)})
    output = connection.run(target, ["touch", "/run/reached"])
    assert output.returncode == connection.SSH_FAILED
    problem = connection.describe_failure(target, output)
    assert problem.code == "host-key-unknown"
    fingerprints = lab.ssh("for k in /etc/ssh/ssh_host_*_key; do ssh-keygen -lf $k; done").stdout
    (shown,) = re.findall(r"(SHA256:\S+) \((\w+)\)", str(problem.facts["fingerprint"]))
    assert shown[0] in fingerprints and shown[1] in fingerprints
    assert not known_hosts.exists()  # nothing is known by having been asked
    command = problem.remedy.rsplit("`", 2)[1]
    assert command.startswith("echo ") and command.endswith(f">> {known_hosts}")
    subprocess.run(["sh", "-c", command], check=True)
    assert connection.run(target, ["true"]).returncode == 0
    assert not lab.ssh("ls /run/reached", check=False).stdout
