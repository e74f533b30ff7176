"""Two namespaces on one drive, as servers and some laptops have them: what one suffers, both do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.tests.guest import OPAL, PLAIN, Target
from drive.tests.started import Started
from lab.network import Network

pytestmark = pytest.mark.lab

OPTIONS = ("--size", "160M", "--second-namespace", "32M", "--opal")
LETTER = "the only copy of a letter"


@dataclass(frozen=True)
class Twofold:
    """The drive, and the guest's agent with its first namespace as the disk of an inventory."""

    target: Target
    image: Path
    psid: str
    first: str
    second: str

    @property
    def letter(self) -> str:
        """What stands in the file system of the second namespace, read past every cache."""
        read = (
            "sync; echo 3 > /proc/sys/vm/drop_caches; "
            f"mount -o ro {self.second} /mnt && cat /mnt/letter; umount /mnt"
        )
        return str(self.target.lab.ssh(read, check=False).stdout).strip()

    def medium(self) -> str:
        """SHA-256 of all that lies behind both namespaces."""
        self.target.lab.ssh(f"sync; blockdev --flushbufs {self.first} {self.second}")
        return hashlib.sha256(self.image.read_bytes()).hexdigest()

    def blank_first(self) -> None:
        """Blank the first namespace, so that nothing else prevents it."""
        zeros = f"dd if=/dev/zero of={self.first} bs=1M count=128 oflag=direct status=none"
        self.target.lab.ssh(f"{zeros}; udevadm settle")


@pytest.fixture
def drive(lab: Any, tmp_path: Path) -> Iterator[Twofold]:
    """Provide a new drive whose second namespace carries somebody's file system."""
    network = Network(lab.state["network_pid"])
    started = Started(tmp_path, "disk.img", *OPTIONS, network=network)
    serial = started.nqn.rpartition(":")[2]
    by_id = f"/dev/disk/by-id/nvme-virtual-drive-opal_{serial}"
    first, second = f"{by_id}_1", f"{by_id}_2"
    lab.ssh(
        f"nvme connect -t tcp -a 10.0.2.2 -s {started.port} -n {started.nqn}; "
        f"until [ -b {first} ] && [ -b {second} ]; do sleep 0.1; done; "
        f"mkfs.ext4 -qF {second} && mount {second} /mnt && "
        f"echo {LETTER} > /mnt/letter && umount /mnt"
    )
    target = Target(lab, [OPAL], 64 * 2**20)
    target.disks = {"sed": {"by_id": first, "serial": serial, "size_bytes": 128 * 2**20}}
    psid = (tmp_path / "disk.img.psid").read_text().strip()
    target.put("target.json", target.description())
    target.put("secrets.json", {**target.secrets, "sed_psid": psid})
    twofold = Twofold(target, tmp_path / "disk.img", psid, first, second)
    twofold.blank_first()
    assert twofold.letter == LETTER
    yield twofold
    lab.ssh(f"nvme disconnect -n {started.nqn}", check=False)
    started.stop()


def test_a_revert_of_one_namespace_reverts_the_other(drive: Twofold) -> None:
    """A revert that was asked for the first namespace takes what stands in the second."""
    command = "cryptsetup luksFormat --batch-mode --type luks2 --hw-opal-only"
    drive.target.lab.ssh(
        f"{command} {drive.first}", stdin=b"a passphrase\nan administrator's pin\n"
    )
    assert drive.letter == LETTER
    reset = "cryptsetup luksErase --batch-mode --hw-opal-factory-reset"
    drive.target.lab.ssh(f"{reset} {drive.first}", stdin=drive.psid.encode())
    assert drive.letter == ""


def test_a_drive_with_several_namespaces_is_neither_owned_nor_reverted(drive: Twofold) -> None:
    before = drive.medium()
    serial = drive.target.disks["sed"]["serial"]
    for command in ("prepare", f"teardown --psid-revert {serial}"):
        output = drive.target.agent(command, check=False)
        printed = output.stdout + output.stderr
        assert output.returncode == 1 and "Traceback" not in printed
        shown = drive.target.lab.ssh(f"readlink -f {drive.second}").stdout.strip()
        assert f"shares its security subsystem with {shown}" in printed
        assert '"code": "shared"' in printed
    assert drive.medium() == before
    assert drive.letter == LETTER


def test_a_plain_configuration_does_not_use_the_drives_security(drive: Twofold) -> None:
    drive.target.configurations = [{**PLAIN, "disk": "sed"}]
    drive.target.put("target.json", drive.target.description())
    drive.target.agent("prepare")
    drive.target.agent("teardown")
    assert drive.letter == LETTER
