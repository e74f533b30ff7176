"""`fde check` as far as it goes without a target: its page, its outcomes, and nothing written."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from contract import schema
from contract.command_results import CheckResult
from controller.targets import playbook

ROOT = Path(__file__).resolve().parents[2]
INVENTORIES = ROOT / "ansible" / "inventory"
SECRETS = {
    "luks_passphrase": "tango-7431-foxtrot",
    "opal_admin_pin": "sierra-9-november",
    "sed_psid": "PSID0815",
}


def check(inventory: Path | str, build: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Return the page of an inventory."""
    return subprocess.run(
        [sys.executable, "-m", "controller", "check", "--inventory", str(inventory), *options],
        env={**os.environ, "FDE_BUILD": str(build), "FDE_LAB_DIR": str(build)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def copied(folder: Path, **hosts: dict[str, Any]) -> Path:
    """Return the example's inventory with these hosts' variables, and whole secrets beside it."""
    inventory = folder / "mine"
    shutil.copytree(INVENTORIES / "hardware.example", inventory)
    text = yaml.safe_dump({"targets": {"hosts": hosts}})
    (inventory / "hosts.yml").write_text(text, encoding="utf-8")
    secrets = inventory / ".secrets.json"
    secrets.write_text(json.dumps(SECRETS), encoding="utf-8")
    secrets.chmod(0o600)
    return inventory


def words(result: subprocess.CompletedProcess[str]) -> str:
    """Everything it printed on one line, for sentences are wrapped."""
    text = result.stdout + result.stderr
    assert "Traceback" not in text
    assert not any(secret in text for secret in SECRETS.values())
    return " ".join(text.split())


def failures(completed: subprocess.CompletedProcess[str]) -> dict[str, list[tuple[str, str]]]:
    """Return the failed checks of each host and their causes, from the document of --json."""
    words(completed)
    assert completed.returncode == 1
    result = schema.read(CheckResult, json.loads(completed.stdout))
    return {
        host.host: [
            (outcome.code, str(outcome.facts.get("cause", "")))
            for outcome in host.checks
            if outcome.state == "fail"
        ]
        for host in result.hosts
    }


def test_the_example_is_printed_disk_by_disk_without_its_host(tmp_path: Path) -> None:
    result = check("ansible/inventory/hardware.example", tmp_path)
    printed = words(result)
    assert result.returncode == 1
    for role, number in (("plain", 1), ("sed", 2)):
        assert f"disk {role}" in printed
        assert _disks()[role]["by_id"] in printed
        assert f"serial S0EXAMPLE0000{number}, 1,000,204,886,016 bytes" in printed
    assert "carries plain, dmcrypt-aes128, dmcrypt-aes256" in printed
    failed = dict(
        failures(check("ansible/inventory/hardware.example", tmp_path, "--json"))["target"]
    )
    assert failed["secrets"] == "secrets-unread" and failed["ssh"] == "name-unknown"
    assert f"{len(failed)} failed, " in printed
    assert not (tmp_path / "checks").exists()
    assert not (tmp_path / "targets").exists()  # it was this command's alone


def _disks() -> dict[str, Any]:
    text = (INVENTORIES / "hardware.example/group_vars/targets.yml").read_text(encoding="utf-8")
    disks: dict[str, Any] = yaml.safe_load(text)["fde_disks"]
    return disks


def test_a_permitted_erase_and_a_refusing_port_are_printed(tmp_path: Path) -> None:
    disks = _disks()
    disks["plain"]["erase"] = f"{disks['plain']['serial']} 0123456789ab"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        link = {"ansible_host": "127.0.0.1", "ansible_port": taken.getsockname()[1]}
        host = {**link, "ansible_user": "root", "fde_disks": disks}
        inventory = copied(tmp_path, target=host)
        printed = words(check(inventory, tmp_path))
        failed = dict(failures(check(inventory, tmp_path, "--json"))["target"])
    assert failed["ssh"] == "connection-refused" and "secrets" not in failed
    assert printed.count("WILL BE ERASED if it is unchanged") == 1
    assert printed.count("The target was not reached.") == 1, "however many checks it stops"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "extent": ({"fde_extent_bytes": 1000}, "extent"),
    "database": ({"fde_database": "oracle"}, "type"),
    "disks": ({"fde_disks": {"plain": {"erase": "x"}}}, "disk-keys"),
    "secrets": ({"fde_secrets_file": "{{ not_there }}"}, "type"),
}


def test_an_invalid_inventory_is_refused_by_host_without_asking(tmp_path: Path) -> None:
    hosts = {
        name: {"ansible_host": f"{name}.example.org", "ansible_user": "root", **changes}
        for name, (changes, _) in WRONG.items()
    }
    refused = failures(check(copied(tmp_path, **hosts), tmp_path, "--json"))
    assert refused.keys() == WRONG.keys()
    for name, (_, cause) in WRONG.items():
        assert refused[name][0] == ("inventory", cause)
        assert {code for code, _ in refused[name]} == {"inventory"}


def test_problems_pass_through_ansible_with_their_codes(tmp_path: Path) -> None:
    changes = {"fde_extent_bytes": 1000, "fde_disks": {"plain": {"erase": "x"}}}
    refused = playbook.resolve(copied(tmp_path, target=changes)).refused
    assert [(problem.code, dict(problem.facts)) for problem in refused["target"]][:2] == [
        ("extent", {"size": 1000, "variable": "fde_extent_bytes", "aligned": 1}),
        (
            "disk-keys",
            {
                "disk": "plain",
                "missing": "by_id, serial, size_bytes",
                "variable": "fde_disks.plain",
            },
        ),
    ]


def test_a_missing_or_empty_inventory_is_refused(tmp_path: Path) -> None:
    assert "did you mean ansible/inventory/local" in words(
        check("ansible/inventory/loca", tmp_path)
    )
    (tmp_path / "empty.yml").write_text("all: {hosts: {}}\n", encoding="utf-8")
    printed = words(check(tmp_path / "empty.yml", tmp_path))
    assert "cannot read" in printed or "names no host" in printed
