"""What provisioning brings is noted before it comes, kept from running, and removed again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.system import packages
from agent.system.command import CommandError
from agent.tests.check_context import program
from contract.tests.refusal import refuses

# Packages of a small system: `server` needs `library`, `own` of the user's needs `library` too.
APT = """cd {root} || exit 1
while :; do
    case $1 in
    --simulate) dry=1; shift;;
    -o) shift 2;;
    -*) shift;;
    *) break;;
    esac
done
verb=$1; shift
# A package or needrestart would ask.
[ -n "$dry" ] || [ "$DEBIAN_FRONTEND$NEEDRESTART_SUSPEND" = noninteractive1 ] || exit 99
case $verb in
install)
    [ -e installed/library ] && echo "Inst library [1.0] (2.0 Debian:13 [amd64])"
    for p in "$@" library; do
        [ -e installed/$p ] || echo "Inst $p (2.0 Debian:13 [amd64])"
        [ -n "$dry" ] || touch installed/$p
    done
    [ -n "$dry" ] || cp policy-rc.d at-install
    [ ! -e broken ];;
purge)
    for p; do
        [ -e installed/$p ] || continue
        echo "Purg $p [2.0]"
        [ $p = library ] && for q in server own; do
            [ -e installed/$q ] && echo "Purg $q [2.0]"
        done
        [ -n "$dry" ] || rm installed/$p
    done
    case "$*" in *left*right*) [ -e installed/either ] && echo "Purg either [2.0]";; esac
    true;;
esac
"""
DPKG = """cd {root} || exit 1
shift
for p; do cat files/$p 2>/dev/null; done; true
"""
QUERY = """cd {root} || exit 1
shift 3
for p; do [ -e installed/$p ] && echo "$p installed" || echo "$p unknown"; done; true
"""
SYSTEMCTL = """cd {root} || exit 1
if [ "$1" = show ]; then
    echo "Id=server.service\nActiveState=active\nUnitFileState=enabled\n"
    echo "Id=server.socket\nActiveState=inactive\nUnitFileState=disabled"
else
    echo "$@" >>asked
fi
"""


class System:
    """A package manager that keeps its packages as files."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root, self.note = root, root / "state" / "brought.json"
        for folder in ("installed", "files", "bin"):
            (root / folder).mkdir()
        for name, text in (("apt-get", APT), ("dpkg", DPKG), ("dpkg-query", QUERY)):
            program(root / "bin" / name, text.format(root=root))
        self.systemctl = program(root / "systemctl", SYSTEMCTL.format(root=root))
        units = "/usr/lib/systemd/system"
        (root / "files" / "server").write_text(
            f"/usr/bin/server\n{units}/server.service\n{units}/server.socket\n{units}/x@.service\n"
        )
        patch.setenv("PATH", f"{root / 'bin'}:{os.environ['PATH']}")

    def install(self, *names: str) -> None:
        for name in names:
            (self.root / "installed" / name).touch()

    def installed(self) -> set[str]:
        return {path.name for path in (self.root / "installed").iterdir()}

    def noted(self) -> dict[str, list[str]]:
        note: dict[str, list[str]] = json.loads(self.note.read_text())
        return note


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    return System(tmp_path, monkeypatch)


def test_what_comes_is_noted_and_removed_again(system: System, tmp_path: Path) -> None:
    made, existing = tmp_path / "made", tmp_path / "there"
    existing.mkdir()
    assert packages.note(["server"], [str(made), str(existing)], system.note)
    assert system.noted() == {"packages": ["library", "server"], "files": [str(made)]}
    assert not packages.note(["server"], [str(made)], system.note)
    system.install("server", "library")
    (made / "inner").mkdir(parents=True)
    assert packages.remove(system.note) == ["removed library, server", f"removed {made}"]
    assert system.installed() == set() and not made.exists() and existing.exists()
    assert packages.remove(system.note) == []


def test_what_was_there_is_not_ours_though_it_is_upgraded(system: System) -> None:
    system.install("library")
    packages.note(["server"], (), system.note)
    system.install("server")
    assert system.noted()["packages"] == ["server"]
    packages.remove(system.note)
    assert system.installed() == {"library"}


def test_what_something_else_needs_by_now_stays(system: System) -> None:
    packages.note(["server"], (), system.note)
    system.install("server", "library", "own")
    actions = packages.remove(system.note)
    assert actions == ["removed server", "left library, which other packages need"]
    assert system.installed() == {"library", "own"}


def test_of_two_that_would_do_for_something_else_one_stays(system: System) -> None:
    """Each alone could go, for `either` needs the one or the other."""
    packages.note(["left", "right"], (), system.note)
    system.install("left", "right", "either")
    actions = packages.remove(system.note)
    assert actions == ["removed left", "left right, which other packages need"]
    assert system.installed() == {"right", "either"}


def test_an_interrupted_installation_is_known(system: System) -> None:
    """Only a part of it came; and a failed removal forgets nothing."""
    packages.note(["server"], (), system.note)
    system.install("library")
    program(system.root / "bin" / "env", "echo 'E: lock' >&2; exit 100")
    with refuses("program-failed", reason="E: lock"):
        packages.remove(system.note)
    (system.root / "bin" / "env").unlink()
    assert packages.remove(system.note) == ["removed library"]


def test_a_server_that_came_does_not_run(system: System) -> None:
    assert packages.silence(system.systemctl, system.note) == []
    packages.note(["server"], (), system.note)
    system.install("server", "library")
    assert packages.silence(system.systemctl, system.note) == ["server.service"]
    assert (system.root / "asked").read_text() == "disable --now server.service\n"


def test_an_installation_starts_nothing_and_leaves_no_policy_behind(system: System) -> None:
    program(system.root / "bin" / "systemctl", SYSTEMCTL.format(root=system.root))
    policy = system.root / "policy-rc.d"
    actions = packages.install(["server"], system.note, policy)
    assert actions == ["installed server", "switched off server.service"]
    assert "exit 101" in (system.root / "at-install").read_text() and not policy.exists()
    (system.root / "broken").touch()
    with pytest.raises(CommandError):
        packages.install(["server"], system.note, policy)
    assert not policy.exists()
    (system.root / "broken").unlink()
    administrators = system.root / "own-policy"
    administrators.write_text("the user's")
    packages.install(["server"], system.note, administrators)
    assert administrators.read_text() == "the user's"


HOLD = (
    "import fcntl, sys, time; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); "
    "print(flush=True); sys.stdin.read()"
)


def test_another_apt_is_waited_for_and_named(
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
