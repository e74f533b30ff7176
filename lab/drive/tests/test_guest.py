"""The guest's own kernel, cryptsetup and nvme-cli on the self-encrypting drive, unmodified."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.drive.control import ask

pytestmark = pytest.mark.lab

DISK = "/dev/disk/by-id/nvme-fde-lab-sed_FDELABSED0001"
PART = f"{DISK}-part1"
NAME = "fde-drive-test"
MAPPED = f"/dev/mapper/{NAME}"
PASSPHRASE, ADMIN_PIN = "a passphrase", "an administrator's pin"
CANARY = "canary-of-the-guest-test"
PBKDF = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000"


def factory_reset(lab: Any) -> None:
    psid = json.loads(Path(lab.state["secrets"]).read_text())["sed_psid"]
    reset = f"cryptsetup luksErase -q --hw-opal-factory-reset {DISK}"
    lab.ssh(reset, stdin=psid.encode())


@pytest.fixture
def part(lab: Any) -> Iterator[str]:
    """One partition of 96 MiB on a drive as it left the factory."""
    factory_reset(lab)
    table = b"label: gpt\nstart=1MiB, size=96MiB\n"
    lab.ssh(f"sfdisk -q --wipe always {DISK}; udevadm settle; test -b {PART}", stdin=table)
    yield PART
    lab.ssh(f"cryptsetup close {NAME} 2>&1", check=False)
    factory_reset(lab)
    lab.ssh(f"dd if=/dev/zero of={DISK} bs=1M count=2 oflag=direct; blockdev --rereadpt {DISK}")


def luks_format(lab: Any, mode: str) -> None:
    command = f"cryptsetup luksFormat -q --type luks2 {mode} {PBKDF} {PART}"
    lab.ssh(command, stdin=f"{PASSPHRASE}\n{ADMIN_PIN}".encode())


def luks_open(lab: Any, passphrase: str = PASSPHRASE, check: bool = True) -> int:
    command = f"cryptsetup open --key-file - {PART} {NAME}"
    return int(lab.ssh(command, check=check, stdin=passphrase.encode()).returncode)


def range_state(lab: Any) -> dict[str, Any]:
    ranges = ask(Path(lab.state["drives"]["sed"]["control"]), "status")["ranges"]
    return next((row for row in ranges if row["range"] == 1), {})


def direct(lab: Any, options: str) -> Any:
    return lab.ssh(f"dd bs=4096 count=1 {options}", check=False)


@pytest.mark.parametrize("mode", ["--hw-opal-only", "--hw-opal"])
def test_cryptsetup_from_format_to_erase(lab: Any, part: str, mode: str) -> None:
    luks_format(lab, mode)
    dump = lab.ssh(f"cryptsetup luksDump {part}").stdout
    assert ("hw-opal\n" if mode == "--hw-opal-only" else "hw-opal-crypt") in dump
    assert "OPAL segment number: 1" in dump
    assert range_state(lab)["read_locked"] and range_state(lab)["write_locked"]
    assert luks_open(lab, "another passphrase", check=False) != 0

    luks_open(lab)
    table = lab.ssh(f"dmsetup table {NAME}").stdout
    assert (" linear " in table) is (mode == "--hw-opal-only")
    block = (CANARY * 200)[:4096].encode()
    lab.ssh(f"dd of={MAPPED} bs=4096 seek=7 count=1 iflag=fullblock oflag=direct", stdin=block)
    assert CANARY in lab.ssh(f"dd if={MAPPED} bs=4096 skip=7 count=1 iflag=direct").stdout
    lab.ssh(f"cryptsetup close {NAME}")

    inside = (16 << 20) // 4096 + 7  # cryptsetup keeps 16 MiB for its header
    for options in (
        f"if={part} iflag=direct skip={inside} of=/dev/null",
        f"if=/dev/zero of={part} oflag=direct seek={inside}",
    ):
        denied = direct(lab, options)
        assert denied.returncode != 0 and "No data available" in denied.stderr
    backing = Path(lab.state["drives"]["sed"]["backing"])
    assert CANARY.encode() not in backing.read_bytes()

    luks_open(lab)
    assert CANARY in lab.ssh(f"dd if={MAPPED} bs=4096 skip=7 count=1 iflag=direct").stdout
    lab.ssh(f"cryptsetup close {NAME}")
    lab.ssh(f"cryptsetup luksErase -q {part}", stdin=ADMIN_PIN.encode())
    assert luks_open(lab, check=False) != 0
    assert direct(lab, f"if={part} iflag=direct skip={inside} of=/dev/null").returncode == 0
    assert CANARY not in lab.ssh(f"dd if={part} bs=4096 skip={inside} count=1 | strings").stdout
    luks_format(lab, mode)  # an owned drive is formatted again with the same PIN
    luks_open(lab)


@pytest.mark.usefixtures("part")
def test_losing_power_locks_an_open_range(lab: Any) -> None:
    luks_format(lab, "--hw-opal-only")
    luks_open(lab)
    lab.ssh(f"dd if=/dev/zero of={MAPPED} bs=4096 count=1 oflag=direct")
    assert not range_state(lab)["read_locked"]
    assert ask(Path(lab.state["drives"]["sed"]["control"]), "power-cycle")["ok"]
    denied = direct(lab, f"if={MAPPED} iflag=direct of=/dev/null")  # waits for the reconnection
    assert denied.returncode != 0 and "No data available" in denied.stderr
    lab.ssh(f"cryptsetup close {NAME}")
    luks_open(lab)
    assert direct(lab, f"if={MAPPED} iflag=direct of=/dev/null").returncode == 0


def test_a_factory_reset_gives_the_drive_back_without_its_data(lab: Any, part: str) -> None:
    lab.ssh(f"dd of={part} bs=4096 oflag=direct iflag=fullblock", stdin=CANARY.encode() * 4096)
    luks_format(lab, "--hw-opal-only")
    assert "Locking Feature Enabled         : yes" in lab.ssh(f"nvme sed discover -v {DISK}").stdout
    factory_reset(lab)
    assert "Locking Feature Enabled         : no" in lab.ssh(f"nvme sed discover -v {DISK}").stdout
    assert CANARY not in lab.ssh(f"dd if={DISK} bs=1M count=20 iflag=direct | strings").stdout
