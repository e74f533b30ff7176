"""First contact with a host, and a host whose key is another one than before: the guest's sshd."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from contract.plan import TargetDocument
from contract.problem import Problem
from controller.targets import connection
from controller.tests import examples

pytestmark = pytest.mark.lab


def _target(ssh: dict[str, Any], known_hosts: Path) -> TargetDocument:
    return examples.resolved(ssh={**ssh, "known_hosts": str(known_hosts)})


def _refused(target: TargetDocument) -> Problem:
    done = connection.run(target, ["touch", "/run/reached"])
    assert done.returncode == connection.SSH_FAILED
    return connection.describe_failure(target, done)


def test_an_unknown_host_shows_its_fingerprint_and_how_to_accept_that_very_key(
    lab: Any, tmp_path: Path
) -> None:
    known = tmp_path / "known"
    target = _target(lab.state["ssh"], known)
    problem = _refused(target)
    assert problem.code == "host-key-unknown"
    fingerprints = lab.ssh("for k in /etc/ssh/ssh_host_*_key; do ssh-keygen -lf $k; done").stdout
    (shown,) = re.findall(r"(SHA256:\S+) \((\w+)\)", str(problem.facts["fingerprint"]))
    assert shown[0] in fingerprints and shown[1] in fingerprints
    assert not known.exists()  # nothing is known by having been asked
    command = problem.remedy.rsplit("`", 2)[1]
    assert command.startswith("echo ") and command.endswith(f">> {known}")
    subprocess.run(["sh", "-c", command], check=True)
    assert connection.run(target, ["true"]).returncode == 0
    assert not lab.ssh("ls /run/reached", check=False).stdout


def test_a_changed_key_is_refused(lab: Any, tmp_path: Path) -> None:
    known, other = tmp_path / "known", tmp_path / "other"
    before = Path(lab.state["ssh"]["known_hosts"]).read_text(encoding="utf-8").split()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    kind, blob = other.with_suffix(".pub").read_text(encoding="utf-8").split()[:2]
    known.write_text(f"{before[0]} {kind} {blob}\n", encoding="utf-8")
    problem = _refused(_target(lab.state["ssh"], known))
    assert problem.code == "host-key-changed"
    assert str(problem.facts["fingerprint"]).startswith("SHA256:") and ">>" not in problem.remedy
    assert known.read_text(encoding="utf-8") == f"{before[0]} {kind} {blob}\n"
    assert not lab.ssh("ls /run/reached", check=False).stdout
