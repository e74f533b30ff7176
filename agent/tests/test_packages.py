"""What provisioning brings is noted before it comes, kept from running, and removed again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent.system import packages
from agent.system.command import CommandError, Output
from contract.tests.refusal import refuses

UNITS = "/usr/lib/systemd/system"
SHOWN = (
    "Id=server.service\nActiveState=active\nUnitFileState=enabled\n\n"
    "Id=server.socket\nActiveState=inactive\nUnitFileState=disabled\n"
)


class System:
    """A package manager: `server` needs `library`, and so does `own`, which is the user's."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.note, self.policy = root / "state" / "brought.json", root / "policy-rc.d"
        self.installed: set[str] = set()
        self.broken = ""
        self.at_install = ""
        self.disabled: list[list[str]] = []
        patch.setattr(packages, "run", self._run)

    def noted(self) -> dict[str, list[str]]:
        note: dict[str, list[str]] = json.loads(self.note.read_text())
        return note

    def _run(self, argv: list[str], **_: object) -> Output:
        if argv[0] == "env":  # a package or needrestart would ask
            assert {"DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1"} <= set(argv)
            if self.broken:
                facts = {"program": "apt-get", "reason": self.broken}
                raise CommandError("program-failed", exit_code=100, **facts)
        if "install" in argv:
            lines = self._install(argv[argv.index("install") + 1 :], dry="--simulate" in argv)
        elif "purge" in argv:
            lines = self._purge(argv[argv.index("purge") + 1 :], dry="--simulate" in argv)
        elif argv[0] == "dpkg":
            lines = ["/usr/bin/server", *(f"{UNITS}/{n}" for n in ("server.service", "x@.service"))]
            lines = [*lines, f"{UNITS}/server.socket"] if "server" in argv else []
        elif argv[0] == "dpkg-query":
            lines = [f"{name} installed" for name in argv[4:] if name in self.installed]
        elif argv[1:2] == ["show"]:
            lines = [SHOWN]
        else:
            lines = []
            self.disabled += [argv[1:]] if argv[0] == "systemctl" else []
        return Output(0, "".join(f"{line}\n" for line in lines), "")

    def _install(self, names: list[str], *, dry: bool) -> list[str]:
        new = [name for name in (*names, "library") if name not in self.installed]
        if not dry:
            self.installed |= {*new}
            self.at_install = self.policy.read_text()
        upgraded = ["Inst library [1.0] (2.0 Debian:13 [amd64])"] * ("library" not in new)
        return upgraded + [f"Inst {name} (2.0 Debian:13 [amd64])" for name in new]

    def _purge(self, names: list[str], *, dry: bool) -> list[str]:
        gone = self.installed & {*names}
        needing = {"server", "own"} if "library" in gone else set()
        needing |= {"either"} if {"left", "right"} <= gone else set()
        lines = [f"Purg {name} [2.0]" for name in sorted(gone | (needing & self.installed))]
        self.installed -= set() if dry else gone
        return lines


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    return System(tmp_path, monkeypatch)


def test_new_packages_are_noted_and_removed_again(system: System, tmp_path: Path) -> None:
    new, existing = tmp_path / "made", tmp_path / "there"
    existing.mkdir()
    assert packages.note(["server"], [str(new), str(existing)], system.note)
    assert system.noted() == {"packages": ["library", "server"], "files": [str(new)]}
    assert not packages.note(["server"], [str(new)], system.note)
    system.installed |= {"server", "library"}
    (new / "inner").mkdir(parents=True)
    assert packages.remove(system.note) == ["removed library, server", f"removed {new}"]
    assert system.installed == set() and not new.exists() and existing.exists()
    assert packages.remove(system.note) == []


def test_an_upgraded_package_is_not_removed(system: System) -> None:
    system.installed |= {"library"}
    packages.note(["server"], (), system.note)
    system.installed |= {"server"}
    assert system.noted()["packages"] == ["server"]
    packages.remove(system.note)
    assert system.installed == {"library"}


def test_a_package_that_another_needs_stays(system: System) -> None:
    packages.note(["server"], (), system.note)
    system.installed |= {"server", "library", "own"}
    actions = packages.remove(system.note)
    assert actions == ["removed server", "left library, which other packages need"]
    assert system.installed == {"library", "own"}


def test_one_of_two_alternatives_that_another_needs_stays(system: System) -> None:
    """Each alone could go, for `either` needs the one or the other."""
    packages.note(["left", "right"], (), system.note)
    system.installed |= {"left", "right", "either"}
    actions = packages.remove(system.note)
    assert actions == ["removed left", "left right, which other packages need"]
    assert system.installed == {"right", "either"}


def test_an_interrupted_installation_is_noted(system: System) -> None:
    """Only a part of it came; and a failed removal forgets nothing."""
    packages.note(["server"], (), system.note)
    system.installed |= {"library"}
    system.broken = "E: lock"
    with refuses("program-failed", reason="E: lock"):
        packages.remove(system.note)
    system.broken = ""
    assert packages.remove(system.note) == ["removed library"]


def test_an_installed_server_is_stopped_and_disabled(system: System) -> None:
    assert packages.silence("systemctl", system.note) == []
    packages.note(["server"], (), system.note)
    system.installed |= {"server", "library"}
    assert packages.silence("systemctl", system.note) == ["server.service"]
    assert system.disabled == [["disable", "--now", "server.service"]]


def test_an_installation_starts_no_service_and_removes_its_policy(system: System) -> None:
    actions = packages.install(["server"], system.note, system.policy)
    assert actions == ["installed server", "switched off server.service"]
    assert "exit 101" in system.at_install and not system.policy.exists()
    system.broken = "E: broken"
    with pytest.raises(CommandError):
        packages.install(["server"], system.note, system.policy)
    assert not system.policy.exists()
    system.broken, administrators = "", system.policy.with_name("own-policy")
    system.policy = administrators
    administrators.write_text("the user's")
    packages.install(["server"], system.note, administrators)
    assert administrators.read_text() == "the user's"


HOLD = (
    "import fcntl, sys, time; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); "
    "print(flush=True); sys.stdin.read()"
)


def test_a_running_apt_is_waited_for_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As unattended upgrades hold it; here by a process that holds the same kind of lock."""
    locks = [tmp_path / "absent", tmp_path / "lock"]
    argv = [sys.executable, "-c", HOLD, str(locks[1])]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        with refuses("apt-locked") as refusal:
            packages.wait_for_apt(locks, limit_s=0)
        assert f"[{process.pid}]" in str(refusal.value.facts["holder"])
        looks = iter((process.stdin.close, lambda: None))
        monkeypatch.setattr(
            "agent.system.packages.time.sleep", lambda _: next(looks, process.wait)()
        )
        packages.wait_for_apt(locks)
    assert f"[{process.pid}], waiting" in capsys.readouterr().err
    assert packages.lock_holder(locks) is None
