"""Codes of ssh's failures, and the fingerprints that a provisioning must find again."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from contract import schema
from contract.disks import DiskAnswer
from contract.plan import TargetDocument
from contract.problem import Problem
from contract.tests.programs import program
from contract.tests.refusal import refuses
from controller.session.target_identity import require_same_target
from controller.targets import connection
from controller.targets.survey import TargetAnswer, checks_file, expected_fingerprints, load
from controller.tests.examples import compiled, facts, resolved, suite, target

MACHINE = resolved(ssh={"host": "h", "port": 1, "user": "root"})


@pytest.fixture
def mute_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an ssh that fails, and says why only at LogLevel=INFO."""
    at_info = '[ "$1" != -oLogLevel=INFO ] || echo "Connection reset by peer" >&2'
    program(tmp_path / "ssh", f"#!/bin/sh\n{at_info}\nexit 255\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.usefixtures("mute_ssh")
@pytest.mark.parametrize(
    ("status", "stderr", "code", "output"),
    [
        (255, "ssh: Could not resolve hostname h: Name unknown", "name-unknown", None),
        (255, "ssh: connect to host h port 22: Connection refused", "connection-refused", None),
        (255, "ssh: connect to host h port 22: Connection timed out", "no-answer", None),
        (255, "ssh: connect to host h port 22: No route to host", "no-route", None),
        (255, "root@h: Permission denied (publickey).", "not-admitted", None),
        (255, "something new", "ssh-failed", "something new"),
        (255, "@@ REVOKED HOST KEY @@ Host key verification failed.", "host-key-revoked", ""),
        (255, "", "dropped", "Connection reset by peer"),  # as ssh says at LogLevel=INFO
        (3, "first\nmktemp: no room", "command-failed", "mktemp: no room"),
        (3, "", "command-failed", "no output"),
    ],
)
def test_ssh_failures_have_a_code_and_one_line(
    status: int, stderr: str, code: str, output: str | None
) -> None:
    result = subprocess.CompletedProcess(["ssh"], status, b"", stderr.encode())
    problem = connection.describe_failure(MACHINE, result)
    assert (problem.code, problem.facts["host"]) == (code, "h")
    assert output == "" or problem.facts["output"] == (stderr if output is None else output)
    assert "\n" not in str(problem)


def test_a_login_shell_that_refuses_is_quoted() -> None:
    """As nologin does, on standard output."""
    words = "This account is currently not available."
    result = subprocess.CompletedProcess(["ssh"], 1, f"{words}\n".encode(), b"")
    problem = connection.describe_failure(MACHINE, result)
    assert (problem.code, problem.facts["output"]) == ("command-failed", words)


@pytest.mark.parametrize(
    ("stderr", "code", "removal"),
    [
        ("", "host-key-unknown", "ssh-keygen -R '[h]:1'"),
        ("REMOTE HOST IDENTIFICATION HAS CHANGED!\n", "host-key-changed", "ssh-keygen -R '[h]:1'"),
        (
            "IDENTIFICATION HAS CHANGED!\n  remove with:\n  ssh-keygen -f '/k' -R 'h'\n",
            "host-key-unknown",
            "ssh-keygen -f '/k' -R 'h'",
        ),
    ],
)
def test_a_refused_host_key_has_the_command_that_shows_it(
    stderr: str, code: str, removal: str
) -> None:
    words = f"{stderr}Host key verification failed.".encode()
    problem = connection.describe_failure(MACHINE, subprocess.CompletedProcess([], 255, b"", words))
    assert problem.code == code and problem.facts["removal"] == removal
    assert problem.facts["login"] == "ssh -oStrictHostKeyChecking=ask -p1 root@h"


@pytest.mark.parametrize(
    ("startup", "status", "output"),
    [
        ('echo "Welcome to h"', 0, "'no output'"),  # file transfers would read that too
        ("exit 1", 1, "'no output'"),
        ("cat >/dev/null", 97, "'no output'"),
        ("exec tmux", 1, "'not a terminal'"),
    ],
)
def test_a_login_shell_that_changes_commands_is_refused(
    startup: str, status: int, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "ssh", f'#!/bin/bash\n{startup}\nexec bash -c "${{@: -1}}"\n')
    program(tmp_path / "tmux", "#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    stderr = b"not a terminal" if startup == "exec tmux" else b""
    result = subprocess.CompletedProcess([], status, b"", stderr)
    problem = connection.describe_failure(MACHINE, result)
    assert (problem.code, problem.facts["output"]) == ("login-shell", output)


def test_output_of_the_login_shell_is_refused_and_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "ssh", '#!/bin/bash\necho "Welcome to h"\nexec bash -c "${@: -1}"\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(connection.TargetError) as raised:
        load(MACHINE, 0)
    assert (raised.value.code, raised.value.facts["output"]) == ("login-shell", "'Welcome to h'")


def answer(fingerprint: str | None) -> TargetAnswer:
    """Return an answer with two disks, one of them without a fingerprint."""
    disks = (
        DiskAnswer("plain", "", (refusal("in-use"),), fingerprint=fingerprint),
        DiskAnswer("sed", "", ()),
    )
    return TargetAnswer(facts(), (refusal("no-systemd"),), disks)


def refusal(code: str) -> Problem:
    return Problem(code, {}, "…")


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a build folder of the test's own."""
    monkeypatch.setenv("FDE_BUILD", str(tmp_path))
    (tmp_path / "checks").mkdir()
    return tmp_path


def keep(by_id: str) -> None:
    """Make a check of a disk with that path."""
    document = {"fingerprints": {"plain": "then"}, "disks": [{"role": "plain", "by_id": by_id}]}
    checks_file(resolved()).write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.usefixtures("build")
def test_hosts_of_one_name_have_separate_records_by_link_and_disks() -> None:
    original, moved, other, local = (target() for _ in range(4))
    moved["ssh"]["host"] = "another.example.org"
    other["disks"]["plain"]["serial"] = "another"
    local["ssh"] = None
    targets = [schema.read(TargetDocument, each) for each in (original, moved, other, local)]
    assert len({checks_file(each) for each in targets}) == 4
    roles = dict(zip("ab", original["disks"].values(), strict=True))
    assert checks_file(resolved(disks=roles, lab=True)) == checks_file(resolved())


@pytest.mark.usefixtures("build")
def test_a_recorded_fingerprint_counts_only_for_the_same_disk() -> None:
    assert expected_fingerprints(resolved(), answer("now")) == {"plain": "now"}
    keep(resolved().disks["plain"].by_id)
    assert expected_fingerprints(resolved(), answer("now")) == {"plain": "then"}
    keep("/dev/disk/by-id/of-another-machine")
    assert expected_fingerprints(resolved(), answer("now")) == {"plain": "now"}
    checks_file(resolved()).write_text("[]", encoding="utf-8")
    assert expected_fingerprints(resolved(), answer("now")) == {"plain": "now"}


def test_refusals_include_machine_disks_and_errors() -> None:
    assert [problem.code for problem in answer(None).refused] == ["no-systemd", "in-use"]
    (problem,) = TargetAnswer(facts(), error="no sfdisk").refused
    assert (problem.code, problem.sentence) == ("disks-unseen", "no sfdisk")


def test_a_plan_requires_the_same_disks_but_not_the_same_erase() -> None:
    changed = target()
    plan = compiled(suite())
    changed["disks"]["plain"]["erase"] = changed["disks"]["plain"]["serial"]
    require_same_target(plan, schema.read(TargetDocument, changed))
    changed["disks"]["plain"]["serial"] = "another"
    with refuses("other-target"):
        require_same_target(plan, schema.read(TargetDocument, changed))
