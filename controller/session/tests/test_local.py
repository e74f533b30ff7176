"""Root's rights by sudo: on a local target, and over SSH."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from contract.errors import AgentError
from contract.private import PASSWORD_FILE
from contract.problem import Problem
from contract.tests.programs import has_ended, program, wait_until
from controller.session import session_times, timing
from controller.session.agent_client import AgentClient
from controller.targets import connection
from controller.tests.examples import resolved

HERE = resolved(ssh=None)
# What sudo is to a caller who may use it without a password; it runs for root as well.
SUDO = '#!/bin/sh\n[ "$1 $2" = "-n --" ] || exit 9\nshift 2\necho "$$" >{pid}\nexec "$@"\n'
ASKS = "#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n"


def sudo(folder: Path, text: str, patch: pytest.MonkeyPatch) -> Path:
    """Run commands as an ordinary user with this program as sudo; return the file of its pid."""
    pid = folder / "pid"
    program(folder / "sudo", text.format(pid=pid))
    patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    patch.setattr(os, "geteuid", lambda: 1000)
    return pid


@pytest.mark.parametrize("by_sudo", [False, True])
def test_a_local_command_gets_roots_environment_only(
    by_sudo: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the checkout's packages and Python would run instead of the agent's."""
    if by_sudo:
        sudo(tmp_path, SUDO, monkeypatch)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PYTHONPATH", "/dev/null/none")
    show = (
        "import json, os, sys; print(json.dumps([os.getcwd(), sorted(os.environ), sys.argv[1:]]))"
    )
    completed = connection.run(HERE, ["python3", "-c", show, "a word", "$HOME"], b"")
    folder, names, arguments = json.loads(completed.stdout)
    assert (folder, arguments) == ("/", ["a word", "$HOME"])
    assert {"PATH", "HOME", "LANG"} <= set(names) and "PYTHONPATH" not in names
    assert connection.run(HERE, ["cat"], b"secrets").stdout == b"secrets"
    assert connection.run(HERE, ["sh", "-c", "exit 7"]).returncode == 7


def login_shell(folder: Path) -> None:
    """Replace ssh by a shell that runs the last argument, as sshd does."""
    program(folder / "ssh", 'for line; do :; done\nexec sh -c "$line"')


def test_sudo_over_ssh_gives_roots_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sudo(tmp_path, SUDO, monkeypatch)
    login_shell(tmp_path)
    target = resolved(ssh={"host": "bench", "user": "alice", "become": True})
    monkeypatch.setenv("PYTHONPATH", "/dev/null/none")
    completed = connection.run(target, ["sh", "-c", 'cat; echo "$HOME $PYTHONPATH"'], b"secrets ")
    assert completed.stdout == b"secrets /root \n"
    sudo(tmp_path, ASKS, monkeypatch)
    problem = connection.describe_failure(target, connection.run(target, ["true"]))
    assert (problem.code, problem.facts["user"]) == ("sudo-password", "alice")


WANTS_PASSWORD = """#!/bin/sh
[ "$1 $2 $4" = "-A -p --" ] || exit 9
if [ "$("$SUDO_ASKPASS" "$3")" = "a \\ b'$" ]; then shift 4; exec "$@"; fi
echo 'sudo: 3 incorrect password attempts' >&2
exit 1
"""


@pytest.mark.parametrize("local", [True, False])
def test_sudos_password_is_sent_on_stdin_and_never_as_argument(
    local: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sudo(tmp_path, WANTS_PASSWORD, monkeypatch)
    login_shell(tmp_path)
    password = tmp_path / "password"
    password.write_text("a \\ b'$\n", encoding="utf-8")
    password.chmod(0o600)
    monkeypatch.setenv(PASSWORD_FILE, str(password))
    target = HERE if local else resolved(ssh={"host": "bench", "user": "alice", "become": True})
    for data in (b"", b"no line", bytes(range(256)) * 999):
        completed = connection.run(target, ["cat"], data)
        assert (completed.returncode, completed.stdout) == (0, data), completed.stderr
    assert "a \\ b" not in " ".join(connection.command(target, ["cat"]))
    password.write_text("wrong\n", encoding="utf-8")
    failed = connection.describe_failure(target, connection.run(target, ["cat"]))
    assert failed.code == "sudo-wrong-password"
    password.chmod(0o644)
    with pytest.raises(AgentError):
        connection.run(target, ["cat"])


def test_a_refusal_of_sudo_has_a_code_and_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sudo(tmp_path, ASKS, monkeypatch)
    problem = connection.describe_failure(HERE, connection.run(HERE, ["true"]))
    assert problem.code == "sudo-password" and PASSWORD_FILE in problem.remedy
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    failed = subprocess.CompletedProcess([], 3, b"", b"first\nno room")
    problem = connection.describe_failure(HERE, failed)
    facts = {"host": "This machine", "status": 3, "output": "no room"}
    assert (problem.code, dict(problem.facts)) == ("command-failed", facts)


def test_a_missing_agent_and_its_refusal_have_different_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.chdir(tmp_path)
    absent = connection.run(HERE, ["python3", "-m", "agent", "lock"])
    assert connection.describe_failure(HERE, absent).code == "no-agent"
    refusal = subprocess.CompletedProcess([], 1, b"", b"warning\nfde: The lock is held.")
    assert connection.describe_failure(HERE, refusal) == Problem("agent", {}, "The lock is held.")


def test_a_killed_local_command_ends_with_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller cannot kill sudo itself, only the shell before it."""
    pid = sudo(tmp_path, SUDO, monkeypatch)
    argv = connection.command(HERE, ["cat"])
    link = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    wait_until(lambda: pid.exists() and pid.read_text())
    assert int(pid.read_text()) != link.pid
    link.kill()
    assert link.wait() == -signal.SIGKILL
    assert link.stdin is not None
    link.stdin.close()
    wait_until(lambda: has_ended(int(pid.read_text())))


def test_a_local_agent_is_asked_without_ssh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))  # no ssh, no sudo
    monkeypatch.setattr(
        connection, "ROOT_ENVIRONMENT", ("/usr/bin/env", *connection.ROOT_ENVIRONMENT[1:])
    )
    assert AgentClient(HERE, "suite").reached()


def test_the_controllers_cpu_time_on_the_target_is_in_the_table() -> None:
    seconds: dict[str, float] = {}
    with session_times.cpu_timed(seconds):
        subprocess.run(["python3", "-c", "sum(range(3_000_000))"], check=True)
    assert seconds["controller_cpu_s"] > 0
    before = dict(seconds)
    with session_times.cpu_timed(seconds, less=True):
        subprocess.run(["python3", "-c", "sum(range(3_000_000))"], check=True)
    assert all(seconds[key] < before[key] for key in before), "what Ansible took, for instance"
    seconds = before
    result = timing.suite_timing([], [], 1.0, timing.Controller(100.0, **before))
    assert result.controller_cpu_s == seconds["controller_cpu_s"]
    remote = timing.suite_timing([], [], 1.0, timing.Controller(100.0))
    local = replace(remote, controller_cpu_s=2.0, controller_cpu_wall_s=80.0)
    assert "kept 2.5% of one processor busy" in timing.table(local)[-1]
    assert timing.table(remote) == timing.table(local)[:-1]
    assert "controller_cpu_s" not in remote.document()
