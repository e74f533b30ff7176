"""Playbooks checked, inventories resolved or refused; no target is needed."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from agent.preflight import SUPPORTED

ANSIBLE = Path(__file__).resolve().parents[1]
PLAYBOOKS = sorted(f"playbooks/{path.name}" for path in ANSIBLE.glob("playbooks/*.yml"))
MODULES = sorted(path.stem for path in (ANSIBLE / "plugins/modules").glob("*.yml"))
ROLES = sorted(path.name for path in (ANSIBLE / "roles").iterdir() if path.is_dir())
RELEASES = {"bookworm": "12", "trixie": "13", "noble": "24.04", "resolute": "26.04"}
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
    return _play(folder, *arguments, "playbooks/resolve.yml")


def _resolved(folder: Path) -> dict[str, Any]:
    text = (folder / "build" / "targets" / "target.json").read_text(encoding="utf-8")
    resolved = json.loads(text)
    assert isinstance(resolved, dict)
    return resolved


def test_syntax(tmp_path: Path) -> None:
    result = _play(tmp_path, "--syntax-check", "-i", "inventory/lab", *PLAYBOOKS)
    assert result.returncode == 0, result.stdout + result.stderr
    assert {Path(name).name for name in result.stdout.split()} >= {
        Path(name).name for name in PLAYBOOKS
    }


def _readmes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readmes", ANSIBLE / "readmes.py")
    assert spec is not None and spec.loader is not None
    readmes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(readmes)
    return readmes


@pytest.mark.parametrize("role", ROLES)
def test_every_role_has_specifications_and_a_matching_readme(role: str) -> None:
    folder, readmes = ANSIBLE / "roles" / role, _readmes()
    written = (folder / "README.md").read_text(encoding="utf-8")
    assert written == readmes.readme(folder), "run python ansible/readmes.py"
    main, defaults = readmes.entry_point(folder), folder / "defaults" / "main.yml"
    values = yaml.safe_load(defaults.read_text(encoding="utf-8")) if defaults.exists() else {}
    options = main["options"]
    assert values.keys() <= options.keys()
    for name, option in options.items():
        assert option.get("default", values.get(name)) == values.get(name), name
        assert bool(option.get("required")) == (name not in values), name
    meta = yaml.safe_load((folder / "meta" / "main.yml").read_text(encoding="utf-8"))
    assert meta["galaxy_info"]["description"] == main["short_description"]
    platforms = meta["galaxy_info"]["platforms"]
    assert {
        entry["name"].lower(): tuple(RELEASES[name] for name in entry["versions"])
        for entry in platforms
    } == SUPPORTED


def test_at_most_two_tasks_run_a_command() -> None:
    text = "\n".join(
        path.read_text(encoding="utf-8")
        for path in (*ANSIBLE.glob("roles/*/tasks/*.yml"), *ANSIBLE.glob("playbooks/*.yml"))
    )
    assert len(re.findall(r"ansible\.builtin\.(?:raw|shell|command|script):", text)) <= 2


@pytest.mark.parametrize("name", MODULES)
def test_every_module_is_documented_and_has_its_action(name: str) -> None:
    assert (ANSIBLE / "plugins" / "action" / f"{name}.py").is_file()
    result = subprocess.run(
        [_program("ansible-doc"), "--json", f"fde.testbed.{name}"],
        env={**os.environ, "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg")},
        capture_output=True,
        text=True,
        check=True,
    )
    described = json.loads(result.stdout)[f"fde.testbed.{name}"]
    assert described["examples"] and described["return"]["problems"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the collection is built for and installed in."""
    folder = tmp_path_factory.mktemp("site")
    galaxy = [_program("ansible-galaxy"), "collection"]
    build = [*galaxy, "build", str(ANSIBLE), "--output-path", str(folder)]
    subprocess.run(build, check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    # Installed also where the checkout's own is found first.
    install = [*galaxy, "install", "--offline", "--force", archive, "-p", folder]
    subprocess.run(install, check=True, capture_output=True)
    return folder


def _run_installed(
    site: Path, folder: Path, *argv: str, packages: str = str(ANSIBLE.parent)
) -> subprocess.CompletedProcess[str]:
    """Run a program of Ansible's in `folder`, with the installed collection and no settings."""
    (folder / "state.json").write_text(json.dumps(LAB_STATE), encoding="utf-8")
    return subprocess.run(
        [_program(argv[0]), *argv[1:]],
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(site),
            "ANSIBLE_CONFIG": str(folder / "none.cfg"),
            "FDE_LAB_DIR": str(folder),
            "FDE_TARGETS": str(folder / "build" / "targets"),
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": packages,
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_built_collection_is_played_where_it_is_installed(site: Path, tmp_path: Path) -> None:
    installed = site / "ansible_collections" / "fde" / "testbed"
    assert not {"tests", "inventory"} & {path.name for path in installed.iterdir()}
    inventory = str(ANSIBLE / "inventory/lab")
    play = ("ansible-playbook", "-i", inventory, "fde.testbed.resolve")
    result = _run_installed(site, tmp_path, *play)
    assert result.returncode == 0, result.stdout + result.stderr
    assert _resolved(tmp_path)["host"] == "target"


def test_a_python_without_the_package_is_named(site: Path, tmp_path: Path) -> None:
    command = ("ansible", "localhost", "-m", "fde.testbed.fde_agent")
    result = _run_installed(site, tmp_path, *command, packages="")
    assert result.returncode != 0
    assert sys.executable in result.stdout and "fde-energy-testbed" in result.stdout
    assert "pip install" not in result.stdout


def test_the_installed_collection_and_the_examples_have_no_findings(
    site: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "ansible_collections" / "fde" / "testbed"
    shutil.copytree(site / "ansible_collections" / "fde" / "testbed", folder)
    for role in ROLES:
        example = _readmes().entry_point(ANSIBLE / "roles" / role)["examples"]
        (folder / "playbooks" / f"example_{role}.yml").write_text(example, encoding="utf-8")
    strict = ("--offline", "--profile", "production", "--strict")
    result = _run_installed(tmp_path, folder, "ansible-lint", *strict, packages="")
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_example_of_a_target_resolves_when_copied(site: Path, tmp_path: Path) -> None:
    readme = (ANSIBLE / "roles/target_spec/README.md").read_text(encoding="utf-8")
    example = readme.partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "target_spec.yml").write_text(example, encoding="utf-8")
    play = ("ansible-playbook", "-i", "bench.example.org,", "target_spec.yml")
    result = _run_installed(site, tmp_path, *play)
    assert result.returncode == 0, result.stdout + result.stderr
    text = (tmp_path / "build/targets/bench.example.org.json").read_text(encoding="utf-8")
    resolved = json.loads(text)
    disk = resolved["disks"]["plain"]
    assert (resolved["extent_bytes"], disk["endurance_bytes"]) == (16 * 2**30, 600 * 10**12)


def test_link_and_host_variables_of_an_inventory_are_used(tmp_path: Path) -> None:
    """A folder with INI, variables for all hosts, a vault, ansible_ssh_* and ssh's arguments."""
    inventory, password = tmp_path / "site", tmp_path / "password"
    (inventory / "group_vars" / "all").mkdir(parents=True)
    (inventory / "hosts.ini").write_text(
        "[bench]\nalder ansible_ssh_host=192.0.2.7 ansible_ssh_port=2200\n"
        "[bench:vars]\nansible_ssh_private_key_file=/k\nansible_become=true\n"
        "ansible_ssh_common_args='-J gate -o UserKnownHostsFile=/site/known_hosts'\n"
        "ansible_ssh_extra_args=-4\n[targets:children]\nbench\n"
    )
    plain = {
        **{"fde_origin": "measured", "fde_secrets_file": "/s/secrets.json"},
        **{"fde_meters": [], "fde_assets": {}, "fde_stop": ["timers"]},
        "ansible_ssh_user": "{{ vault_user }}",
    }
    folder = inventory / "group_vars" / "all"
    (folder / "plain.yml").write_text(json.dumps(plain))
    serial = "2026-11-28"
    disk = "fde_disks: {plain: {by_id: /dev/disk/by-id/nvme-A_1, size_bytes: 68719476736, serial: "
    (folder / "disks.yml").write_text(f"{disk}'{serial}'}}}}\n")
    (folder / "vault.yml").write_text("vault_user: alice\n")
    password.write_text("of the vault\n")
    vault = ["encrypt", "--vault-password-file", str(password), str(folder / "vault.yml")]
    subprocess.run([_program("ansible-vault"), *vault], check=True, capture_output=True)
    arguments = ("--vault-password-file", str(password), "-i", str(inventory))
    result = _play(tmp_path, *arguments, "playbooks/resolve.yml")
    assert result.returncode == 0, result.stdout + result.stderr
    text = (tmp_path / "build" / "targets" / "alder.json").read_text(encoding="utf-8")
    resolved = json.loads(text)
    assert resolved["quiet"]["stop"] == ["timers"], "the site's variables for all come first"
    assert resolved["disks"]["plain"]["serial"] == serial
    assert resolved["ssh"] == {
        **{"host": "192.0.2.7", "port": 2200, "user": "alice", "key": "/k", "become": True},
        "known_hosts": "/site/known_hosts",
        "options": [
            *("ProxyJump=gate", "UserKnownHostsFile=/site/known_hosts", "AddressFamily=inet")
        ],
    }
    (folder / "disks.yml").write_text(f"{disk}{serial}}}}}\n")
    refused = _play(tmp_path, *arguments, "playbooks/resolve.yml")
    assert f"A variable is {serial}, a date. Quote it." in refused.stdout


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({"ansible_connection": "ansible.builtin.winrm"}, "connection-kind"),
        ({"ansible_ssh_common_args": "-F /etc/other"}, "ssh-argument"),
        ({"ansible_become": True, "ansible_become_method": "su"}, "become-method"),
        ({"ansible_become": True, "ansible_become_user": "bob"}, "become-method"),
        ({"ansible_become": True, "ansible_become_exe": "/opt/sudo"}, "link-option"),
        ({"ansible_become": True, "ansible_sudo_flags": "-g disk"}, "link-option"),
        ({"ansible_become": True, "ansible_become_password": "x"}, "link-option"),
        ({"ansible_ssh_pass": "x"}, "link-option"),
        ({"ansible_ssh_executable": "/opt/ssh"}, "link-option"),
        (
            {"ansible_connection": "local", "ansible_become": True, "ansible_become_pass": "x"},
            "link-option",
        ),
    ],
)
def test_an_unsupported_link_is_refused(
    tmp_path: Path, variables: dict[str, Any], code: str
) -> None:
    events = tmp_path / "events"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FDE_ANSIBLE_EVENTS", str(events))
        _resolve(tmp_path, **variables)
    failure = json.loads(events.read_text(encoding="utf-8").splitlines()[1])
    assert [problem["code"] for problem in failure["problems"]] == [code]


def test_a_local_target_has_no_ssh_link(tmp_path: Path) -> None:
    disk = {"by_id": "/dev/disk/by-id/nvme-A_1", "serial": "1", "size_bytes": 2**36}
    meter = {"name": "m", "kind": "wt310", "port": "usb", "origin": "measured"}
    result = _resolve(
        *(tmp_path, "local"),
        fde_disks={"plain": disk},
        fde_meters=[{**meter, "channels": {"1": "system"}}],
        fde_turbo=False,
    )
    assert result.returncode == 0, result.stdout
    resolved = _resolved(tmp_path)
    assert resolved["ssh"] is None
    quiet = {"stop": ["timers", "updates", "disks"], "governor": None, "turbo": False}
    assert resolved["quiet"] == quiet


def test_the_lab_resolves_to_typed_values(tmp_path: Path) -> None:
    result = _resolve(tmp_path)
    assert result.returncode == 0, result.stdout
    resolved = _resolved(tmp_path)
    assert resolved["format"] == "fde-target/1"
    assert resolved["origin"] == "modelled"
    assert resolved["ssh"]["port"] == 2222
    checked = ['UserKnownHostsFile="/h"', "StrictHostKeyChecking=yes", "IdentitiesOnly=yes"]
    assert resolved["ssh"]["options"] == [*checked, *LAB_STATE["ssh"]["options"]]
    assert resolved["ssh"]["known_hosts"] == "/h"
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
    kinds_of_ours = {"plain", "opal", "opal_dmcrypt", "dmcrypt", "inlinecrypt", "tcrypt"}
    assert kinds == {*kinds_of_ours, "external"}
    assert "cipher" not in stacks["plain"]
    assert stacks["dmcrypt-aes256"]["key_bits"] == 256
    assert resolved["meters"][0]["channels"] == {"0": "system", "1": "drive"}
    assert "secret" not in json.dumps({k: v for k, v in resolved.items() if k != "secrets_file"})


def test_the_local_inventory_refuses_until_its_disks_are_named(tmp_path: Path) -> None:
    result = _resolve(tmp_path, "local")
    assert result.returncode != 0
    assert "fde_disks names no disk" in result.stdout
    assert not [*(tmp_path / "build").rglob("target.json")]
