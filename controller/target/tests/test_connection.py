"""How the target is reached: by OpenSSH itself, as it reads what we ask of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from contract import private
from contract.places import ROOT
from controller.target import connection, playbook
from controller.target.connection import LinkError
from controller.tests.examples import resolved

TARGET = resolved(ssh={"host": "testbench", "port": 22, "user": "root", "known_hosts": None})


def settings(argv: list[str], careless: Path) -> str:
    """Return what ssh makes of its command line beside such a configuration of the user's."""
    shared = "ControlMaster auto\n  ControlPath /tmp/ssh-%r@%h:%p"
    careless.write_text(f"Host *\n  StrictHostKeyChecking no\n  {shared}\n", encoding="utf-8")
    command = [argv[0], "-G", "-F", str(careless), *argv[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_host_key_is_checked_whatever_the_users_configuration_says(tmp_path: Path) -> None:
    strict = "stricthostkeychecking true"  # what ssh -G calls yes
    assert strict in settings(connection.ssh(TARGET, ["true"]), tmp_path / "config")
    (line,) = [
        line
        for line in (ROOT / "ansible" / "ansible.cfg").read_text(encoding="utf-8").splitlines()
        if line.startswith("ssh_args = ")
    ]
    ansible = ["ssh", *line.partition(" = ")[2].split(), "testbench"]
    assert strict in settings(ansible, tmp_path / "config")
    assert strict not in settings(["ssh", "testbench"], tmp_path / "config")


def test_a_machine_without_ssh_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LinkError) as raised:
        connection.run(TARGET, ["true"])
    assert raised.value.code == "ssh-missing"


def test_no_connection_goes_through_a_socket_at_a_path_that_others_know(tmp_path: Path) -> None:
    """Whoever has put a socket there would be given the secrets."""
    asked = settings(connection.ssh(TARGET, ["true"]), tmp_path / "config")
    assert "controlmaster false" in asked and "controlpath" not in asked
    assert "controlpath /tmp" in settings(["ssh", "testbench"], tmp_path / "config")


def test_ansibles_connections_lie_in_a_folder_that_is_ours_alone(tmp_path: Path) -> None:
    folders = set()
    for _ in range(2):
        with playbook.environment() as variables:
            folder = Path(variables["ANSIBLE_SSH_CONTROL_PATH_DIR"])
            private.require(folder)
            program = str(Path(sys.executable).with_name("ansible-config"))
            dump = [program, "dump", "--type", "connection", "--only-changed"]
            done = subprocess.run(
                dump, env=variables, cwd=tmp_path, capture_output=True, text=True, check=True
            )
            assert f"= {folder}" in done.stdout
            folders.add(folder)
        assert not folder.exists()
    assert len(folders) == 2


def test_any_login_shell_can_read_what_is_to_be_run() -> None:
    """Neither quotes within quotes nor lines, which csh and fish take otherwise than sh."""
    script = "printf '%s\\n' \"$1\"\nexit 3 # !x `a` $HOME\\"
    line = connection.ssh(TARGET, ["sh", "-c", script, "sh", "two words"])[-1]
    assert re.fullmatch(r"exec sh -c 'eval \"\$\(echo [A-Za-z0-9+/=]+ \| base64 -d\)\"'", line)
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=False)
    assert (done.stdout, done.returncode) == (b"two words\n", 3)
    assert connection.ssh(TARGET, ["env", "A=/b:/c", "python3", "-m", "agent"])[-1] == (
        "env A=/b:/c python3 -m agent"
    )
