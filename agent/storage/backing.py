"""The storage below a folder: its file system and the layers down to the disk. Needs no root."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from agent.storage import devices, uses
from agent.storage.devices import BLOCK
from agent.storage.uses import Mount
from contract import system_text

COPIES_ON_WRITE = ("btrfs",)
# Prefixes of device-mapper's UUIDs, by what made the mapping.
_MAPPERS = {"CRYPT-": "dm-crypt", "LVM-": "LVM", "mpath-": "multipath", "DMRAID-": "RAID"}


@dataclass(frozen=True)
class Backing:
    """The file system of a folder, and the layers below it from the top down to the disks.

    `layers` are of dm-crypt, LVM, RAID, loop, USB, network and disk.
    """

    filesystem: str
    layers: tuple[str, ...] = ()

    @property
    def copies_on_write(self) -> bool:
        """Whether the file system moves blocks as they are written."""
        return self.filesystem in COPIES_ON_WRITE


def describe(folder: Path) -> Backing:
    """Describe what is below a folder, unless that is hidden; raises OSError if it is missing."""
    mount = _mount_of(folder)
    return _describe(mount) if mount else Backing("")


def _describe(mount: Mount) -> Backing:
    name = _device(mount)
    if name is None:
        return Backing(mount.kind, ("network",) if uses.is_remote(mount) else ())
    lower = uses.read_stack().lower
    layers: list[str] = []
    waiting = [name]
    while waiting:
        device = waiting.pop(0)
        below = sorted(lower.get(device, ()))
        layers.append(_layer(device, bool(below)))
        waiting += below
    return Backing(mount.kind, tuple(dict.fromkeys(filter(None, layers))))


def below_loop(loop: str) -> Backing | None:
    """Describe what is below a loop device's file, as the machine's first process has it mounted.

    A service's sandbox hides folders. None if it cannot be found.
    """
    number = uses.number_below_loop(loop)
    mounts = [mount for mount in uses.mounts("/proc/1") if mount.number == number]
    return _describe(mounts[-1]) if mounts else None


def _layer(name: str, has_lower: bool) -> str:
    """Return the word for one block device; empty for a partition."""
    device = (BLOCK / name).resolve()
    uuid = system_text.read_line_or_empty(device / "dm" / "uuid")
    mappings = (word for prefix, word in _MAPPERS.items() if uuid.startswith(prefix))
    is_usb = any(part.startswith("usb") for part in device.parts)
    words = {
        "": (device / "partition").exists(),
        next(mappings, "device-mapper"): (device / "dm").exists(),
        "RAID": (device / "md").exists(),
        "loop": (device / "loop").exists(),
        name.rstrip("0123456789"): has_lower,
        "USB disk": is_usb,
        "network": name.startswith(("nbd", "rbd", "drbd")),
    }
    return next((word for word, applies in words.items() if applies), "disk")


def unfit(folder: Path) -> str | None:
    """Return the type of a file system on which no disk can be measured; None if one can.

    Those in memory, of other machines and of several layers are without a block device.
    """
    if (mount := _mount_of(folder)) is None:
        return "a file system that is not mounted here (as in a chroot)"
    types = system_text.read(Path("/proc/filesystems")).splitlines()
    without_device = {name for flag, _, name in (line.partition("\t") for line in types) if flag}
    return mount.kind if mount.kind.partition(".")[0] in without_device else None


def free_bytes(folder: Path) -> int:
    """Return the room for users without special rights; raises OSError."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def device_of(folder: Path) -> str | None:
    """Return the kernel name of the block device that a folder's file system is on, if one."""
    mount = _mount_of(folder)
    return _device(mount) if mount else None


def _device(mount: Mount) -> str | None:
    return devices.name_of(mount.number) or devices.kernel_name(mount.source)


def _mount_of(folder: Path) -> Mount | None:
    """Return the mount that a folder is on: of several at one place, the last one.

    None in a chroot, to which the mount of its root is not shown.
    """
    path = folder.resolve(strict=True)
    above = [mount for mount in uses.mounts() if path.is_relative_to(mount.where)]
    return max(reversed(above), key=lambda mount: len(mount.where), default=None)
