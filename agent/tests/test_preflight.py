"""What a target may be: judged from facts, so that machines that are not here can be tried."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import preflight
from agent.preflight import Target
from contract.plan import Disk, parse_target
from controller.tests import examples

TARGET_JSON = json.dumps(
    {
        "format": "fde-target/1",
        "disks": {
            role: {"by_id": "/dev/disk/by-id/absent", "serial": role, "size_bytes": 2**31}
            for role in ("sed", "plain")
        },
        "extent_bytes": 2**30,
        "filesystem": {"type": "ext4", "options": [], "mount_options": ""},
        "configurations": [
            {"name": "opal", "kind": "opal", "disk": "sed"},
            {"name": "plain", "kind": "plain", "disk": "plain"},
            {"name": "hctr2", "kind": "dmcrypt", "disk": "plain", "cipher": "aes-hctr2-plain64"},
        ],
    }
)
HCTR2 = Target.from_target(parse_target(json.loads(TARGET_JSON), Path("target.json")))
TARGET = replace(HCTR2, hctr2=())
NO_OPAL = replace(TARGET, opal=())
TRIXIE = examples.facts(candidates={"cryptsetup-bin": "2:2.7.5-2"}, sed_block_bytes=4096)
BOOKWORM = {
    "version": "12",
    "name": "Debian GNU/Linux 12 (bookworm)",
    "python": "3.11.2",
    "candidates": {"cryptsetup-bin": "2:2.6.1-4~deb12u2"},
    "cryptsetup": "2.6",
    "hw_opal": False,
}
NOBLE = {"distribution": "ubuntu", "version": "24.04", "name": "Ubuntu 24.04.1 LTS"}


@pytest.mark.parametrize(
    ("changes", "target"),
    [
        ({}, TARGET),
        (NOBLE, TARGET),
        ({**NOBLE, "version": "26.04", "name": "Ubuntu 26.04 LTS"}, TARGET),
        ({"cryptsetup": "2.7.0", "sed_block_bytes": 512}, TARGET),
        ({"cryptsetup": "2.7.2"}, TARGET),
        ({"cryptsetup": "2.7.3"}, HCTR2),
        (BOOKWORM, NO_OPAL),
        ({"cryptsetup": "", "hw_opal": False, "missing": ["cryptsetup-bin"]}, TARGET),
        ({"sed_transport": "ata", "allow_tpm": True}, TARGET),
        ({"sed_transport": "ata"}, NO_OPAL),
        ({"servers": ["mariadb-server"]}, replace(TARGET, database="mariadb")),
        ({"missing": ["fio"], "candidates": {}, "lists": False}, NO_OPAL),
        ({**NOBLE, "missing": ["mysql-server"], "lists": False}, replace(TARGET, database="mysql")),
        ({"missing": ["mysql-server"], "candidates": {"mysql-server": "8.4"}}, TARGET),
    ],
)
def test_a_fit_target_is_not_refused(changes: dict[str, Any], target: Target) -> None:
    assert preflight.refusals(target, replace(TRIXIE, **changes)) == []


NO_CRYPTSETUP = {"cryptsetup": "", "missing": ["cryptsetup-bin"]}
NO_MYSQL = {"missing": ["mysql-server"], "candidates": {}}
MYSQL = replace(NO_OPAL, database="mysql")
NOBLE_CRYPTSETUP = {
    **NOBLE,
    **NO_CRYPTSETUP,
    "candidates": {"cryptsetup-bin": "2:2.7.0-1ubuntu4.2"},
}
MARIADB = {"servers": ["mariadb-server"], "candidates": {"mysql-server": "8"}}


@pytest.mark.parametrize(
    ("changes", "target", "code", "facts"),
    [
        ({"uid": 1000}, TARGET, "not-root", {}),
        *(
            ({**NOBLE, **changes}, TARGET, "distribution", {"name": name})
            for changes, name in (
                ({"version": "22.04"}, NOBLE["name"]),
                ({"version": "26.10"}, NOBLE["name"]),
                ({"distribution": "debian", "version": "11", "name": "Debian 11"}, "Debian 11"),
                ({"distribution": "debian", "version": "", "name": "Debian sid"}, "Debian sid"),
                ({"distribution": "fedora", "version": "13", "name": "Fedora 41"}, "Fedora 41"),
                ({"distribution": "", "version": "", "name": ""}, "Its distribution"),
            )
        ),
        ({"machine": "aarch64"}, TARGET, "machine", {"machine": "aarch64"}),
        ({"systemd": False}, TARGET, "no-systemd", {}),
        (BOOKWORM, TARGET, "cryptsetup", {"version": "2.6", "asked": "opal"}),
        ({**BOOKWORM, **NO_CRYPTSETUP}, TARGET, "cryptsetup-offered", {"version": "2.6.1"}),
        ({"hw_opal": False}, TARGET, "cryptsetup", {"version": "2.7.5"}),
        ({"cryptsetup": "2.7.0"}, TARGET, "cryptsetup-blocks", {"block_bytes": "4096"}),
        ({"cryptsetup": "2.7.1"}, TARGET, "cryptsetup-blocks", {"version": "2.7.1"}),
        ({"cryptsetup": "2.7.2"}, HCTR2, "cryptsetup-cipher", {"asked": "hctr2"}),
        (NOBLE_CRYPTSETUP, TARGET, "cryptsetup-blocks", {"version": "2.7.0"}),
        ({"sed_transport": "ata"}, TARGET, "allow-tpm", {}),
        (NO_MYSQL, MYSQL, "no-mysql", {"name": TRIXIE.name}),
        ({**NO_MYSQL, "lists": False}, MYSQL, "no-mysql", {}),
        (MARIADB, MYSQL, "other-database", {"other": "mariadb-server", "choice": "mariadb"}),
        ({"missing": ["fio"], "candidates": {}}, NO_OPAL, "no-package", {"package": "fio"}),
    ],
)
def test_an_unfit_target_is_refused_with_the_remedy(
    changes: dict[str, Any], target: Target, code: str, facts: dict[str, str]
) -> None:
    (refusal,) = preflight.refusals(target, replace(TRIXIE, **changes))
    assert refusal.code == code
    assert facts.items() <= refusal.facts.items()
    assert refusal.remedy


def test_packages_follow_from_the_description() -> None:
    def required(installed: set[str] = frozenset(), **changes: Any) -> set[str]:  # type: ignore[assignment]
        return set(preflight.packages_for(replace(NO_OPAL, **changes), installed))

    assert "default-mysql-server" in required()
    assert "xfsprogs" not in required()
    assert "xfsprogs" in required(packages=("xfsprogs",))
    for server in preflight.SERVERS:
        assert server in required({server})
        assert "default-mysql-server" not in required({server})
    assert "mysql-server" in required({"mariadb-server"}, database="mysql")
    assert "mariadb-server" in required(database="mariadb")


def test_the_facts_of_this_machine_are_gathered(tmp_path: Path) -> None:
    target = tmp_path / "target.json"
    target.write_text(TARGET_JSON, encoding="utf-8")
    command = [sys.executable, "-m", "agent.preflight", "--target", str(target)]
    output = subprocess.run(command, capture_output=True, text=True, check=True)
    answer = json.loads(output.stdout)
    assert set(answer["facts"]) == set(vars(TRIXIE))
    assert answer["facts"]["sed_transport"] == ""
    assert isinstance(answer["refusals"], list)


@pytest.mark.parametrize(
    ("disks", "is_only_files"),
    [({}, False), ({"plain": "/var/tmp/fde.disk"}, True), ({"plain": "/a", "sed": None}, False)],
)
def test_only_a_target_whose_disks_are_all_files_needs_no_more_than_storage(
    disks: dict[str, str | None], is_only_files: bool
) -> None:
    target = parse_target(json.loads(TARGET_JSON), Path("target.json"))
    described = {
        role: Disk(role, f"/dev/{role}", role, 1, file=file) for role, file in disks.items()
    }
    assert Target.from_target(replace(target, disks=described)).only_files is is_only_files
