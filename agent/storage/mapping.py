"""The device-mapper devices of a configuration: `fde-data` on top, and what may lie below it.

All are known by their names, so that what a crash left behind is found, half-made or not.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from agent.command import run
from agent.storage.devices import BLOCK, chain, dm_name, is_whole_disk
from agent.storage.guard import MAPPING

PATH = f"/dev/mapper/{MAPPING}"
CONTAINER = f"{MAPPING}-container"
OURS = "FDE-TESTBED"  # the start of the UUID of mappings that we make ourselves
_NAMES = re.compile(rf"{MAPPING}(_\d+|-container)?")
# cryptsetup's way of closing an Opal mapping locks the range without its PIN.
_LOCKS_ON_CLOSING = "CRYPT-LUKS2-OPAL"


def is_ours(name: str) -> bool:
    """Whether a device-mapper name is one of ours: `fde-data`, a cascade's layer, a container."""
    return _NAMES.fullmatch(name) is not None


def devices() -> dict[str, str]:
    """Our mappings that exist: name to kernel name, which is empty while one has no table.

    device-mapper is asked, for what has no table yet is not to be seen in sysfs.
    """
    argv = ["dmsetup", "info", "-c", "--noheadings", "--separator", ":", "-o", "name,minor"]
    found = {}
    for line in run(argv).out.splitlines():
        name, _, minor = line.strip().partition(":")
        if is_ours(name):
            kernel = f"dm-{minor}"
            found[name] = kernel if (BLOCK / kernel).exists() else ""
    return found


def strangers(disks: Collection[str]) -> list[str]:
    """Mappings of our names that stand on other disks than these (kernel names), so are not ours.

    Ours on a disk that has gone stands on nothing that the kernel still shows.
    """
    found = []
    for name, kernel in devices().items():
        whole = {below for below in chain(kernel) if is_whole_disk(below)} if kernel else set()
        if whole - set(disks):
            found.append(f"{name} on {', '.join(sorted(whole - set(disks)))}")
    return found


def create(name: str, lines: list[str]) -> None:
    """Make a mapping from the lines of its table, which hold no keys."""
    run(
        ["dmsetup", "create", name, "--uuid", f"{OURS}-{name}"],
        stdin="".join(f"{line}\n" for line in lines).encode(),
    )


def close() -> None:
    """Take all our mappings down, those on which nothing stands first."""
    left = devices()
    while left:
        free = [name for name, kernel in left.items() if not (kernel and _holders(kernel))]
        # If each is held by another, dmsetup will say by whom it fails.
        for name in free or list(left):
            if uuid(left[name]).startswith(_LOCKS_ON_CLOSING):
                run(["cryptsetup", "close", name])
            else:
                run(["dmsetup", "remove", "--retry", name])
            del left[name]


def uuid(kernel: str) -> str:
    """The mapping's UUID, which tells who made it; empty where it has no table."""
    return (BLOCK / kernel / "dm" / "uuid").read_text().strip() if kernel else ""


def _holders(kernel: str) -> list[str]:
    return [entry.name for entry in (BLOCK / kernel / "holders").iterdir()]


def formatted() -> bool:
    """Whether the mapping carries a file system (or anything else that has a signature)."""
    if not Path(PATH).exists():
        return False
    return bool(run(["blkid", "-p", "-o", "export", PATH], ok=(0, 2, 8)).out.strip())


def mounts() -> list[Path]:
    """Where our mappings are mounted, the last mount first."""
    numbers = {
        (entry / "dev").read_text().strip()
        for entry in BLOCK.glob("dm-*")
        if is_ours(dm_name(entry.name) or "")
    }
    lines = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return [Path(fields[4]) for fields in lines if fields[2] in numbers][::-1]
