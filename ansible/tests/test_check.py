"""`make check` as far as it goes without a target: the page, and a sentence where none answers."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
INVENTORIES = ROOT / "ansible" / "inventory"
SECRETS = {
    "luks_passphrase": "tango-7431-foxtrot",
    "opal_admin_pin": "sierra-9-november",
    "sed_psid": "PSID0815",
}


def check(inventory: Path | str, build: Path) -> subprocess.CompletedProcess[str]:
    """The page of an inventory."""
    return subprocess.run(
        [sys.executable, "-m", "controller", "check", "--inventory", str(inventory)],
        env={**os.environ, "FDE_BUILD": str(build), "FDE_LAB_DIR": str(build)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def copied(folder: Path, name: str = "hardware.example", **changes: Any) -> Path:
    """An inventory of ours with some variables changed, and whole secrets beside it."""
    inventory = folder / "mine"
    shutil.copytree(INVENTORIES / name, inventory)
    place = inventory / "group_vars" / "targets.yml"
    variables = yaml.safe_load(place.read_text(encoding="utf-8")) | changes
    place.write_text(yaml.safe_dump(variables), encoding="utf-8")
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
    said = words(done)
    assert done.returncode == 1
    for role, number in (("plain", 1), ("sed", 2)):
        named = yaml.safe_load(
            (INVENTORIES / "hardware.example/group_vars/targets.yml").read_text()
        )
        disk = named["fde_disks"][role]
        assert f"disk {role}" in said
        assert disk["by_id"] in said
        assert f"serial S0EXAMPLE0000{number}, 1,000,204,886,016 bytes" in said
    assert "carries plain, dmcrypt-aes128, dmcrypt-aes256" in said
    assert "secrets.json cannot be read" in said
    unreached = said.index("testbench.example.org cannot be reached")
    assert said.index("S0EXAMPLE00002") < unreached < said.index("VERDICT")
    assert "2 things stand in the way" in said
    assert not (tmp_path / "checks").exists()


def test_a_port_where_nobody_listens_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        inventory = copied(tmp_path)
        hosts = inventory / "hosts.yml"
        document = yaml.safe_load(hosts.read_text(encoding="utf-8"))
        document["targets"]["hosts"]["target"] = {
            "ansible_host": "127.0.0.1",
            "ansible_port": port,
            "ansible_user": "root",
        }
        hosts.write_text(yaml.safe_dump(document), encoding="utf-8")
        done = check(inventory, tmp_path)
    said = words(done)
    assert done.returncode == 1
    assert "127.0.0.1 cannot be reached: nothing listens there" in said
    assert "mode 0600, with luks_passphrase, opal_admin_pin, sed_psid" in said
    assert "One thing stands in the way" in said


def test_an_erase_is_shouted(tmp_path: Path) -> None:
    example = yaml.safe_load((INVENTORIES / "hardware.example/group_vars/targets.yml").read_text())
    disks = example["fde_disks"]
    disks["plain"]["erase"] = f"{disks['plain']['serial']} 0123456789ab"
    said = words(check(copied(tmp_path, fde_disks=disks), tmp_path))
    assert said.count("WILL BE ERASED as long as it is as") == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"fde_extent_bytes": 1000}, "fde_extent_bytes is 1000: make it a multiple of 1 MiB"),
        ({"fde_database": "oracle"}, "value of fde_database must be one of"),
        ({"fde_disks": {"plain": {"erase": "x"}}}, "missing required arguments: by_id"),
        ({"fde_secrets_file": "{{ not_there }}"}, "not_there"),
    ],
)
def test_a_wrong_inventory_is_told_and_nobody_is_asked(
    changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    done = check(copied(tmp_path, **changes), tmp_path)
    said = words(done)
    assert done.returncode == 1
    assert sentence in said
    assert "cannot be reached" not in said
    assert "TARGET" not in said


def test_no_such_inventory_and_no_inventory_at_all_are_told(tmp_path: Path) -> None:
    assert "did you mean ansible/inventory/local" in words(
        check("ansible/inventory/loca", tmp_path)
    )
    (tmp_path / "empty.yml").write_text("all: {hosts: {}}\n", encoding="utf-8")
    said = words(check(tmp_path / "empty.yml", tmp_path))
    assert "cannot read" in said or "names no host" in said
