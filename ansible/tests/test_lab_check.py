"""Looking at the real lab: nothing is left there, and what stands in the way is one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.plan import read_target
from controller.targets import connection, secrets, survey
from controller.targets.secrets import PLACE

pytestmark = pytest.mark.lab

INVENTORY = "ansible/inventory/lab"
LEFT = "ls -d /run/fde-check* 2>/dev/null; ls /opt /etc/fde-testbed 2>/dev/null | sort | sha256sum"


def check(controller: Any) -> subprocess.CompletedProcess[str]:
    """Return the page of the lab."""
    result: subprocess.CompletedProcess[str] = controller.python(
        "controller", "check", "--inventory", INVENTORY
    )
    assert "Traceback" not in result.stdout + result.stderr
    return result


def words(result: subprocess.CompletedProcess[str]) -> str:
    """All that was printed on one line, for sentences are wrapped."""
    return " ".join((result.stdout + result.stderr).split())


def as_found(controller: Any) -> tuple[list[str], str]:
    """Hashes of the media, and what there is of ours in the guest."""
    return controller.media(), controller.lab.ssh(LEFT).stdout


def target_with(controller: Any, folder: Path, **changes: Any) -> Path:
    """Return the resolved target with some keys changed."""
    path = folder / "target.json"
    document = json.loads(controller.target.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def look(controller: Any, folder: Path, **link: object) -> str:
    """Return the code of looking at a target whose link is another one; it must refuse."""
    ssh = controller.lab.state["ssh"] | link
    target = read_target(target_with(controller, folder, ssh=ssh))
    with pytest.raises(connection.TargetError) as refusal:
        survey.look(target)
    return refusal.value.code


def test_the_check_shows_each_disk_and_leaves_nothing(controller: Any) -> None:
    before = as_found(controller)
    result = check(controller)
    assert as_found(controller) == before
    assert result.returncode == 0
    printed = words(result)
    for drive in controller.lab.state["drives"].values():
        assert f"serial {drive['serial']}, 2,147,483,648 bytes" in printed
    assert "Debian GNU/Linux 13 (trixie)" in printed and "with Opal" in printed
    assert " 0 failed, " in printed
    assert "fde run --suite one-disk answers first" in printed
    (place,) = (controller.build / "checks").iterdir()
    record = json.loads(place.read_text(encoding="utf-8"))
    assert set(record["fingerprints"]) == {"plain", "sed"}
    assert record["made_wall"] and not record["refused"]


def test_who_is_not_let_in_is_told_why(controller: Any, tmp_path: Path) -> None:
    key, nobody = tmp_path / "key", tmp_path / "known_hosts"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    nobody.touch()
    assert look(controller, tmp_path, key=str(key)) == "not-admitted"
    assert look(controller, tmp_path, known_hosts=str(nobody)) == "host-key-unknown"


@pytest.fixture
def without_python(controller: Any) -> Iterator[Any]:
    """Provide the guest's python3 is somewhere else for a while."""
    controller.lab.ssh("mv /usr/bin/python3 /usr/bin/python3-away")
    yield controller
    controller.lab.ssh("mv /usr/bin/python3-away /usr/bin/python3")


def test_a_target_without_python_is_told(without_python: Any, tmp_path: Path) -> None:
    assert look(without_python, tmp_path) == "no-python"


@pytest.fixture
def without_agent(controller: Any) -> Iterator[Any]:
    """Provide the guest's agent is somewhere else for a while."""
    controller.lab.ssh("mkdir -p /opt/fde-testbed; mv /opt/fde-testbed /opt/away")
    yield controller
    controller.lab.ssh("rm -rf /opt/fde-testbed; mv /opt/away /opt/fde-testbed")


def test_a_play_with_check_looks_at_disks_without_an_agent_there(without_agent: Any) -> None:
    without_agent.lab.ssh(f"rm -f {PLACE}")
    before = as_found(without_agent)
    result = without_agent.play("site.yml", "--check")
    assert result.returncode == 0
    assert without_agent.recap(result)["changed"] >= 1, "the agent would be brought"
    assert as_found(without_agent) == before
    assert without_agent.lab.ssh(f"ls {PLACE}", check=False).returncode
    for drive in without_agent.lab.state["drives"].values():
        assert drive["serial"] in result.stdout.split("See to the disks")[1]


def test_a_disk_that_changed_since_its_check_is_refused(controller: Any) -> None:
    """It is given up, but what lies on it now is not what was looked at."""
    disks = json.loads(controller.target.read_text(encoding="utf-8"))["disks"]
    by_id = disks["plain"]["by_id"]
    if controller.lab.ssh(f"test -e {by_id}-part1", check=False).returncode == 0:
        controller.agent("teardown")
    try:
        controller.lab.ssh(f"mkfs.ext4 -qF {by_id} 16M && sync && udevadm settle")
        assert check(controller).returncode == 1  # refused, but looked at
        (place,) = (controller.build / "checks").iterdir()
        assert json.loads(place.read_text(encoding="utf-8"))["fingerprints"]["plain"]
        controller.lab.ssh(f"mkfs.ext4 -qF -L other {by_id} 16M && sync && udevadm settle")
        before = controller.media()
        disks["plain"]["erase"] = disks["plain"]["serial"]
        result = controller.play("site.yml", fde_disks=disks)
        assert result.returncode != 0
        assert "fde check again" in words(result)
        assert controller.media() == before
    finally:
        controller.lab.ssh(f"blkdiscard -f {by_id}; udevadm settle")
        for record in (controller.build / "checks").glob("*"):
            record.unlink()


def test_a_real_vault_reaches_the_targets_memory_without_the_psid(
    provisioned: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Path(provisioned.lab.state["secrets"])
    vault, password = tmp_path / "secrets.json", tmp_path / "password"
    vault.write_bytes(plain.read_bytes())
    vault.chmod(0o600)
    password.write_text("of the vault\n")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(password))
    program = Path(sys.executable).with_name("ansible-vault")
    subprocess.run([str(program), "encrypt", str(vault)], check=True, capture_output=True)
    path = target_with(provisioned, tmp_path, secrets_file=str(vault))

    target = read_target(path)

    def placed_secrets() -> dict[str, str]:
        placed: dict[str, str] = json.loads(provisioned.lab.ssh(f"cat {secrets.PLACE}").stdout)
        return placed

    all_secrets = json.loads(plain.read_text(encoding="utf-8"))
    assert not secrets.place(target), "the same as the play has put there"
    assert set(placed_secrets()) == set(secrets.NEEDED)
    assert secrets.place(target, with_psid=True)
    assert placed_secrets() == all_secrets
    mode = provisioned.lab.ssh(f"stat -c '%a %U' {secrets.PLACE}").stdout.split()
    assert mode == ["600", "root"]
    assert [secrets.remove(target), secrets.remove(target), secrets.place(target)] == [
        *(True, False, True)
    ]


def test_configurations_are_proven_in_a_table(provisioned: Any) -> None:
    command = ("controller", "prove", "--target", str(provisioned.target))
    result = provisioned.python(*command, "plain", "dmcrypt-aes256-plain")
    assert result.returncode == 0
    assert "2 of 2 proven" in result.stdout
    assert "dm-crypt AES-256, no header; cipher aes-xts-plain64; key_bits 256" in result.stdout
    (place,) = (provisioned.build / "proofs").iterdir()
    record = json.loads(place.read_text(encoding="utf-8"))
    assert record["all_proven"] and len(record["proofs"]) == 2
    result = provisioned.python(*command, "dmcrypt-aes25")
    assert result.returncode == 1
    assert "did you mean dmcrypt-aes256" in result.stderr


def test_nothing_is_proven_on_the_disks_of_another_inventory(
    provisioned: Any, tmp_path: Path
) -> None:
    other = json.loads(provisioned.target.read_text(encoding="utf-8"))
    other["disks"]["plain"]["serial"] = "ANOTHER"
    (tmp_path / "target.json").write_text(json.dumps(other), encoding="utf-8")
    result = provisioned.python(
        "controller", "prove", "--target", tmp_path / "target.json", "plain"
    )
    assert result.returncode == 1
    assert "fde provision" in result.stderr
