"""The one device-mapper mapping that every configuration ends in."""

from __future__ import annotations

from pathlib import Path

from agent.command import run
from agent.storage.devices import BLOCK, dm_name
from agent.storage.guard import MAPPING

PATH = f"/dev/mapper/{MAPPING}"


def active() -> str | None:
    """Kernel name of the mapping, None if it is closed; also finds one left by an earlier run."""
    for device in sorted(BLOCK.glob("dm-*")):
        if dm_name(device.name) == MAPPING:
            return device.name
    return None


def close() -> None:
    """Close the mapping if it is open; cryptsetup's own by cryptsetup, which locks Opal again."""
    name = active()
    if name is None:
        return
    uuid = (BLOCK / name / "dm" / "uuid").read_text().strip()
    if uuid.startswith("CRYPT-"):
        run(["cryptsetup", "close", MAPPING])
    else:
        run(["dmsetup", "remove", "--retry", MAPPING])


def table() -> str:
    """The mapping's table, without keys."""
    return run(["dmsetup", "table", MAPPING]).out.strip()


def mounts() -> list[Path]:
    """Where the mapping is mounted, the last mount first."""
    name = active()
    if name is None:
        return []
    number = (BLOCK / name / "dev").read_text().strip()
    lines = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return [Path(fields[4]) for fields in lines if fields[2] == number][::-1]
