"""First contact with a host, and a host whose key is another one than before: the guest's sshd."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from controller.target import connection

pytestmark = pytest.mark.lab


def _refused(target: dict[str, Any]) -> str:
    done = connection.run(target, ["touch", "/run/reached"])
    assert done.returncode == connection.SSH_FAILED
    return connection.why(target, done)


def test_an_unknown_host_shows_its_fingerprint_and_how_to_accept_that_very_key(
    lab: Any, tmp_path: Path
) -> None:
    known = tmp_path / "known"
    target = {"ssh": {**lab.state["ssh"], "known_hosts": str(known)}}
    printed = _refused(target)
    fingerprints = lab.ssh("for k in /etc/ssh/ssh_host_*_key; do ssh-keygen -lf $k; done").stdout
    (shown,) = re.findall(r"It shows (SHA256:\S+) \((\w+)\)", printed)
    assert shown[0] in fingerprints and shown[1] in fingerprints
    assert not known.exists()  # nothing is known by having been asked
    command = printed.rsplit("`", 2)[1]
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
    target = {"ssh": {**lab.state["ssh"], "known_hosts": str(known)}}
    printed = _refused(target)
    assert "another one than the one that is known here" in printed
    assert "It now shows SHA256:" in printed and ">>" not in printed
    assert known.read_text(encoding="utf-8") == f"{before[0]} {kind} {blob}\n"
    assert not lab.ssh("ls /run/reached", check=False).stdout
