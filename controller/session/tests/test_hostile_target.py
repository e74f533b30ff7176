"""A hostile target: endless output of it fills neither memory nor disk."""

from __future__ import annotations

import gzip
import json
import shutil
import threading
from pathlib import Path

import pytest

from contract import plan as plans
from contract.tests.programs import program
from contract.tests.refusal import refuses
from controller.session import fetch
from controller.session.agent_client import AgentClient
from controller.session.journal_link import LinkEvents, follow
from controller.targets import connection, playbook
from controller.tests.examples import journal, plan, resolved, suite_folder
from instrumentation.clock import ClockError
from instrumentation.clock_link import ClockLink

ENDLESS = "exec cat /dev/zero"
ENTRY = json.dumps(journal([(0.0, "running", "r")])[0].__dict__)
LONG = json.dumps(json.loads(ENTRY) | {"detail": "x" * 70_000})


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace ssh by a program with an endless answer; return its path."""
    ssh = program(tmp_path / "bin" / "ssh", f"[ $1 = -Q ] && exit 1\n{ENDLESS}")
    monkeypatch.setenv("PATH", str(ssh.parent), prepend=":")
    return ssh


@pytest.mark.usefixtures("answers")
def test_an_endless_answer_of_a_command_is_refused(tmp_path: Path) -> None:
    target = resolved()
    completed = connection.run(target, ["true"])
    assert connection.describe_failure(target, completed).code == "answer-too-long"
    client = AgentClient(target, "suite")
    for ask in (client.identity, client.journal, client.plan_sha256):
        with refuses("answer-too-long"):
            ask()
    assert not client.reached() and client.unit() is None
    link = ClockLink(["cat", "/dev/zero"], tmp_path / "clock.jsonl")
    with link, pytest.raises(ClockError) as raised:
        link.burst()
    assert raised.value.code == "clock-silent"


@pytest.mark.parametrize(
    "script",
    [
        ENDLESS,
        f"printf '%s' '{ENTRY[:-1]}'; {ENDLESS}",
        f"yes '{ENTRY}'",
        "yes '{\"x\": 1}'",
        f"printf '%s\\n' '{LONG}'; sleep 100",
    ],
)
def test_an_endless_journal_is_refused(script: str) -> None:
    events = LinkEvents(lambda _: None, lambda: None, lambda _: None)
    limits = {"most_bytes": 1 << 20, "most_record_bytes": 1 << 20}
    entries = follow(lambda _: ["sh", "-c", script], events, stop=threading.Event(), **limits)
    with refuses("journal-too-long"):
        for _ in entries:
            pass


@pytest.mark.usefixtures("answers")
def test_an_endless_archive_is_refused_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = suite_folder(tmp_path / "suite", plan())
    monkeypatch.setattr(fetch, "most_archive_bytes", lambda *_: 4 << 20)
    assert not fetch.salvage(resolved(), folder)
    assert [path.name for path in folder.iterdir()] == ["plan.json"]


def test_the_largest_archive_depends_on_plan_and_disk(tmp_path: Path) -> None:
    small, large = (plans.parse(plan(blocks=blocks)) for blocks in (1, 30))
    assert small.most_journal_bytes < small.most_result_bytes < large.most_result_bytes
    free_bytes = shutil.disk_usage(tmp_path).free
    assert fetch.most_archive_bytes(large, tmp_path) <= max(16 << 20, free_bytes // 2)


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    suite_folder(tmp_path, plan())
    (tmp_path / "archive").write_bytes(gzip.compress(bytes(1 << 20)))
    with refuses("results-damaged", error="it is compressed"):
        fetch.unpack(tmp_path / "archive", tmp_path)


def test_a_play_that_fetches_an_endless_file_fails(tmp_path: Path) -> None:
    """By Ansible, which fetches files by sftp without a limit."""
    task = {"ansible.builtin.command": f"dd if=/dev/zero of={tmp_path}/fetched bs=1M count=64"}
    play = [{"hosts": "all", "connection": "local", "gather_facts": False, "tasks": [task]}]
    (tmp_path / "play.yml").write_text(json.dumps(play), encoding="utf-8")
    arguments = ["-i", "localhost,", str(tmp_path / "play.yml")]
    with (tmp_path / "log").open("w", encoding="utf-8") as output:
        assert playbook._play(arguments, output, most_bytes=8 << 20).code
        assert (tmp_path / "fetched").stat().st_size <= 8 << 20
