"""Every reason not to write a disk, on facts and on real loop devices."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.plan import Disk, Extent, Filesystem, StorageSpec
from agent.storage import guard, layout, provision
from agent.storage.devices import Use
from agent.storage.guard import DiskFacts, GuardError, Partition
from agent.storage.secrets import Secrets

DISK = Disk("plain", "/dev/disk/by-id/nvme-x_S1", "S1", 2**31)
OURS = Partition("/dev/nvme0n1p1", guard.MARKER_TYPE, guard.MARKER_NAME, 2**20, 2**30, None, None)
BLANK = DiskFacts("/dev/nvme0n1", True, "S1", 2**31, (), None, None, ())
READY = replace(BLANK, table="gpt", partitions=(OURS,))
LUKS = replace(OURS, signature="crypto_LUKS", label=guard.LUKS_LABEL)


def _inside(partition: Partition) -> DiskFacts:
    return replace(READY, partitions=(partition,))


@pytest.mark.parametrize(
    "facts",
    [
        BLANK,
        READY,
        _inside(LUKS),
        replace(_inside(LUKS), uses=(Use("nvme0n1p1", "held by fde-data"),)),
        replace(READY, uses=(Use("dm-0", f"mounted on {guard.MOUNT_POINT}"),)),
        _inside(replace(OURS, type_guid=guard.MARKER_TYPE.upper())),
    ],
)
def test_a_blank_disk_and_our_own_may_be_written(facts: DiskFacts) -> None:
    assert guard.refusals(DISK, facts) == []


REFUSED: dict[str, tuple[DiskFacts, str]] = {
    "absent": (replace(BLANK, path=None), "no block device"),
    "partition": (replace(BLANK, whole_disk=False), "not a whole disk"),
    "other serial": (replace(BLANK, serial="S2"), "'S2'.*'S1'"),
    "no serial": (replace(BLANK, serial=""), "'unknown'"),
    "other size": (replace(BLANK, size_bytes=2**31 - 512), "2147483136 bytes"),
    "mounted": (replace(READY, uses=(Use("nvme0n1p1", "mounted on /mnt"),)), "mounted on /mnt"),
    "root": (
        replace(BLANK, uses=(Use("nvme0n1p2", "carries the root file system"),)),
        "carries the root file system",
    ),
    "swap": (replace(READY, uses=(Use("nvme0n1p1", "used as swap"),)), "used as swap"),
    "LVM": (replace(READY, uses=(Use("nvme0n1p1", "held by vg-home"),)), "held by vg-home"),
    "MD": (replace(BLANK, uses=(Use("nvme0n1", "held by md0"),)), "held by md0"),
    "our names without our marker": (
        replace(BLANK, uses=(Use("nvme0n1", "held by fde-data"),)),
        "held by fde-data",
    ),
    "unreadable": (replace(BLANK, read_error="ENODATA"), "ENODATA.*PSID"),
    "whole-disk file system": (replace(BLANK, signature="ext4"), r"not ours \(ext4\)"),
    "whole-disk LUKS": (replace(BLANK, signature="crypto_LUKS"), "crypto_LUKS"),
    "foreign MBR": (
        replace(READY, table="dos", partitions=(replace(OURS, signature="ntfs"),)),
        "table that is not ours.*ntfs",
    ),
    "empty foreign GPT": (replace(BLANK, table="gpt"), "table that is not ours"),
    "our name, other type": (_inside(replace(OURS, type_guid="0" * 36)), "table that is not ours"),
    "our type, other name": (_inside(replace(OURS, name="data")), "table that is not ours"),
    "a second partition": (replace(READY, partitions=(OURS, OURS)), "table that is not ours"),
    "partitions without a table": (replace(READY, table=None), "table that is not ours"),
    "foreign file system inside": (_inside(replace(OURS, signature="xfs")), r"partition \(xfs\)"),
    "foreign LUKS inside": (_inside(replace(LUKS, label="home")), "crypto_LUKS"),
    "LUKS without label": (_inside(replace(LUKS, label=None)), "crypto_LUKS"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_disk_reason_and_way_out(name: str) -> None:
    facts, reason = REFUSED[name]
    found = guard.refusals(DISK, facts)
    assert len(found) == 1
    assert DISK.by_id in found[0]
    assert re.search(reason, found[0])
    assert ":" in found[0].split(DISK.by_id)[1]  # the way out follows a colon


def test_all_reasons_are_told_at_once() -> None:
    facts = replace(BLANK, serial="S2", size_bytes=1, signature="ext4")
    assert len(guard.refusals(DISK, facts)) == 3


@pytest.mark.parametrize(
    ("extent", "reason"),
    [
        (Extent(2**24, 2**31), "smaller extent_bytes"),
        (Extent(2**24, 2**20 + 1), "multiple"),
        (Extent(2**24, 0), "multiple"),
        (Extent(2**20, 2**30), "must begin"),
    ],
)
def test_extents_that_cannot_be_laid_out(extent: Extent, reason: str) -> None:
    assert reason in (layout.fits(DISK, extent) or "")


def test_the_largest_extent_leaves_room_for_the_backup_table() -> None:
    most = DISK.size_bytes - layout.START_BYTES - layout.END_BYTES - 2**24
    assert layout.fits(DISK, Extent(2**24, most)) is None
    assert layout.fits(DISK, Extent(2**24, most + 2**20)) is not None


# Real disks: loop devices.

Loop = Callable[[], tuple[Path, Path]]


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    """Makes (device, backing file) pairs of 64 MiB."""
    if os.geteuid() != 0:
        pytest.skip("loop devices need root")
    devices: list[str] = []

    def make() -> tuple[Path, Path]:
        backing = tmp_path / f"disk{len(devices)}"
        with backing.open("wb") as file:
            file.truncate(64 * 2**20)
        done = subprocess.run(
            ["losetup", "-f", "--show", "-P", backing], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"no loop devices here: {done.stderr.strip()}")
        devices.append(done.stdout.strip())
        return Path(devices[-1]), backing

    yield make
    for device in devices:
        subprocess.run(["umount", "-q", device], check=False)
        subprocess.run(["losetup", "-d", device], check=False)


def _disk(device: Path) -> Disk:
    return Disk("plain", str(device), "LOOP", 64 * 2**20)


def _facts(device: Path) -> DiskFacts:
    return guard.gather(_disk(device), lambda _name: "LOOP")


def test_a_real_blank_disk_is_seen_as_blank(loop: Loop) -> None:
    device, _ = loop()
    facts = _facts(device)
    assert facts.blank
    assert guard.refusals(_disk(device), facts) == []


def test_a_real_file_system_is_refused_mounted_or_not(loop: Loop, tmp_path: Path) -> None:
    device, _ = loop()
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    assert ["ext4" in r for r in guard.refusals(_disk(device), _facts(device))] == [True]
    folder = tmp_path / "a folder"
    folder.mkdir()
    if subprocess.run(["mount", device, folder], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    assert any(f"mounted on {folder}" in r for r in guard.refusals(_disk(device), _facts(device)))


def test_a_loop_device_over_the_disk_is_a_use(loop: Loop) -> None:
    device, _ = loop()
    over = subprocess.run(
        ["losetup", "-f", "--show", device], capture_output=True, text=True, check=True
    ).stdout.strip()
    try:
        uses = _facts(device).uses
    finally:
        subprocess.run(["losetup", "-d", over], check=True)
    assert [use.how for use in uses] == [f"held by {Path(over).name}"]


def test_a_real_luks_header_without_our_label_is_refused(loop: Loop) -> None:
    device, _ = loop()
    with device.open("r+b") as file:  # magic and version of a LUKS1 header are what blkid knows
        file.write(b"LUKS\xba\xbe\x00\x01")
    assert "crypto_LUKS" in guard.refusals(_disk(device), _facts(device))[0]


def test_two_signatures_at_once_are_not_taken_for_none(loop: Loop) -> None:
    device, _ = loop()
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    with device.open("r+b") as file:  # a GFS2 superblock, as far as blkid looks at it
        file.seek(65536)
        file.write(struct.pack(">IIQIIII", 0x01161970, 1, 0, 100, 0, 1801, 1900))
    assert "more than one" in guard.refusals(_disk(device), _facts(device))[0]


def test_a_regular_file_is_no_disk(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(GuardError, match="no block device"):
        guard.check(_disk(tmp_path / "file"))


def test_prepare_writes_no_disk_at_all_if_one_is_refused(loop: Loop) -> None:
    """A loop device has no serial number, so its identity never matches."""
    (first, first_file), (second, second_file) = loop(), loop()
    subprocess.run(["mkfs.ext4", "-q", second], check=True)
    os.sync()
    before = [hashlib.sha256(f.read_bytes()).hexdigest() for f in (first_file, second_file)]
    spec = StorageSpec(
        disks={"plain": _disk(first), "sed": replace(_disk(second), role="sed")},
        extent=Extent(2**24, 2**24),
        filesystem=Filesystem("ext4", (), ""),
        configurations={},
    )
    with pytest.raises(GuardError, match=r"serial.*serial.*ext4"):
        provision.prepare(spec, Secrets(b"passphrase", b"pin"))
    os.sync()
    after = [hashlib.sha256(f.read_bytes()).hexdigest() for f in (first_file, second_file)]
    assert before == after
