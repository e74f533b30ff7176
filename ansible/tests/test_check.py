"""`fde check` as far as it goes without a target: the page, and a sentence where none answers."""

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

from controller.target import playbook

ROOT = Path(__file__).resolve().parents[2]
INVENTORIES = ROOT / "ansible" / "inventory"
SECRETS = {
    "luks_passphrase": "tango-7431-foxtrot",
    "opal_admin_pin": "sierra-9-november",
    "sed_psid": "PSID0815",
}


def check(inventory: Path | str, build: Path) -> subprocess.CompletedProcess[str]:
    """Return the page of an inventory."""
    return subprocess.run(
        [sys.executable, "-m", "controller", "check", "--inventory", str(inventory)],
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
    secrets = inventory / "secrets.json"
    secrets.write_text(json.dumps(SECRETS), encoding="utf-8")
    secrets.chmod(0o600)
    return inventory


def words(done: subprocess.CompletedProcess[str]) -> str:
    """Everything it printed on one line, for sentences are wrapped."""
    text = done.stdout + done.stderr
    assert "Traceback" not in text
    assert not any(secret in text for secret in SECRETS.values())
    return " ".join(text.split())


def test_the_example_is_shown_disk_by_disk_before_its_host_is_missed(tmp_path: Path) -> None:
    done = check("ansible/inventory/hardware.example", tmp_path)
    printed = words(done)
    assert done.returncode == 1
    for role, number in (("plain", 1), ("sed", 2)):
        assert f"disk {role}" in printed
        assert _disks()[role]["by_id"] in printed
        assert f"serial S0EXAMPLE0000{number}, 1,000,204,886,016 bytes" in printed
    assert "carries plain, dmcrypt-aes128, dmcrypt-aes256" in printed
    assert "secrets.json cannot be read" in printed
    unreached = printed.index("testbench.example.org cannot be reached")
    assert printed.index("S0EXAMPLE00002") < unreached < printed.index("VERDICT")
    assert "2 failed" in printed
    assert not (tmp_path / "checks").exists()
    assert not (tmp_path / "targets").exists()  # it was this command's alone


def _disks() -> dict[str, Any]:
    text = (INVENTORIES / "hardware.example/group_vars/targets.yml").read_text(encoding="utf-8")
    disks: dict[str, Any] = yaml.safe_load(text)["fde_disks"]
    return disks


def test_an_erase_is_shouted_and_a_port_where_nobody_listens_told(tmp_path: Path) -> None:
    disks = _disks()
    disks["plain"]["erase"] = f"{disks['plain']['serial']} 0123456789ab"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        link = {"ansible_host": "127.0.0.1", "ansible_port": taken.getsockname()[1]}
        host = {**link, "ansible_user": "root", "fde_disks": disks}
        done = check(copied(tmp_path, target=host), tmp_path)
    printed = words(done)
    assert done.returncode == 1
    assert "127.0.0.1 cannot be reached: nothing listens there" in printed
    assert "mode 0600, with luks_passphrase, opal_admin_pin, sed_psid" in printed
    assert "1 failed" in printed
    assert printed.count("WILL BE ERASED as long as it is as") == 1


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "extent": (
        {"fde_extent_bytes": 1000},
        "fde_extent_bytes is 1000. It must be a multiple of 1 MiB",
    ),
    "database": ({"fde_database": "oracle"}, "value of fde_database must be one of"),
    "disks": ({"fde_disks": {"plain": {"erase": "x"}}}, "lacks by_id, serial, size_bytes"),
    "secrets": ({"fde_secrets_file": "{{ not_there }}"}, "not_there"),
}


def test_a_wrong_inventory_is_told_host_by_host_and_nobody_is_asked(tmp_path: Path) -> None:
    hosts = {
        name: {"ansible_host": f"{name}.example.org", "ansible_user": "root", **changes}
        for name, (changes, _) in WRONG.items()
    }
    done = check(copied(tmp_path, **hosts), tmp_path)
    printed = words(done)
    assert done.returncode == 1
    pages = dict(part.split(": refused; ", 1) for part in printed.split("INVENTORY ")[1:])
    assert pages.keys() == WRONG.keys()
    for name, (_, sentence) in WRONG.items():
        assert sentence in pages[name]
    assert "cannot be reached" not in printed
    assert "TARGET" not in printed


def test_problems_of_an_inventory_come_through_ansible_by_their_codes(tmp_path: Path) -> None:
    changes = {"fde_extent_bytes": 1000, "fde_disks": {"plain": {"erase": "x"}}}
    refused = playbook.resolve(copied(tmp_path, target=changes)).refused
    assert [(problem.code, dict(problem.facts)) for problem in refused["target"]][:2] == [
        ("extent", {}),
        ("disk-keys", {"disk": "plain"}),
    ]


def test_no_such_inventory_and_no_inventory_at_all_are_told(tmp_path: Path) -> None:
    assert "did you mean ansible/inventory/local" in words(
        check("ansible/inventory/loca", tmp_path)
    )
    (tmp_path / "empty.yml").write_text("all: {hosts: {}}\n", encoding="utf-8")
    printed = words(check(tmp_path / "empty.yml", tmp_path))
    assert "cannot read" in printed or "names no host" in printed
