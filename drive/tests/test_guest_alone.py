"""An installed drive, started by hand and connected to: other sectors, keys and resets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from drive.control import ask
from drive.tests.guest_sed import GuestSed
from drive.tests.started import Started
from lab.network import Network

pytestmark = pytest.mark.lab

NAME = "fde-alone"
MAPPED = f"/dev/mapper/{NAME}"
PASSPHRASE, ADMIN_PIN = "a passphrase", "an administrator's pin"
PLAINTEXT = "plaintext-of-the-drive-alone"
OPTIONS = ("--opal", "--block-size", "512", "--key-bits", "128", "--block-sid-feature")


@dataclass(frozen=True)
class Alone:
    """The drive, its disk in the guest, and the guest."""

    folder: Path
    disk: str
    guest: GuestSed

    def ask(self, command: str, **parameters: Any) -> None:
        answer = ask(self.folder / "disk.img.control", command, **parameters)
        assert answer["ok"], answer

    def luks_format(self) -> str:
        pbkdf = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000"
        return f"cryptsetup luksFormat -q --type luks2 --hw-opal-only {pbkdf} {self.disk}-part1"

    def open(self) -> None:
        self.guest.run(f"cryptsetup open --key-file - {self.disk}-part1 {NAME}", PASSPHRASE)

    def close(self) -> None:
        self.guest.run(f"cryptsetup close {NAME}")


@pytest.fixture
def alone(in_guest: GuestSed, installed: Path, tmp_path: Path) -> Iterator[Alone]:
    """Yield a new drive with one partition of 40 MiB."""
    network = Network(in_guest.lab.state["network_pid"])
    words = ("disk.img", "--size", "64M", *OPTIONS)
    started = Started(tmp_path, *words, network=network, installed=installed)
    connect = f"nvme connect -t tcp -a 10.0.2.2 -s {started.port} -n {started.nqn}"
    serial = started.nqn.rpartition(":")[2]
    disk = f"/dev/disk/by-id/nvme-virtual-drive-opal_{serial}"
    in_guest.run(f"{connect}; until [ -b {disk} ]; do sleep 0.2; done")
    table = "label: gpt\nstart=1MiB, size=40MiB\n"
    in_guest.run(f"sfdisk -q {disk} && udevadm settle && test -b {disk}-part1", table)
    yield Alone(tmp_path, disk, in_guest)
    in_guest.run(f"cryptsetup close {NAME}; nvme disconnect -n {started.nqn}", check=False)
    started.stop()


def test_sectors_of_512_bytes_and_keys_of_128_bits(alone: Alone) -> None:
    alone.guest.run(alone.luks_format(), f"{PASSPHRASE}\n{ADMIN_PIN}")
    query = f"sedutil-cli --query $(readlink -f {alone.disk})"
    query = alone.guest.run(f"{query} && udevadm settle").stdout  # its closing wakes udev
    assert "Logical Block size = 512" in query and "Alignment Granularity = 8" in query
    alone.open()
    alone.guest.write(7, PLAINTEXT, MAPPED)
    assert PLAINTEXT in alone.guest.read(7, MAPPED)
    alone.close()
    header_blocks = (16 << 20) // 4096
    alone.guest.assert_denied(header_blocks + 7, f"{alone.disk}-part1")
    assert PLAINTEXT.encode() not in (alone.folder / "disk.img").read_bytes()


def test_a_warm_reset_is_no_loss_of_power(alone: Alone) -> None:
    alone.guest.run(alone.luks_format(), f"{PASSPHRASE}\n{ADMIN_PIN}")
    alone.open()
    alone.guest.write(3, PLAINTEXT, MAPPED)
    alone.ask("warm-reset")
    assert PLAINTEXT in alone.guest.read(3, MAPPED), "the kernel reconnects to an open range"
    alone.ask("fault", name="power-cut", after_commands=1, on="read")
    alone.guest.assert_denied(3, MAPPED)


def test_a_host_may_block_the_sid_itself(alone: Alone) -> None:
    send = f"nvme security-send {alone.disk} -p 2 -s 5 -t 512 -f /run/zeroes"
    alone.guest.run(f"head -c 512 /dev/zero > /run/zeroes && {send}")
    output = alone.guest.run(f"nvme sed discover -v {alone.disk}").stdout
    assert re.search(r"SID auth blocked +: yes", output), output
    alone.guest.refuses(alone.luks_format(), f"{PASSPHRASE}\n{ADMIN_PIN}")
    alone.ask("power-cycle")
    alone.guest.run(f"dd if={alone.disk} of=/dev/null bs=4096 count=1; udevadm settle", check=False)
    alone.guest.run(alone.luks_format(), f"{PASSPHRASE}\n{ADMIN_PIN}")
