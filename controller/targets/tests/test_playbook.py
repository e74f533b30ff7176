"""Events of Ansible for programs: each host's counts and failures as JSON, and never a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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
    ("content", "complaint"),
    [(b"targets: [", "pars"), (b"# gr\xfc\xdfe\ntargets: {hosts: {\xfc: }}", "utf-8")],
)
def test_an_unreadable_inventory_is_refused_with_ansibles_message(
    content: bytes, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "hosts.yml").write_bytes(content)
    with refuses("ansible-refuses", path=str(tmp_path / "hosts.yml")) as refusal:
        playbook.resolve(tmp_path / "hosts.yml")
    assert complaint in str(refusal.value.facts["output"])
