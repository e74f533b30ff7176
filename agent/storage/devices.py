"""What the kernel says about block devices: names, sizes, serials, and who uses them (sysfs)."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.command import run

BLOCK = Path("/sys/class/block")
SECTOR_BYTES = 512  # the unit of sysfs and device-mapper, whatever the disk's block size


@dataclass(frozen=True)
class Use:
    """Why a device is busy: `device` is a kernel name, `how` reads on from "… is"."""

    device: str
    how: str


def kernel_name(path: str | os.PathLike[str]) -> str | None:
    """The kernel's name of the block device behind a path; None if there is none."""
    try:
        info = os.stat(path)  # noqa: PTH116 - takes any path-like
    except OSError:
        return None
    if not stat.S_ISBLK(info.st_mode):
        return None
    return _name_of(os.major(info.st_rdev), os.minor(info.st_rdev))


def size_bytes(name: str) -> int:
    """Size of a device; `name` is the kernel's."""
    return int((BLOCK / name / "size").read_text()) * SECTOR_BYTES


def is_whole_disk(name: str) -> bool:
    """Neither a partition nor a mapping on other devices."""
    return not (BLOCK / name / "partition").exists() and not (BLOCK / name / "dm").exists()


def partitions(name: str) -> list[str]:
    """Kernel names of the partitions of a disk, by their number."""
    found = [
        (int((entry / "partition").read_text()), entry.name)
        for entry in (BLOCK / name).resolve().iterdir()
        if (entry / "partition").exists()
    ]
    return [partition for _, partition in sorted(found)]


def partition_start_bytes(name: str) -> int:
    """Where a partition begins on its disk."""
    return int((BLOCK / name / "start").read_text()) * SECTOR_BYTES


def wait_for_partition(disk: str, timeout_s: float = 10) -> str | None:
    """The kernel name of the disk's only partition once its node is there; None if it never is."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        names = partitions(disk)
        if len(names) == 1 and kernel_name(f"/dev/{names[0]}") == names[0]:
            return names[0]
        time.sleep(0.1)
    return None


def serial(name: str) -> str:
    """The disk's serial number as the drive reports it; empty if nobody knows one."""
    for place in ("device/serial", "serial"):
        try:
            found = (BLOCK / name / place).read_text().strip()
        except OSError:
            continue
        if found:
            return found
    return run(["lsblk", "-dno", "SERIAL", f"/dev/{name}"]).out.strip()


def dm_name(name: str) -> str | None:
    """The device-mapper name of a device; None if it is no mapping."""
    try:
        return (BLOCK / name / "dm" / "name").read_text().strip()
    except OSError:
        return None


def uses(disk: str) -> list[Use]:
    """Mounts, swap and holders of a disk, its partitions and all that stands on them."""
    found = [
        Use(name, "carries the root file system" if where == "/" else f"mounted on {where}")
        for name, where in _mounts()
        if disk in _chain(name)
    ]
    found += [Use(name, "used as swap") for name in _swaps() if disk in _chain(name)]
    for name in (disk, *partitions(disk)):
        holders = BLOCK / name / "holders"
        for holder in sorted(holders.iterdir()) if holders.exists() else ():
            called = dm_name(holder.name) or holder.name
            found.append(Use(name, f"held by {called}"))
        found += [Use(name, f"held by {loop}") for loop in _loops_over(name)]
    return found


def _loops_over(name: str) -> list[str]:
    """Loop devices set up on a device: the kernel does not list them as its holders."""
    files = sorted(BLOCK.glob("loop*/loop/backing_file"))
    return [file.parents[1].name for file in files if kernel_name(file.read_text().strip()) == name]


def _name_of(major: int, minor: int) -> str | None:
    link = Path(f"/sys/dev/block/{major}:{minor}")
    return link.resolve().name if link.exists() else None


def _chain(name: str) -> set[str]:
    """The device and all devices below it, down to whole disks."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in found or not (BLOCK / current).exists():
            continue
        found.add(current)
        real = (BLOCK / current).resolve()
        if (real / "partition").exists():
            waiting.append(real.parent.name)
        if (real / "slaves").exists():
            waiting += [entry.name for entry in (real / "slaves").iterdir()]
    return found


def _mounts() -> Iterator[tuple[str, str]]:
    """(kernel name, mount point) of everything mounted from a block device."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        major, minor = (int(number) for number in fields[2].split(":"))
        # Some file systems (btrfs, zfs) have a device number of their own: ask their source.
        name = _name_of(major, minor) or kernel_name(_plain(right.split()[1]))
        if name:
            yield name, _plain(fields[4])


def _swaps() -> Iterator[str]:
    for line in Path("/proc/swaps").read_text().splitlines()[1:]:
        name = kernel_name(_plain(line.split()[0]))
        if name:
            yield name


def _plain(text: str) -> str:
    """Undo the kernel's octal escapes of blanks in paths."""
    for escaped, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escaped, char)
    return text
