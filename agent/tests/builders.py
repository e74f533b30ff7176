"""Disks, drives and files that the tests of storage have in common."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agent.storage.opal_ioctl import Status
from agent.storage.secrets import Secrets
from contract.plan import Configuration, Disk, Extent, Filesystem, StorageSpec

SECRETS = Secrets(b"passphrase", b"pin")
FRESH = Status(True, True, False, False, False, False)
OWNED = Status(True, True, True, False, False, False)


def storage_spec(disk: Disk, extent: Extent, *configurations: Configuration) -> StorageSpec:
    """Return a specification of one disk, on which these configurations are."""
    return StorageSpec(
        disks={disk.role: disk},
        extent=extent,
        filesystem=Filesystem("ext4", (), ""),
        configurations={configuration.name: configuration for configuration in configurations},
    )


class LoopDisks:
    """Loop devices that go with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.backing: dict[Path, Path] = {}

    def make(self, size_bytes: int = 64 * 2**20) -> Path:
        """Return a loop device over a new file of zeros."""
        backing = self.folder / f"disk{len(self.backing)}"
        backing.touch()
        os.truncate(backing, size_bytes)
        return self.attach(backing)

    def attach(self, backing: Path, *options: str) -> Path:
        """Return a loop device over a file or another device."""
        if os.geteuid() != 0:
            pytest.skip("loop devices need root")
        argv = ["losetup", "-f", "--show", "-P", *options, str(backing)]
        output = subprocess.run(argv, capture_output=True, text=True, check=False)
        if output.returncode:
            pytest.skip(f"no loop devices here: {output.stderr.strip()}")
        device = Path(output.stdout.strip())
        self.backing[device] = backing
        return device

    def contents(self, device: Path) -> bytes:
        """Return what lies behind a device, as its file has it."""
        os.sync()
        return self.backing[device].read_bytes()

    def detach_all(self) -> None:
        for device in reversed(self.backing):
            subprocess.run(["umount", "-q", device], check=False)
            subprocess.run(["losetup", "-d", device], check=False)
