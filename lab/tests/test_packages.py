"""packages.sh on other systems, simulated by small programs on its path."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.state import REPOSITORY

SCRIPT = REPOSITORY / "lab" / "packages.sh"
BASH = shutil.which("bash") or "/bin/bash"


class System:
    """A directory of programs that simulate a system; `log` lists the commands run as root."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "log"
        env = shutil.which("env")
        assert env is not None
        (directory / "env").symlink_to(env)
        self.program("uname", "echo x86_64")
        self.program("id", "echo 1000")
        self.program("dpkg-query", "printf installed")
        self.program("apt-get", f'echo "apt-get $*" >>{self.log}')
        self.program("python3", "exit 0")

    def program(self, name: str, body: str) -> None:
        path = self.directory / name
        path.write_text(f"#!{BASH}\n{body}\n")
        path.chmod(0o755)

    def lacks(self, package: str) -> None:
        self.program("dpkg-query", f'[ "${{@: -1}}" = {package} ] && exit 1 || printf installed')

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PATH": str(self.directory)}
        environment.pop("PYTHON", None)
        command = [BASH, str(SCRIPT), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def log_lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


def test_without_missing_packages_no_rights_are_needed(system: System) -> None:
    result = system.run()
    assert (result.returncode, result.stdout) == (0, "packages: all there\n")
    assert system.log_lines() == []


def test_only_missing_packages_are_installed(system: System) -> None:
    system.lacks("mmdebstrap")
    system.program("id", "echo 0")
    assert system.run("--list").stdout == "mmdebstrap\n"
    assert system.log_lines() == []
    assert system.run().returncode == 0
    assert system.log_lines() == [
        "apt-get -qq update",
        "apt-get -qq -y install --no-install-recommends mmdebstrap",
    ]


def test_an_ordinary_user_installs_by_sudo(system: System) -> None:
    system.lacks("uidmap")
    system.program("sudo", f'echo "sudo $*" >>{system.log}; [ "$1" = -v ] || "$@"')
    assert system.run().returncode == 0
    assert system.log_lines()[0] == "sudo -v"
    assert system.log_lines()[-1].endswith("install --no-install-recommends uidmap")


def test_a_python_without_venv_gets_one(system: System) -> None:
    system.program("python3", "exit 1")
    assert system.run("--list").stdout == "python3-venv\n"


def test_a_controller_of_real_hardware_needs_no_emulator_and_no_x86(system: System) -> None:
    system.program("uname", "echo aarch64")
    system.program("dpkg-query", "exit 1")
    listed = system.run("--without-lab", "--list").stdout.split()
    assert listed == ["ca-certificates", "openssh-client"]


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        (lambda s: s.program("uname", "echo aarch64"), "this machine is aarch64"),
        (lambda s: (s.directory / "apt-get").unlink(), "there is no apt-get here"),
        (lambda s: s.lacks("uidmap"), "need root to install: uidmap; there is no sudo"),
        (
            lambda s: (s.lacks("uidmap"), s.program("sudo", "exit 1")),
            "sudo was refused, but these packages are missing: uidmap",
        ),
        (
            lambda s: (
                s.lacks("uidmap"),
                s.program("id", "echo 0"),
                s.program("apt-get", "exit 100"),
            ),
            "apt-get update failed",
        ),
    ],
    ids=["architecture", "no apt-get", "no rights", "sudo refused", "no mirror"],
)
def test_packages_sh_refuses_in_one_sentence(
    system: System, prepare: object, sentence: str
) -> None:
    assert callable(prepare)
    prepare(system)
    result = system.run()
    assert result.returncode == 1
    assert result.stderr.startswith("fde: ")
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert system.log_lines() in ([], ["sudo -v"])


@pytest.mark.parametrize(("wish", "listed"), [("", ""), ("build", "bison\n")])
def test_build_programs_are_listed_only_for_a_kernel_build(
    wish: str, listed: str, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_KERNEL", wish)
    system.lacks("bison")
    assert system.run("--list").stdout == listed
