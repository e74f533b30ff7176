"""Where the figures come from: machine, kernel, firmware and versions of all that takes part."""

from __future__ import annotations

import os
import platform
import re
import sys
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from agent.checks import settings, smart
from agent.storage import backing, devices
from agent.storage.devices import BLOCK
from agent.system.command import CommandError, run
from agent.system.virtual_lab import SIMULATED_RAPL, lab_word
from contract.disks import Lifetime
from contract.journal import boot_id
from contract.plan import Disk, StorageSpec
from contract.strict_json import Document
from contract.system_text import read_line_or_empty
from workloads import programs

ATA_LINKS = Path("/sys/class/ata_link")

PROGRAMS = {
    "cryptsetup": ["cryptsetup", "--version"],
    "dd": ["dd", "--version"],  # GNU's or uutils', which spend different energy
    "dmsetup": ["dmsetup", "version"],
    "fio": ["fio", "--version"],
    "mariadbd": ["mariadbd", "--version"],
    "mkfs.ext4": ["mkfs.ext4", "-V"],
    "mplayer": ["mplayer"],
    "mysqld": ["mysqld", "--version"],
    "smartctl": ["smartctl", "--version"],
    "sysbench": ["sysbench", "--version"],
}


def gather(spec: StorageSpec) -> Document:
    """Collect the document provenance/*.json; what the machine does not report is null."""
    command_line = _text(Path("/proc/cmdline"))
    return {
        "format": "fde-provenance/1",
        "wall": datetime.now(UTC).isoformat(timespec="seconds"),
        "boot_id": boot_id(),
        "uname": list(os.uname()),
        "os_release": platform.freedesktop_os_release().get("PRETTY_NAME"),
        "kernel_command_line": command_line,
        "lab_machine": lab_word("fde.machine", command_line or ""),
        "lab_disks": lab_word("fde.disks", command_line or ""),
        "cpu": _cpu(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "settings": settings.of_machine(Path("/sys"), Path("/proc"))
        | settings.limits_of(Path("/sys")),
        "swaps": (_text(Path("/proc/swaps")) or "").splitlines()[1:],
        "environment": programs.environment(),
        "environment_withheld": sorted(set(os.environ) - set(programs.INHERITED)),
        "simulated_rapl": SIMULATED_RAPL.exists(),
        "disks": {role: _disk(disk) for role, disk in spec.disks.items()},
        "versions": versions(),
    }


def versions() -> dict[str, str | None]:
    """Return the first line that each program prints about itself; null if it is not installed."""
    programs: dict[str, str | None] = dict.fromkeys(PROGRAMS)
    for name, argv in PROGRAMS.items():
        with suppress(CommandError):
            output = run(argv, ok=range(256), timeout_s=30)
            lines = (line.strip() for line in f"{output.out}\n{output.err}".splitlines())
            programs[name] = next(filter(None, lines), None)
    # By pyRAPL's own text: importing it may fail, and a bare copy of it has no package metadata.
    spec = find_spec("pyRAPL")
    text = _text(Path(spec.origin)) if spec and spec.origin else None
    version = re.search(r'^__version__ = "([^"]+)"', text or "", re.MULTILINE)
    return {"python": sys.version.split()[0], **programs, "pyRAPL": version and version[1]}


def _cpu() -> Document:
    lines = (_text(Path("/proc/cpuinfo")) or "").split("\n\n", maxsplit=1)[0].splitlines()
    fields = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    root = Path("/sys/devices/system/cpu")
    return {
        "model": fields.get("model name"),
        "microcode": fields.get("microcode"),
        "flags": sorted(set(fields.get("flags", "").split()) & {"aes", "vaes", "avx2", "sha_ni"}),
        "count": os.cpu_count(),
        "max_khz": _text(root / "cpu0/cpufreq/cpuinfo_max_freq"),
        "governor": _text(root / "cpu0/cpufreq/scaling_governor"),
        "no_turbo": _text(root / "intel_pstate/no_turbo"),
        "boost": _text(root / "cpufreq/boost"),
        "idle_driver": _text(root / "cpuidle/current_driver"),
        "vulnerabilities": {
            path.name: _text(path) for path in sorted((root / "vulnerabilities").glob("*"))
        },
    }


def _disk(disk: Disk) -> Document:
    name = devices.kernel_name(disk.by_id)
    if name is None:
        return {"by_id": disk.by_id, "present": False}
    device = BLOCK / name / "device"
    queue = BLOCK / name / "queue"
    paths = devices.controllers(device)
    below = backing.below_loop(name) if disk.file else None
    return {
        "by_id": disk.by_id,
        "present": True,
        "model": _text(device / "model"),
        "serial": devices.serial(name),
        "firmware": _text(device / "firmware_rev") or _text(device / "rev"),
        "size_bytes": devices.size_bytes(name),
        "logical_block_bytes": _text(queue / "logical_block_size"),
        "rotational": _text(queue / "rotational"),
        "scheduler": _text(queue / "scheduler"),
        "write_cache": _text(queue / "write_cache"),
        "settings": settings.of_device(BLOCK / name),
        "transport": _text(paths[0] / "transport"),
        "link_speed": next(filter(None, map(link_speed, paths)), None),
        **asdict(smart.lifetime(name) or Lifetime()),
        **({"filesystem": below.filesystem, "layers": ", ".join(below.layers)} if below else {}),
    }


def link_speed(device: Path, links: Path = ATA_LINKS) -> str | None:
    """Read the speed of the PCI Express link (sysfs-bus-pci) or SATA port (libata) of a disk."""
    for above in device.resolve().parents:
        if re.fullmatch(r"ata\d+", above.name):
            number = above.name.removeprefix("ata")
            return _text(links / f"link{number}" / "sata_spd")
        if (speed := _text(above / "current_link_speed")) is not None:
            return speed
    return None


def _text(path: Path) -> str | None:
    return read_line_or_empty(path).strip("\0") or None
