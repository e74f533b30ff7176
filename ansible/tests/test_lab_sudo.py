"""A target that root cannot log in to: an ordinary user's sudo does all, from check to teardown.

`make test` tries a sudo that asks for a password, `make test-all` also one that does not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible.tests.conftest import ROOT, Controller
from contract.private import PASSWORD_FILE
from lab import ssh

pytestmark = pytest.mark.lab

USER = "alice"
PASSWORD = "correct horse battery"
SUDOERS = "/etc/sudoers.d/alice"
ADD_USER = f"""
useradd --create-home --shell /bin/bash --password '*' {USER}
install -d -m 700 -o {USER} -g {USER} /home/{USER}/.ssh
install -m 600 -o {USER} -g {USER} /dev/stdin /home/{USER}/.ssh/authorized_keys
"""


@pytest.fixture(scope="module")
def by_sudo(
    another_lab: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Controller]:
    """Provide the controller of a guest whose user may log in, and may not yet use sudo."""
    folder = tmp_path_factory.mktemp("user")
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    with another_lab("sudo") as handle:
        handle.ssh(ADD_USER, stdin=key.with_suffix(".pub").read_bytes())
        link = handle.state["ssh"] | {"user": USER, "key": str(key)}
        state = json.dumps(handle.state | {"ssh": link})
        (folder / "state.json").write_text(state, encoding="utf-8")
        yield Controller(folder, tmp_path_factory.mktemp("build"), handle)


def fde(controller: Controller, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of our commands on the inventory."""
    return controller.python("controller", *arguments, "--inventory", controller.inventory)


def test_who_may_not_use_sudo_is_told(by_sudo: Controller) -> None:
    result = fde(by_sudo, "check", "--json")
    assert result.returncode == 1
    assert "sudo-denied" in result.stdout or "sudo-password" in result.stdout


@pytest.mark.parametrize(
    "with_password",
    [
        pytest.param(False, id="no-password", marks=pytest.mark.slow),
        pytest.param(True, id="password"),
    ],
)
def test_an_ordinary_user_does_all(
    with_password: bool, by_sudo: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert by_sudo.lab is not None
    tag = "" if with_password else "NOPASSWD: "
    by_sudo.lab.ssh(
        f"echo '{USER}:{PASSWORD}' | chpasswd; rm -f {SUDOERS}; umask 337; "
        f"echo '{USER} ALL=(root) {tag}ALL' >{SUDOERS}"
    )
    if with_password:
        without_file = by_sudo.environment
        file = tmp_path / "password"
        file.write_text(f"{PASSWORD}\n", encoding="utf-8")
        file.chmod(0o600)
        monkeypatch.setenv(PASSWORD_FILE, str(file))
        argv = [sys.executable, "-m", "controller", "-K", "check", "-i", by_sudo.inventory]
        result = subprocess.run(
            argv,
            env=without_file,
            cwd=ROOT,
            input=f"{PASSWORD}\n",
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,  # without a terminal it is read from standard input
        )
        assert result.returncode == 0, result.stdout + result.stderr
        assert PASSWORD not in result.stdout + result.stderr
    link = json.loads((by_sudo.directory / "state.json").read_text(encoding="utf-8"))["ssh"]
    as_root = ssh.command(link | {"user": "root"}, ["true"])
    assert subprocess.run(as_root, capture_output=True, check=False).returncode == 255
    suite = ("--suite", "micro", "--blocks", "1", "--configurations", "plain,opal")
    for arguments in (
        ("check",),
        ("provision",),
        ("prove", "plain", "opal"),
        ("run", *suite, "--out", str(tmp_path / "suites")),
        ("teardown",),
    ):
        result = fde(by_sudo, *arguments)
        assert result.returncode == 0, arguments
