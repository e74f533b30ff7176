"""Facts about a target, and the reasons why it cannot do what its description asks; read-only."""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path

from agent.system.command import CommandError, program_path, run
from contract.files import json_text
from contract.plan import TargetDocument, read_target
from contract.problem import Problem, wordings_of
from contract.system_text import read_line_or_empty

SUPPORTED = {"debian": ("12", "13"), "ubuntu": ("24.04", "26.04")}
PACKAGES = (
    *("cryptsetup-bin", "dmsetup", "e2fsprogs", "fdisk", "fio", "libargon2-1", "libgcrypt20"),
    *("mplayer", "nvme-cli", "python3", "python3-cryptography", "python3-pycryptodome"),
    *("smartmontools", "sysbench", "tar", "util-linux", "xz-utils"),
)
# What each choice of fde_database is called; any one of the servers will do where none is chosen.
SERVERS = ("mariadb-server", "mysql-server")
DATABASES = {"mariadb": "mariadb-server", "mysql": "mysql-server", "any": "default-mysql-server"}
# What disks that are files need, by program, and Debian's packages of these.
STORAGE_PROGRAMS = {
    "cryptsetup": "cryptsetup-bin",
    "dmsetup": "dmsetup",
    "losetup": "mount",
    "mkfs.ext4": "e2fsprogs",
    "sfdisk": "fdisk",
}
OLDEST_OPAL = (2, 7)
# Before it a range on 4,096-byte blocks cannot be made (its release notes).
OLDEST_OPAL_4K = (2, 7, 2)
OLDEST_HCTR2 = (2, 7, 3)
LISTS = Path("/var/lib/apt/lists")
WORDINGS = wordings_of("agent/system")
ALLOW_TPM = Path("/sys/module/libata/parameters/allow_tpm")


# What has cpupower, which sets governor and turbo.
CPUPOWER = {"debian": "linux-cpupower", "ubuntu": "linux-tools-generic"}


# Storage kinds whose range of a self-encrypting disk locks.
OPAL_KINDS = ("opal", "opal_dmcrypt")


@dataclass(frozen=True)
class Target:
    """Requirements of a target's description on the machine itself.

    `sed_paths` are the by-id paths of self-encrypting disks, `opal` the names of the configurations
    that need one, `hctr2` of those with that cipher; `sets_processor`: whether a suite sets the
    governor or turbo; `only_files`: every disk is a file, so that only what storage needs is
    installed, and any distribution will do that has it.
    """

    sed_paths: tuple[str, ...] = ()
    opal: tuple[str, ...] = ()
    database: str = "any"
    packages: tuple[str, ...] = ()
    sets_processor: bool = False
    hctr2: tuple[str, ...] = ()
    only_files: bool = False

    @classmethod
    def from_target(cls, target: TargetDocument) -> Target:
        """Return the requirements of a resolved description."""
        stacks = target.configurations
        return cls(
            tuple(target.disks[role].by_id for role in self_encrypting(target)),
            tuple(stack.name for stack in stacks if stack.kind in OPAL_KINDS),
            target.database,
            target.packages,
            target.quiet.governor is not None or target.quiet.turbo is not None,
            tuple(s.name for s in stacks if str(s.settings.get("cipher")).startswith("aes-hctr2")),
            bool(target.disks) and all(disk.file for disk in target.disks.values()),
        )


@dataclass(frozen=True)
class Facts:
    """Facts about the machine; `candidates` are the versions that apt would install."""

    uid: int
    distribution: str
    version: str
    name: str
    kernel: str
    machine: str
    python: str
    systemd: bool
    packages: Sequence[str]
    missing: Sequence[str]
    servers: Sequence[str]
    candidates: Mapping[str, str]
    lists: bool
    cryptsetup: str
    hw_opal: bool
    sed_transport: str
    sed_block_bytes: int
    allow_tpm: bool


def packages_for(target: Target, installed: Set[str], distribution: str = "debian") -> list[str]:
    """Return the packages that the target's description asks for."""
    sets = target.sets_processor and distribution in CPUPOWER
    cpupower = [CPUPOWER[distribution]] if sets else []
    servers = [name for name in SERVERS if name in installed]
    any_of_them = target.database == "any" and servers
    server = servers[0] if any_of_them else DATABASES[target.database]
    return sorted([*PACKAGES, server, *cpupower, *target.packages])


def gather(target: Target) -> Facts:
    """Collect all facts that `refusals` judges."""
    lines = read_line_or_empty(Path("/etc/os-release")).splitlines()
    pairs = (line.partition("=") for line in lines)
    release = {key: value.strip('"') for key, _, value in pairs}
    names = [*PACKAGES, *SERVERS, *DATABASES.values(), *CPUPOWER.values(), *target.packages]
    shown = _output("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *names)
    installed = {line.split()[0] for line in shown.splitlines() if line.endswith(" installed")}
    if target.only_files:
        absent = [p for p in STORAGE_PROGRAMS if not shutil.which(p, path=program_path())]
        packages = missing = sorted(STORAGE_PROGRAMS[program] for program in absent)
    else:
        packages = packages_for(target, installed, release.get("ID", ""))
        missing = sorted(set(packages) - installed)
    cryptsetup = _output("cryptsetup", "--version")
    disks = [Path("/sys/block") / Path(path).resolve().name for path in target.sed_paths]
    sizes = [disk / "queue" / "logical_block_size" for disk in disks]
    # What apt would install; its own caches are not written.
    caches = ("-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=")
    policy = _output("apt-cache", *caches, "policy", *missing, "cryptsetup-bin")
    candidates = re.findall(r"^(\S+):\n  Installed: .*\n  Candidate: (\S+)$", policy, re.MULTILINE)
    # Of several self-encrypting disks `ata` needs the most.
    transports = [_transport(path) for path in target.sed_paths]
    return Facts(
        uid=os.geteuid(),
        distribution=release.get("ID", ""),
        version=release.get("VERSION_ID", ""),
        name=release.get("PRETTY_NAME", ""),
        kernel=platform.release(),
        machine=platform.machine(),
        python=platform.python_version(),
        systemd=Path("/run/systemd/system").is_dir(),
        packages=packages,
        missing=missing,
        servers=sorted(installed & set(SERVERS)),
        candidates={name: version for name, version in candidates if version != "(none)"},
        lists=any(LISTS.glob("*Packages*")),
        cryptsetup=_version(cryptsetup),
        hw_opal="HW_OPAL" in cryptsetup,
        sed_transport="ata" if "ata" in transports else next(iter(transports), ""),
        sed_block_bytes=max((int(read_line_or_empty(size) or 0) for size in sizes), default=0),
        allow_tpm=read_line_or_empty(ALLOW_TPM) in ("1", "Y"),
    )


def refusals(target: Target, facts: Facts) -> list[Problem]:
    """Return the reasons why the target cannot do what is asked; empty if it can."""
    return [*_machine(target, facts), *_cryptsetup(target, facts), *_packages(target, facts)]


def _refusal(code: str, **facts: str) -> Problem:
    return Problem.from_wording(WORDINGS, code, facts)


def _machine(target: Target, facts: Facts) -> list[Problem]:
    problems = []
    if facts.uid != 0:
        problems.append(_refusal("not-root"))
    is_supported = facts.version in SUPPORTED.get(facts.distribution, ())
    if target.only_files and facts.missing and not is_supported:
        packages = ", ".join(facts.missing)
        problems.append(_refusal("programs", name=facts.name or "this system", packages=packages))
    elif not (target.only_files or is_supported):
        problems.append(_refusal("distribution", name=facts.name or "Its distribution"))
    if facts.machine != "x86_64":
        problems.append(_refusal("machine", machine=facts.machine))
    if not facts.systemd:
        problems.append(_refusal("no-systemd"))
    return problems


def _cryptsetup(target: Target, facts: Facts) -> list[Problem]:
    """Check cryptsetup's version and Opal support, and that the kernel lets commands pass."""
    problems = []
    version, offered = facts.cryptsetup, _version(facts.candidates.get("cryptsetup-bin", ""))
    version_used, block_bytes = version or offered, facts.sed_block_bytes
    if target.hctr2 and version_used and _numbers(version_used) < OLDEST_HCTR2:
        named = {"version": version_used, "asked": ", ".join(target.hctr2)}
        problems.append(_refusal("cryptsetup-cipher", **named))
    asked = ", ".join(target.opal)
    if not asked:
        return problems
    if version:
        if _numbers(version) < OLDEST_OPAL or not facts.hw_opal:
            problems.append(_refusal("cryptsetup", version=version, asked=asked))
    elif offered and _numbers(offered) < OLDEST_OPAL:
        named = {"name": facts.name, "version": offered}
        problems.append(_refusal("cryptsetup-offered", asked=asked, **named))
    numbers = _numbers(version_used)
    if block_bytes > 512 and OLDEST_OPAL <= numbers < OLDEST_OPAL_4K:
        sizes = {"version": version_used, "block_bytes": str(block_bytes)}
        problems.append(_refusal("cryptsetup-blocks", asked=asked, **sizes))
    if facts.sed_transport == "ata" and not facts.allow_tpm:
        problems.append(_refusal("allow-tpm"))
    return problems


def _packages(target: Target, facts: Facts) -> list[Problem]:
    problems = []
    database = target.database
    for server in facts.servers:
        if database != "any" and server != DATABASES[database]:
            choice = next(choice for choice, name in DATABASES.items() if name == server)
            names = {"other": server, "wanted": DATABASES[database], "choice": choice}
            problems.append(_refusal("other-database", **names))
    for package in facts.missing:
        if facts.candidates.get(package):
            continue
        # Without package lists nothing has a candidate; Debian is known to have no MySQL.
        absent = package == "mysql-server" and facts.distribution == "debian"
        if package == "mysql-server" and (facts.lists or absent):
            problems.append(_refusal("no-mysql", name=facts.name))
        elif facts.lists:
            problems.append(_refusal("no-package", name=facts.name, package=package))
    return problems


def _output(*command: str) -> str:
    """Return standard output of a command, whatever its exit code; empty if it is missing."""
    try:
        return run(command, ok=range(256)).out
    except CommandError:
        return ""


def self_encrypting(target: TargetDocument) -> list[str]:
    """Return the roles of disks called sed, or with a configuration of the kind `opal`."""
    opal = {entry.disk for entry in target.configurations if entry.kind in OPAL_KINDS}
    return [role for role in target.disks if role == "sed" or role in opal]


def _transport(by_id: str) -> str:
    """Return `nvme`, `ata` or `scsi`; empty if there is no such disk."""
    path = Path(by_id)
    if not by_id or not path.exists():
        return ""
    name = path.resolve().name
    if name.startswith("nvme"):
        return "nvme"
    vendor = read_line_or_empty(Path("/sys/block") / name / "device" / "vendor")
    return "ata" if vendor == "ATA" else "scsi"


def _version(text: str) -> str:
    """Return the first `1.2` or `1.2.3` in a text; a Debian epoch (`2:`) does not count."""
    match = re.search(r"\d+(\.\d+){1,2}", text)
    return match[0] if match else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def main() -> None:
    """Print {"facts", "refusals"} as one line of JSON."""
    parser = argparse.ArgumentParser(prog="python3 -m agent.preflight", description=__doc__)
    parser.add_argument("--target", type=Path, required=True)
    target = Target.from_target(read_target(parser.parse_args().target))
    facts = gather(target)
    problems = [refusal.document() for refusal in refusals(target, facts)]
    print(json_text({"facts": asdict(facts), "refusals": problems}))


if __name__ == "__main__":
    main()
