"""Print as JSON what a program can leave on this machine, by kind; needs root."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PLACES = ("/boot", "/dev/shm", "/etc", "/home", "/opt", "/root", "/run", "/tmp", "/usr", "/var")
# The system's own records, which any login or timer changes.
RECORDS = re.compile(
    r"/sys/class/|/run/(user|sudo|log|lock/lvm|credentials|udev|fde-host|utmp|sshd|lvm|blkid|over\."
    r"|mount/utab|dmeventd|initctl|chrony|cryptsetup/L_|systemd/(?!system/|transient/))"
    r"|/var/(log|cache|backups)|/var/lib/(systemd|sudo|dpkg|apt|logrotate|private|lastlog)"
    r"|/usr/(lib|share/(doc|man|locale|zoneinfo|perl))"
    r"|/home/[^/]+/(env|wheels|fde-testbed)/|/root/\.(ssh|bash_history)"
    r"|.*/(__pycache__|systemd-private-)"
)
OWN_KEYS = re.compile(r"_ses|_uid|_tid|_pid|invocation_id|\.")  # of each login and service
QUEUE = ("scheduler", "read_ahead_kb", "write_cache", "nr_requests")


def main() -> None:
    """Print all kinds."""
    json.dump({kind: sorted(set(lines)) for kind, lines in KINDS.items()}, sys.stdout)


def run(*command: str) -> list[str]:
    """Return the lines that a program prints; none if it is missing or fails."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return []
    return result.stdout.splitlines()


def list_keys() -> Iterator[str]:
    """Yield type and description of each key that no login or service made."""
    for line in Path("/proc/keys").read_text(encoding="utf-8").splitlines():
        kind, description = line.split(maxsplit=7)[7:][0].split(maxsplit=1)
        if not OWN_KEYS.match(description):
            yield f"{kind} {description}"


def list_mounts() -> Iterator[str]:
    """Yield each mount point with its file system."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        fields, system = line.split(" - ")
        if not RECORDS.match(fields.split()[4]):
            yield f"{fields.split()[4]} {system.split()[0]}"


def list_files() -> Iterator[str]:
    """Yield files, folders with a slash, and for those of /etc the hash of their content."""
    for place in PLACES:
        device = os.lstat(place).st_dev
        for folder, folders, names in os.walk(place):
            folders[:] = [
                name
                for name in folders
                if not RECORDS.match(f"{folder}/{name}/")
                and os.lstat(f"{folder}/{name}").st_dev == device
            ]
            yield from (f"{folder}/{name}/" for name in folders)
            for path in (f"{folder}/{name}" for name in names):
                if not RECORDS.match(path):
                    yield f"{path} {digest(Path(path))}" if place == "/etc" else path


def digest(path: Path) -> str:
    """Return the start of a file's SHA-256, or a link's target."""
    if path.is_symlink():
        return f"-> {path.readlink()}"
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def list_units() -> Iterator[str]:
    """Yield units of the kinds that a suite stops or starts, with their state."""
    kinds = "--type=service,timer,socket,mount,swap"
    for line in run("systemctl", "list-units", "--all", "--plain", "--no-legend", kinds):
        name, _loaded, active, state = line.split()[:4]
        # systemd notices mounts below /sys, as of the modelled battery, some time later.
        if not name.startswith(("user@", "user-runtime", "systemd-", "run-", "ssh@", "sys-")):
            yield f"{name} {active} {state}"


def list_settings() -> Iterator[str]:
    """Yield settings of kernel, disks and processors that a suite may change."""
    yield from run("sysctl", "--all", "--pattern", r"^(vm|kernel\.(perf|nmi|numa))")
    for queue in Path("/sys/block").glob("*/queue"):
        if not queue.parent.name.startswith("loop"):
            for name in QUEUE:
                if (queue / name).exists():
                    yield f"{queue / name} {(queue / name).read_text().strip()}"
    for governor in Path("/sys/devices/system/cpu").glob("cpu*/cpufreq/scaling_governor"):
        yield f"{governor} {governor.read_text().strip()}"


def list_processes() -> Iterator[str]:
    """Yield command lines of the testbed's programs."""
    for line in run("ps", "-e", "-ww", "-o", "args="):
        if re.search(r"\bfde\b|fde[-_]|ansible|cryptsetup|fio\b|mplayer|sysbench", line):
            yield line


KINDS = {
    "loops": run("losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"),
    "mappings": run("dmsetup", "ls"),
    "volumes": run("lvs", "--noheadings", "--options", "vg_name,lv_name"),
    "keys": list_keys(),
    "mounts": list_mounts(),
    "swaps": Path("/proc/swaps").read_text(encoding="utf-8").splitlines(),
    "files": list_files(),
    "packages": run("dpkg-query", "--show"),
    "units": list_units(),
    "settings": list_settings(),
    "processes": list_processes(),
}

if __name__ == "__main__":
    main()
