"""First contact with a host: the guest's sshd."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from controller.targets import connection
from controller.tests import examples

pytestmark = pytest.mark.lab


def test_an_unknown_host_is_refused_with_the_command_to_accept_it(lab: Any, tmp_path: Path) -> None:
    known_hosts = tmp_path / "known"
    target = examples.resolved(ssh={**lab.state["ssh"], "known_hosts": str(known_hosts)})
    output = connection.run(target, ["touch", "/run/reached"])
    assert output.returncode == connection.SSH_FAILED
    problem = connection.describe_failure(target, output)
    assert problem.code == "host-key-unknown"
    assert not known_hosts.exists()  # nothing is known by having been asked
    login = str(problem.facts["login"])
    assert login in problem.remedy
    yes = login.replace("StrictHostKeyChecking=ask", "StrictHostKeyChecking=accept-new")
    subprocess.run([*shlex.split(yes), "-oBatchMode=yes", "true"], check=True)
    assert connection.run(target, ["true"]).returncode == 0
    assert not lab.ssh("ls /run/reached", check=False).stdout
