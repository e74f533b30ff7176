"""What ssh's failures mean for people, and which fingerprints a provisioning must find again."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from contract.errors import ControllerError
from controller.session.target_identity import require_same_target
from controller.target import connection
from controller.target.survey import Look, ask, checked, checks_file
from controller.tests.examples import target


@pytest.mark.parametrize(
    ("code", "said", "words"),
    [
        (255, "ssh: Could not resolve hostname h: Name or service not known", "see ansible_host"),
        (255, "ssh: connect to host h port 22: Connection refused", "nothing listens there"),
        (255, "ssh: connect to host h port 22: Connection timed out", "it does not answer"),
        (255, "ssh: connect to host h port 22: No route to host", "there is no way to it"),
        (255, "Host key verification failed.", "its host key is not known here, and it shows none"),
        (255, "root@h: Permission denied (publickey).", "see ansible_user"),
        (255, "something new", "cannot be reached by SSH: something new"),
        (255, "", "it gave no reason"),
        (3, "first\nmktemp: no room", "status 3.: mktemp: no room"),
        (3, "", "it said nothing"),
    ],
)
def test_a_failure_of_ssh_is_one_sentence(code: int, said: str, words: str) -> None:
    done = subprocess.CompletedProcess(["ssh"], code, b"", said.encode())
    sentence = connection.why({"ssh": {"host": "h", "port": 1, "user": "root"}}, done)
    assert sentence.startswith("h ") and "\n" not in sentence
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(sentence)


def test_a_login_shell_that_prints_is_named_with_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a .bashrc does that greets: file transfers and the clock's link would read that too."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/bash\necho "Welcome to h"\nexec bash -c "${@: -1}"\n', encoding="utf-8")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    machine = {"ssh": {"host": "h", "port": 1, "user": "root"}}
    with pytest.raises(ControllerError, match=r"prints 'Welcome to h' .*~/\.bashrc"):
        ask(machine, "load", "0")


def seen(fingerprint: str | None) -> Look:
    """Two disks as the agent tells of them, one of them without a fingerprint."""
    disks: list[dict[str, Any]] = [
        {"role": "plain", "fingerprint": fingerprint, "refusals": [refusal("in-use")]},
        {"role": "sed", "fingerprint": None, "refusals": []},
    ]
    return Look({}, [refusal("no-systemd")], disks, None)


def refusal(cause: str) -> dict[str, Any]:
    return {"code": cause, "facts": {}, "sentence": "…", "remedy": ""}


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A build folder of the test's own."""
    monkeypatch.setenv("FDE_BUILD", str(tmp_path))
    (tmp_path / "checks").mkdir()
    return tmp_path


def keep(by_id: str) -> None:
    """A check of a disk with that path."""
    document = {
        "fingerprints": {"plain": "then"},
        "disks": [{"role": "plain", "by_id": by_id}],
    }
    checks_file(target()).write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.usefixtures("build")
def test_hosts_of_one_name_have_a_check_each_by_their_way_and_their_disks() -> None:
    one, moved, other, local = (target() for _ in range(4))
    moved["ssh"]["host"] = "another.example.org"
    other["disks"]["plain"]["serial"] = "another"
    local["ssh"] = None
    assert len({checks_file(each) for each in (one, moved, other, local)}) == 4
    roles = {**one, "disks": dict(zip("ab", one["disks"].values(), strict=True))}
    assert checks_file({**roles, "meters": []}) == checks_file(one)


@pytest.mark.usefixtures("build")
def test_the_last_check_counts_if_it_was_of_the_same_disk() -> None:
    assert checked(target(), seen("now")) == {"plain": "now"}
    keep(target()["disks"]["plain"]["by_id"])
    assert checked(target(), seen("now")) == {"plain": "then"}
    keep("/dev/disk/by-id/of-another-machine")
    assert checked(target(), seen("now")) == {"plain": "now"}


@pytest.mark.usefixtures("build")
def test_a_check_that_cannot_be_read_does_not_count() -> None:
    checks_file(target()).write_text("[]", encoding="utf-8")
    assert checked(target(), seen("now")) == {"plain": "now"}


def test_everything_that_was_refused_is_counted() -> None:
    assert [refused["code"] for refused in seen(None).refused] == ["no-systemd", "in-use"]
    (refused,) = Look({}, [], [], "no sfdisk").refused
    assert (refused["code"], refused["sentence"]) == ("disks-unseen", "no sfdisk")


def test_a_plan_goes_on_with_the_same_disks_given_up_or_not() -> None:
    now = target()
    plan = {**target(), "suite_id": "s"}
    now["disks"]["plain"]["erase"] = now["disks"]["plain"]["serial"]
    require_same_target(plan, now)
    now["disks"]["plain"]["serial"] = "another"
    with pytest.raises(ControllerError, match=r"another target, with disk "):
        require_same_target(plan, now)
