"""Packages and files that provisioning brings to a target: noted before, removed later.

The note is written first, so that it is complete even if an installation is interrupted.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import struct
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from agent.storage.devices import command_name
from agent.system import confinement
from agent.system.command import CommandError, run
from agent.system.quiet import properties
from contract import strict_json
from contract.files import write_json

NOTE = Path("/var/lib/fde-testbed/brought.json")
# As `apt-get --simulate` prints what it would do: a new package has no version in brackets.
NEW = re.compile(r"^Inst (\S+) \(", re.MULTILINE)
GONE = re.compile(r"^(?:Remv|Purg) (\S+) ", re.MULTILINE)
UNIT = re.compile(r"/(?:usr/)?lib/systemd/system/([^/@]+\.(?:service|socket|timer))")
LIMIT_S = 1800.0
POLICY = Path("/usr/sbin/policy-rc.d")
# Nothing asks: neither a package nor needrestart, which would also restart services. Changed
# configuration files stay.
APT = (
    "env",
    "DEBIAN_FRONTEND=noninteractive",
    "NEEDRESTART_SUSPEND=1",
    "apt-get",
    "--option=DPkg::Lock::Timeout=60",
    "--option=Dpkg::Options::=--force-confdef",
    "--option=Dpkg::Options::=--force-confold",
)
# What apt and dpkg lock, of which they wait only for the first.
LOCKS = (
    Path("/var/lib/dpkg/lock-frontend"),
    Path("/var/lib/dpkg/lock"),
    Path("/var/lib/apt/lists/lock"),
    Path("/var/cache/apt/archives/lock"),
)
LOOK_S, SAY_S = 1.0, 30.0
_FLOCK = struct.Struct("@hhqqi0q")  # struct flock of fcntl(2)


@dataclass(frozen=True)
class Note:
    """Packages and files that provisioning brought, or was about to bring; both are sorted."""

    packages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


def note(packages: Sequence[str], files: Sequence[str] = (), path: Path = NOTE) -> bool:
    """Note the packages that would come with these, and new files; return whether that adds any."""
    come: set[str] = set()
    if packages:
        argv = ["apt-get", "--simulate", "--no-install-recommends", "install", *packages]
        come = set(NEW.findall(run(argv).out))
    before = _read(path)
    new_files = (f for f in files if not Path(f).exists())
    current = Note(
        tuple(sorted({*before.packages, *come})), tuple(sorted({*before.files, *new_files}))
    )
    if current == before:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, asdict(current))
    return True


def _read(path: Path) -> Note:
    return strict_json.load(Note, path) or Note()


def update() -> None:
    """Have apt read its sources' lists again. Raises CommandError."""
    _apt("--quiet", "update")


def install(packages: Sequence[str], path: Path = NOTE, policy: Path = POLICY) -> list[str]:
    """Install packages without starting their services now or at boot; return what was done.

    Raises CommandError. policy-rc.d holds services back, as in Debian's policy (9.3.3); an existing
    one is left unchanged.
    """
    update()
    note(packages, [str(policy)], path)
    writes_policy = str(policy) in _read(path).files
    try:
        if writes_policy:
            policy.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
            policy.chmod(0o755)
        _apt("--yes", "--no-install-recommends", "install", *packages)
    finally:
        if writes_policy:
            policy.unlink(missing_ok=True)
    return [f"installed {', '.join(packages)}", *(f"switched off {u}" for u in silence(path=path))]


def silence(systemctl: str = "systemctl", path: Path = NOTE) -> list[str]:
    """Stop the services and timers of the noted packages, and disable them at boot.

    A database server draws power. Returns those that were active or enabled.
    """
    packages = installed(_read(path).packages)
    if not packages:
        return []
    units = sorted(set(UNIT.findall(run(["dpkg", "-L", *packages]).out)))
    if not units:
        return []
    show = ["show", "--property=Id,ActiveState,UnitFileState", *units]
    units_on = []
    for unit in properties(run([systemctl, *show]).out):
        on = unit.get("ActiveState") == "active" or unit.get("UnitFileState") == "enabled"
        if on and unit["Id"] in units:
            units_on.append(unit["Id"])
    if units_on:
        run([systemctl, "disable", "--now", *units_on])
    return units_on


def remove(path: Path = NOTE) -> list[str]:
    """Remove what was brought; return sentences on what was removed and what was left.

    A package that another one now needs stays. Raises CommandError.
    """
    before = _read(path)
    actions = confinement.set_rule(allow=False)
    brought = installed(before.packages)
    gone = [name for name in brought if _taken_with(name) <= set(brought)]
    while _taken_with(*gone) - set(brought):  # one of several that would do for something else
        gone.pop()
    if gone:
        _apt("--yes", "purge", *gone)
        actions.append(f"removed {', '.join(gone)}")
    if retained := sorted(set(brought) - set(gone)):
        actions.append(f"left {', '.join(retained)}, which other packages need")
    for name in before.files:
        place = Path(name)
        if place.is_dir():
            shutil.rmtree(place)
        elif place.exists():
            place.unlink()
        else:
            continue
        actions.append(f"removed {name}")
    path.unlink(missing_ok=True)
    return actions


def _apt(*arguments: str) -> None:
    """Run apt-get once no other package manager holds its locks; try again if one takes them.

    Unattended upgrades may hold them for long. Raises CommandError.
    """
    while True:
        wait_for_apt()
        try:
            run([*APT, *arguments], timeout_s=LIMIT_S)
        except CommandError:
            if lock_holder() is None:
                raise
        else:
            return


def wait_for_apt(locks: Sequence[Path] = LOCKS, limit_s: float = LIMIT_S) -> None:
    """Wait until apt and dpkg are free, naming who is not; raises CommandError at the limit."""
    begun_s, said_s = time.monotonic(), -SAY_S
    while holder := lock_holder(locks):
        waited_s = time.monotonic() - begun_s
        if waited_s >= limit_s:
            raise CommandError("apt-locked", holder=holder, waited_s=waited_s)
        if waited_s - said_s >= SAY_S:
            print(f"fde: apt is locked by {holder}, waiting.", file=sys.stderr, flush=True)
            said_s = waited_s
        time.sleep(LOOK_S)


def lock_holder(locks: Sequence[Path] = LOCKS) -> str | None:
    """Return `name[pid]` of the process that locked one of these (fcntl(2)); None if free."""
    for path in locks:
        try:
            with path.open("rb+") as file:
                asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                kind, *_, pid = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
        except OSError:
            continue  # not there: no apt has run yet
        if kind != fcntl.F_UNLCK:
            with suppress(OSError):
                return command_name(Path(f"/proc/{pid}"))
            return f"process {pid}"
    return None


def installed(packages: Collection[str]) -> list[str]:
    """Return those of `packages` that dpkg reports as installed."""
    if not packages:
        return []
    show = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *packages]
    lines = run(show, ok=(0, 1)).out.splitlines()
    return sorted({line.split()[0] for line in lines if line.endswith(" installed")})


def _taken_with(*packages: str) -> set[str]:
    """Return all packages that removing these would remove."""
    if not packages:
        return set()
    try:
        return set(GONE.findall(run(["apt-get", "--simulate", "purge", *packages]).out))
    except CommandError:  # apt refuses what the system cannot be without
        return {*packages, "essential"}
