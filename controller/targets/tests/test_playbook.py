"""Events of Ansible for programs: each host's counts and failures as JSON, and never a secret."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from contract.places import ANSIBLE
from contract.tests.refusal import refuses
from controller.targets import playbook
from controller.tests import examples

PLAY = """
- hosts: targets
  gather_facts: false
  tasks:
    - name: Forgiven
      ansible.builtin.command: {cmd: "false"}
      ignore_errors: true
      when: inventory_hostname == 'well'
    - name: Forgiven, each
      ansible.builtin.command: {cmd: "false"}
      loop: [0, 1]
      ignore_errors: true
      when: inventory_hostname == 'loops'
    - name: Hidden
      ansible.builtin.fail: {msg: hunter2}
      no_log: true
      when: inventory_hostname == 'hides'
    - name: Each
      ansible.builtin.shell: {cmd: "echo 'fatal: [well]: => {item} is wrong' >&2; exit {item}"}
      loop: [0, 1, 2]
      when: inventory_hostname == 'loops'
    - name: Reach
      ansible.builtin.ping:
      when: inventory_hostname == 'away'
""".replace("{item}", "{{ item }}")
INVENTORY = """
targets:
  hosts:
    well: {ansible_connection: local}
    hides: {ansible_connection: local}
    loops: {ansible_connection: local}
    away: {ansible_host: 127.0.0.1, ansible_port: 1}
"""


def play(folder: Path, plays: str, inventory: str) -> playbook.Play:
    """Play on an inventory, both as they stand here."""
    (folder / "play.yml").write_text(plays, encoding="utf-8")
    (folder / "hosts.yml").write_text(inventory, encoding="utf-8")
    with (folder / "log").open("w", encoding="utf-8") as output:
        return playbook._play(["-i", f"{folder}/hosts.yml", f"{folder}/play.yml"], output)


def test_a_play_reports_failures_and_counts_but_no_secret(tmp_path: Path) -> None:
    result = play(tmp_path, PLAY, INVENTORY)
    assert result.code != 0
    failures = {failure.host: failure for failure in result.failures}
    assert set(failures) == {"hides", "loops", "away"}
    assert failures["hides"].task == "Hidden" and "no_log" in failures["hides"].reasons[0]
    assert [reason.rpartition("=> ")[2] for reason in failures["loops"].reasons] == [
        "1 is wrong",
        "2 is wrong",
    ]
    reason = failures["away"].reasons[0]
    assert "Connection refused" in reason or "could not be sent" in reason  # whichever came first
    assert "hunter2" not in str(result)
    counts = {host: (n["failures"], n["unreachable"]) for host, n in result.counts.items()}
    assert counts == {"well": (0, 0), "hides": (1, 0), "loops": (1, 0), "away": (0, 1)}


def test_a_play_ignores_the_environment_of_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A locale that is not generated, no home, and what a user has set for plays of his own."""
    monkeypatch.delenv("HOME", raising=False)
    for name, value in {
        "LC_ALL": "xx_YY.UTF-8",
        "ANSIBLE_STRATEGY": "mitogen_linear",
        "ANSIBLE_STDOUT_CALLBACK": "none-such",
        "ANSIBLE_CALLBACKS_ENABLED": "ansible.builtin.junit",
        "ANSIBLE_INVENTORY_ENABLED": "ini",
        "ANSIBLE_LOCAL_TEMP": "/proc/none",
        "ANSIBLE_CHECK_MODE_MARKERS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    hosts = "targets: {hosts: {well: {ansible_connection: local}}}"
    task = "{ansible.builtin.command: {cmd: 'true'}}"
    text = f"[{{hosts: targets, gather_facts: false, tasks: [{task}]}}]"
    result = play(tmp_path, text, hosts)
    assert (result.code, result.failures) == (0, [])
    assert result.counts["well"]["changed"] == 1


def test_a_play_that_fails_names_its_task_and_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the real play: the secrets of this target are not there."""
    monkeypatch.setenv("FDE_BUILD", str(tmp_path / "build"))
    inventory, log = tmp_path / "hosts.yml", tmp_path / "log"
    inventory.write_text("targets: {hosts: {alder: {ansible_host: 127.0.0.1}}}", encoding="utf-8")
    target = examples.resolved(host="alder", secrets_file=str(tmp_path / "none"))
    with refuses("ansible-failed", tag="start", host="alder", cause="secrets-unread") as caught:
        where: dict[str, Any] = {"inventory": inventory, "target": target, "output_file": log}
        playbook.suite("start", **where, variables={}, most_bytes=1 << 20)
    message = str(caught.value)
    assert str(tmp_path / "none") in message and f"is in {log}." in message
    assert "PLAY RECAP" in log.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("hosts.yml", "", "it names no host in the group `targets`."),
        ("hosts.ini", "[webservers]\nbench\n", "it names no host in the group `targets`."),
        ("hosts.ini", "[targets\nbench\n", "'ini' plugin"),
    ],
)
def test_an_inventory_without_targets_is_refused_with_the_cause(
    name: str, content: str, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with refuses("ansible-refuses", path=str(tmp_path / name)) as refusal:
        playbook.resolve(tmp_path / name)
    assert complaint in str(refusal.value.facts["output"])


def resolved(folder: Path, connection: str, variables: str) -> dict[str, str]:
    """Resolve the example with one host of these variables; return code and text of a refusal."""
    shutil.copytree(ANSIBLE / "inventory" / "hardware.example", folder, dirs_exist_ok=True)
    (folder / "hosts.yml").unlink()
    (folder / "hosts.ini").write_text(f"[targets]\nbench {connection}\n", encoding="utf-8")
    with (folder / "group_vars" / "targets.yml").open("a", encoding="utf-8") as file:
        file.write(variables)
    refused = playbook.resolve(folder).refused.get("bench", [])
    return {problem.code: str(problem) for problem in refused}


@pytest.mark.parametrize(
    ("connection", "variables", "code", "text"),
    [
        ("ansible_host=10", "", "not-text", "ansible_host is 10, must be text or null (quote it)."),
        ("ansible_port=99999", "", "type", "ansible_port is 99999, must be a whole number at"),
        ("ansible_port=ssh", "", "type", "ansible_port is 'ssh'. Correct it."),
        ("", "fde_governor: 7\n", "text-changed", "fde_governor is written 7, which YAML reads"),
        ("", "fde_turbo: sometimes\n", "type", ": argument 'fde_turbo'"),
        ("", "fde_notify: {receivers: [{name: m, argv: [true]}]}\n", "text-changed", " true, "),
    ],
)
def test_a_refused_variable_is_named_with_its_place(
    connection: str, variables: str, code: str, text: str, tmp_path: Path
) -> None:
    assert text in resolved(tmp_path, connection, variables)[code]


@pytest.mark.parametrize(
    ("reason", "code", "text"),
    [
        (
            "fde_meters.prot. Supported parameters include: baud, channels, kind, name, port.",
            "unknown-name",
            "There is no key of fde_meters called 'prot'; did you mean port?",
        ),
        ("missing required arguments: fde_origin", "missing", "fde_origin is missing."),
        ("Task failed: 'fde_disks' is undefined", "missing", "fde_disks is missing."),
        ("Task failed: no space left", "type", "no space left."),
        ("x is of type dict: <class 'dict'> cannot be converted to a list", "type", "x is of type"),
    ],
)
def test_a_reason_of_ansible_becomes_a_problem_of_a_variable(
    reason: str, code: str, text: str
) -> None:
    problem = playbook._problem_of_reason(reason)
    assert problem.code == code and str(problem).startswith(text) and "<class" not in str(problem)


def test_variables_of_a_host_that_is_named_by_its_address_are_refused(tmp_path: Path) -> None:
    """Its name is Ansible's, as also of hosts that a range or a program names."""
    (tmp_path / "host_vars").mkdir()
    for name in ("192.0.2.7", "bench2"):
        (tmp_path / "host_vars" / f"{name}.yml").write_text("fde_turbo: true\n", encoding="utf-8")
    with refuses("owner-unread") as refusal:
        resolved(tmp_path, "ansible_host=192.0.2.7\nbench[2:3]", "")
    (problem,) = refusal.value.problems
    assert "/192.0.2.7.yml:1: " in problem.sentence and "bench" in problem.sentence


def test_the_folder_of_sockets_is_short_for_any_tmpdir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with playbook.environment() as variables:
        folder = variables["ANSIBLE_SSH_CONTROL_PATH_DIR"]
        assert len(f"{folder}/{'0' * 10}.{'0' * 16}") < 108
    assert not Path(folder).exists()


def test_programs_of_ansible_are_those_of_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not scripts beside it: those of another installation, or of a folder that was moved."""
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    assert playbook.program("vault") == ["/usr/bin/python3", "-P", "-m", "ansible", "vault"]
    monkeypatch.setattr(playbook, "find_spec", lambda _: None)
    with refuses("ansible-missing"):
        playbook.program("playbook")
