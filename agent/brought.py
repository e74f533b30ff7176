"""What provisioning brings to a target: packages and files, noted before they come, removed later.

The note is written first, so that nothing is forgotten where an installation is interrupted.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from agent import confinement
from agent.command import CommandError, run
from agent.quiet import noted, properties
from contract.files import write_json
from contract.strict_json import read_object

NOTE = Path("/var/lib/fde-testbed/brought.json")
# As `apt-get --simulate` prints what it would do: a new package has no version in brackets.
NEW = re.compile(r"^Inst (\S+) \(", re.MULTILINE)
GONE = re.compile(r"^(?:Remv|Purg) (\S+) ", re.MULTILINE)
UNIT = re.compile(r"/(?:usr/)?lib/systemd/system/([^/@]+\.(?:service|socket|timer))")
LIMIT_S = 1800.0
POLICY = Path("/usr/sbin/policy-rc.d")
# Another apt is waited for; changed configuration files stay.
APT = (
    *("-o", "DPkg::Lock::Timeout=60"),
    *("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"),
)


def note(packages: Sequence[str], files: Sequence[str] = (), path: Path = NOTE) -> bool:
    """Note what comes with these packages and is not there yet, and files; whether that is more."""
    come: set[str] = set()
    if packages:
        argv = ["apt-get", "--simulate", "--no-install-recommends", "install", *packages]
        come = set(NEW.findall(run(argv).out))
    before = read_object(path)
    packages_now = sorted({*noted(before, "packages"), *come})
    files_now = sorted({*noted(before, "files"), *(f for f in files if not Path(f).exists())})
    if (packages_now, files_now) == (noted(before, "packages"), noted(before, "files")):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"packages": packages_now, "files": files_now})
    return True


def install(packages: Sequence[str], path: Path = NOTE, policy: Path = POLICY) -> list[str]:
    """Install packages, none of whose services starts now or at boot; returns what was done.

    Raises CommandError. Services are held back by policy-rc.d, as Debian's policy (9.3.3) has it;
    one that is there already is left as it is.
    """
    run(["apt-get", *APT, "--quiet", "update"], timeout_s=LIMIT_S)
    note(packages, [str(policy)], path)
    ours = str(policy) in noted(read_object(path), "files")
    try:
        if ours:
            policy.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
            policy.chmod(0o755)
        argv = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *APT, "--yes"]
        run([*argv, "--no-install-recommends", "install", *packages], timeout_s=LIMIT_S)
    finally:
        if ours:
            policy.unlink(missing_ok=True)
    return [f"installed {', '.join(packages)}", *(f"switched off {u}" for u in silence(path=path))]


def silence(systemctl: str = "systemctl", path: Path = NOTE) -> list[str]:
    """Stop the services and timers that came with these packages, and keep them from starting at
    boot: a database server draws power. Returns those that were active or enabled."""
    packages = installed(noted(read_object(path), "packages"))
    if not packages:
        return []
    units = sorted(set(UNIT.findall(run(["dpkg", "-L", *packages]).out)))
    if not units:
        return []
    show = ["show", "--property=Id,ActiveState,UnitFileState", *units]
    found = []
    for unit in properties(run([systemctl, *show]).out):
        on = unit.get("ActiveState") == "active" or unit.get("UnitFileState") == "enabled"
        if on and unit["Id"] in units:
            found.append(unit["Id"])
    if found:
        run([systemctl, "disable", "--now", *found])
    return found


def remove(path: Path = NOTE) -> list[str]:
    """Take away what was brought; returns sentences on what was done, and on what was left.

    A package that something else needs by now stays. Raises CommandError.
    """
    before = read_object(path)
    said = confinement.revoke()
    brought = installed(noted(before, "packages"))
    gone = [name for name in brought if _taken_with(name) <= set(brought)]
    while _taken_with(*gone) - set(brought):  # one of several that would do for something else
        gone.pop()
    if gone:
        argv = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *APT, "--yes", "purge", *gone]
        run(argv, timeout_s=LIMIT_S)
        said.append(f"removed {', '.join(gone)}")
    if left := sorted(set(brought) - set(gone)):
        said.append(f"left {', '.join(left)}, which other packages need")
    for name in noted(before, "files"):
        place = Path(name)
        if place.is_dir():
            shutil.rmtree(place)
        elif place.exists():
            place.unlink()
        else:
            continue
        said.append(f"removed {name}")
    path.unlink(missing_ok=True)
    return said


def installed(packages: Collection[str]) -> list[str]:
    """Of these."""
    if not packages:
        return []
    show = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *packages]
    lines = run(show, ok=(0, 1)).out.splitlines()
    return sorted({line.split()[0] for line in lines if line.endswith(" installed")})


def _taken_with(*packages: str) -> set[str]:
    """All that is removed where these are."""
    if not packages:
        return set()
    try:
        return set(GONE.findall(run(["apt-get", "--simulate", "purge", *packages]).out))
    except CommandError:  # apt refuses what the system cannot be without
        return {*packages, "essential"}
