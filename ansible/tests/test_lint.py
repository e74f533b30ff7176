"""Playbooks checked, inventories resolved or refused; no target is needed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ANSIBLE = Path(__file__).resolve().parents[1]
PLAYBOOKS = sorted(path.name for path in ANSIBLE.glob("*.yml"))
ROLES = sorted(path.name for path in (ANSIBLE / "roles").iterdir() if path.is_dir())
LAB_STATE = {
    "ssh": {
        "host": "127.0.0.1",
        "port": 2222,
        "user": "root",
        "key": "/k",
        "known_hosts": "/h",
        "options": ["ProxyCommand=connect 'a b'", "ProxyUseFdpass=yes"],
    },
    "drives": {
        role: {
            "disk": {
                "by_id": f"/dev/disk/by-id/nvme-fde-lab-{role}_{role.upper()}",
                "serial": role.upper(),
                "size_bytes": 2**31,
                **({"erase": "SED"} if role == "sed" else {}),
            }
        }
        for role in ("plain", "sed")
    },
    "meter": {"port": "/meter"},
    "secrets": "/lab/secrets.json",
}


def _program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _play(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """ansible-playbook with a lab whose state is LAB_STATE and a build folder of its own."""
    (folder / "state.json").write_text(json.dumps(LAB_STATE), encoding="utf-8")
    return subprocess.run(
        [_program("ansible-playbook"), *arguments],
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "FDE_BUILD": str(folder / "build"),
            "FDE_TARGETS": str(folder / "build" / "targets"),
            "FDE_LAB_DIR": str(folder),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        cwd=ANSIBLE,
        capture_output=True,
        text=True,
        check=False,
    )


def _resolve(
    folder: Path, inventory: str = "lab", **variables: object
) -> subprocess.CompletedProcess[str]:
    arguments = ["-i", f"inventory/{inventory}", "-e", json.dumps(variables)]
    return _play(folder, *arguments, "resolve.yml")


def _resolved(folder: Path) -> dict[str, Any]:
    text = (folder / "build" / "targets" / "target.json").read_text(encoding="utf-8")
    resolved = json.loads(text)
    assert isinstance(resolved, dict)
    return resolved


def test_syntax(tmp_path: Path) -> None:
    done = _play(tmp_path, "--syntax-check", "-i", "inventory/lab", *PLAYBOOKS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {Path(name).name for name in done.stdout.split()} >= set(PLAYBOOKS)


@pytest.mark.parametrize("role", ROLES)
def test_every_role_says_what_it_takes_and_its_readme_says_the_same(role: str) -> None:
    spec = importlib.util.spec_from_file_location("readmes", ANSIBLE / "readmes.py")
    assert spec is not None and spec.loader is not None
    readmes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(readmes)
    written = (ANSIBLE / "roles" / role / "README.md").read_text(encoding="utf-8")
    assert written == readmes.readme(ANSIBLE / "roles" / role), "run python ansible/readmes.py"


def test_a_local_target_has_no_way_by_ssh(tmp_path: Path) -> None:
    disk = {"by_id": "/dev/disk/by-id/nvme-A_1", "serial": "1", "size_bytes": 2**36}
    meter = {"name": "m", "kind": "wt310", "port": "usb", "origin": "measured"}
    done = _resolve(
        *(tmp_path, "local"),
        fde_disks={"plain": disk},
        fde_meters=[{**meter, "channels": {"1": "system"}}],
        fde_turbo=False,
    )
    assert done.returncode == 0, done.stdout
    resolved = _resolved(tmp_path)
    assert resolved["ssh"] is None
    quiet = {"stop": ["timers", "updates", "disks"], "governor": None, "turbo": False}
    assert resolved["quiet"] == quiet


def test_the_lab_resolves_to_typed_values(tmp_path: Path) -> None:
    done = _resolve(tmp_path)
    assert done.returncode == 0, done.stdout
    resolved = _resolved(tmp_path)
    assert resolved["format"] == "fde-target/1"
    assert resolved["origin"] == "modelled"
    assert resolved["ssh"]["port"] == 2222
    assert resolved["ssh"]["options"] == LAB_STATE["ssh"]["options"]
    assert resolved["extent_bytes"] == 2**30
    assert resolved["disks"]["sed"] == {
        "by_id": "/dev/disk/by-id/nvme-fde-lab-sed_SED",
        "serial": "SED",
        "size_bytes": 2**31,
        "erase": "SED",
    }
    assert resolved["disks"]["plain"]["erase"] is None
    stacks = {stack["name"]: stack for stack in resolved["configurations"]}
    assert {"plain", "opal", "dmcrypt-aes128", "dmcrypt-aes256"} < set(stacks)
    kinds = {stack["kind"] for stack in stacks.values()}
    assert kinds == {"plain", "opal", "dmcrypt", "tcrypt", "external"}
    assert "cipher" not in stacks["plain"]
    assert stacks["dmcrypt-aes256"]["key_bits"] == 256
    assert resolved["meters"][0]["channels"] == {"0": "system", "1": "drive"}
    assert "secret" not in json.dumps({k: v for k, v in resolved.items() if k != "secrets_file"})


def test_the_local_inventory_refuses_until_its_disks_are_named(tmp_path: Path) -> None:
    done = _resolve(tmp_path, "local")
    assert done.returncode != 0
    assert "fde_disks names no disk" in done.stdout
    assert not [*(tmp_path / "build").rglob("target.json")]
