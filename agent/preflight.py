"""What a target is and has, and why it could not do what its description asks; changes nothing.

It must load on the old Python that it is to refuse, so it stands alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SUPPORTED = {"debian": ("12", "13"), "ubuntu": ("24.04",)}
PACKAGES = (
    *("cryptsetup-bin", "dmsetup", "e2fsprogs", "fdisk", "fio", "libargon2-1", "libgcrypt20"),
    *("mplayer", "nvme-cli", "python3", "python3-cryptography", "python3-pycryptodome"),
    *("smartmontools", "sysbench", "tar", "util-linux", "xz-utils"),
)
# What each choice of fde_database is called; any one of the servers will do where none is chosen.
SERVERS = ("mariadb-server", "mysql-server")
DATABASES = {
    "mariadb": "mariadb-server",
    "mysql": "mysql-server",
    "any": "default-mysql-server",
}
OLDEST_OPAL = (2, 7)
# Before it a range on 4,096-byte blocks cannot be made (its release notes).
OLDEST_OPAL_4K = (2, 7, 2)
OLDEST_HCTR2 = (2, 7, 3)
LISTS = Path("/var/lib/apt/lists")
ALLOW_TPM = Path("/sys/module/libata/parameters/allow_tpm")


# What has cpupower, which sets governor and turbo.
CPUPOWER = {"debian": "linux-cpupower", "ubuntu": "linux-tools-generic"}


# Storage kinds whose range of a self-encrypting disk locks.
OPAL_KINDS = ("opal", "opal_dmcrypt")


@dataclass(frozen=True)
class Target:
    """What a target's description asks of the machine itself.

    `sed_paths` are the by-id paths of self-encrypting disks, `opal` the names of the configurations
    that need one, `hctr2` of those with that cipher; `sets_processor`: whether a suite sets the
    governor or turbo.
    """

    sed_paths: tuple[str, ...] = ()
    opal: tuple[str, ...] = ()
    database: str = "any"
    packages: tuple[str, ...] = ()
    sets_processor: bool = False
    hctr2: tuple[str, ...] = ()

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Target:
        """Read a target.json that `contract.plan` has checked."""
        quiet = document.get("quiet") or {}
        stacks = document["configurations"]
        return cls(
            tuple(document["disks"][role]["by_id"] for role in self_encrypting(document)),
            tuple(stack["name"] for stack in stacks if stack["kind"] in OPAL_KINDS),
            document.get("database", "any"),
            tuple(document.get("packages", ())),
            quiet.get("governor") is not None or quiet.get("turbo") is not None,
            tuple(s["name"] for s in stacks if str(s.get("cipher")).startswith("aes-hctr2")),
        )


@dataclass(frozen=True)
class Facts:
    """What the machine is and has; `candidates` are the versions that apt would install."""

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


@dataclass(frozen=True)
class Refusal:
    """The fields of a `contract.problem.Problem`, which an old Python cannot load."""

    code: str
    facts: Mapping[str, str]
    sentence: str
    remedy: str


def wanted(target: Target, installed: Set[str], distribution: str = "debian") -> list[str]:
    """Return the packages that the target's description asks for."""
    sets = target.sets_processor and distribution in CPUPOWER
    cpupower = [CPUPOWER[distribution]] if sets else []
    servers = [name for name in SERVERS if name in installed]
    any_of_them = target.database == "any" and servers
    server = servers[0] if any_of_them else DATABASES[target.database]
    return sorted([*PACKAGES, server, *cpupower, *target.packages])


def gather(target: Target) -> Facts:
    """Collect all facts that `refusals` judges."""
    lines = (_text(Path("/etc/os-release")) or "").splitlines()
    pairs = (line.partition("=") for line in lines)
    release = {key: value.strip('"') for key, _, value in pairs}
    names = [*PACKAGES, *SERVERS, *DATABASES.values(), *CPUPOWER.values(), *target.packages]
    shown = _output("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *names)
    installed = {line.split()[0] for line in shown.splitlines() if line.endswith(" installed")}
    packages = wanted(target, installed, release.get("ID", ""))
    missing = sorted(set(packages) - installed)
    cryptsetup = _output("cryptsetup", "--version")
    disks = [Path("/sys/block") / Path(path).resolve().name for path in target.sed_paths]
    sizes = [disk / "queue" / "logical_block_size" for disk in disks]
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
        candidates=_candidates([*missing, "cryptsetup-bin"]),
        lists=any(LISTS.glob("*Packages*")),
        cryptsetup=_version(cryptsetup),
        hw_opal="HW_OPAL" in cryptsetup,
        sed_transport="ata" if "ata" in transports else next(iter(transports), ""),
        sed_block_bytes=max((int(_text(size) or 0) for size in sizes), default=0),
        allow_tpm=_text(ALLOW_TPM) in ("1", "Y"),
    )


_OPAL_REMEDY = (
    "Use Debian 13 or Ubuntu 24.04, or take these configurations out of fde_configurations: "
    "{asked}."
)
# By code: the sentence of a refusal and its remedy, which its facts fill.
WORDINGS = {
    "not-root": (
        "The agent is not root there, and must be to write disks and read RAPL.",
        "Set ansible_become: true, for root's rights by sudo, or ansible_user: root.",
    ),
    "distribution": ("{name} is not supported.", "Use Debian 12 or 13, or Ubuntu 24.04."),
    "machine": ("It is a {machine} machine.", "Use an x86-64 one: no other has RAPL."),
    "no-systemd": (
        "The agent is a systemd service, and systemd does not run there.",
        "Boot it with systemd.",
    ),
    "cryptsetup": (
        "Its cryptsetup {version} has no Opal support (HW_OPAL, from 2.7 on).",
        _OPAL_REMEDY,
    ),
    "cryptsetup-offered": (
        "{name} would install cryptsetup {version}, which has no Opal support (HW_OPAL, from 2.7 "
        "on).",
        _OPAL_REMEDY,
    ),
    "cryptsetup-blocks": (
        "Its cryptsetup {version} cannot make a locking range on a disk with blocks of "
        "{block_bytes} bytes (2.7.2 and newer can).",
        "Install a newer one, format the disk for blocks of 512 bytes (nvme format erases it), or "
        "take these configurations out of fde_configurations: {asked}.",
    ),
    "cryptsetup-cipher": (
        "Its cryptsetup {version} has no HCTR2 (2.7.3 and newer have).",
        "Install a newer one, or take these configurations out of fde_configurations: {asked}.",
    ),
    "allow-tpm": (
        "The self-encrypting disk is on SATA, where Linux lets no Opal command through unless it "
        "was booted with libata.allow_tpm=1.",
        "Add that to the kernel's command line, then reboot.",
    ),
    "other-database": (
        "{other} is installed there, and {wanted} would replace it.",
        "Remove it yourself, or set fde_database: {choice}.",
    ),
    "no-mysql": (
        "{name} has no mysql-server.",
        "Set fde_database: mariadb, or add MySQL's own package source there.",
    ),
    "no-package": (
        "{name} offers no package {package}.",
        "Enable the component that has it (universe on Ubuntu), or run apt-get update there.",
    ),
}


def refusals(target: Target, facts: Facts) -> list[Refusal]:
    """Judge whether the target can do what is asked; empty if it can."""
    return [*_machine(facts), *_cryptsetup(target, facts), *_packages(target, facts)]


def _refusal(code: str, **facts: str) -> Refusal:
    sentence, remedy = (text.format(**facts) for text in WORDINGS[code])
    return Refusal(code, facts, sentence, remedy)


def _machine(facts: Facts) -> list[Refusal]:
    problems = []
    if facts.uid != 0:
        problems.append(_refusal("not-root"))
    if facts.version not in SUPPORTED.get(facts.distribution, ()):
        problems.append(_refusal("distribution", name=facts.name or "Its distribution"))
    if facts.machine != "x86_64":
        problems.append(_refusal("machine", machine=facts.machine))
    if not facts.systemd:
        problems.append(_refusal("no-systemd"))
    return problems


def _cryptsetup(target: Target, facts: Facts) -> list[Refusal]:
    """Opal needs cryptsetup 2.7 built with HW_OPAL, and a kernel that lets commands through."""
    problems = []
    version, offered = facts.cryptsetup, _version(facts.candidates.get("cryptsetup-bin", ""))
    known, block_bytes = version or offered, facts.sed_block_bytes
    if target.hctr2 and known and _numbers(known) < OLDEST_HCTR2:
        named = {"version": known, "asked": ", ".join(target.hctr2)}
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
    if known and OLDEST_OPAL <= _numbers(known) < OLDEST_OPAL_4K and block_bytes > 512:
        sizes = {"version": known, "block_bytes": str(block_bytes)}
        problems.append(_refusal("cryptsetup-blocks", asked=asked, **sizes))
    if facts.sed_transport == "ata" and not facts.allow_tpm:
        problems.append(_refusal("allow-tpm"))
    return problems


def _packages(target: Target, facts: Facts) -> list[Refusal]:
    problems = []
    database = target.database
    for other in facts.servers:
        if database != "any" and other != DATABASES[database]:
            choice = next(choice for choice, name in DATABASES.items() if name == other)
            names = {"other": other, "wanted": DATABASES[database], "choice": choice}
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


def _candidates(packages: list[str]) -> dict[str, str]:
    """Return what apt would install, by package; apt's own caches are not written."""
    policy = _output(
        *("apt-cache", "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="),
        *("policy", *packages),
    )
    candidates = re.findall(r"^(\S+):\n  Installed: .*\n  Candidate: (\S+)$", policy, re.MULTILINE)
    return {name: version for name, version in candidates if version != "(none)"}


def self_encrypting(target: Mapping[str, Any]) -> list[str]:
    """Return the disks that are called sed, or that a configuration of the kind `opal` lies on."""
    stacks = target.get("configurations", ())
    opal = {entry["disk"] for entry in stacks if entry["kind"] in OPAL_KINDS}
    return [role for role in target["disks"] if role == "sed" or role in opal]


def _transport(by_id: str) -> str:
    """`nvme`, `ata` or `scsi`; empty where there is no such disk."""
    path = Path(by_id)
    if not by_id or not path.exists():
        return ""
    name = path.resolve().name
    if name.startswith("nvme"):
        return "nvme"
    vendor = _text(Path("/sys/block") / name / "device" / "vendor")
    return "ata" if vendor == "ATA" else "scsi"


def _version(text: str) -> str:
    """Return the first `1.2` or `1.2.3` in a text; a Debian epoch (`2:`) is none."""
    match = re.search(r"\d+(\.\d+){1,2}", text)
    return match[0] if match else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", "backslashreplace").strip()
    except OSError:
        return None


def _output(*command: str) -> str:
    """Return standard output of a command, whatever its exit code; empty if it is not there."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin"
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C", "PATH": path},
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.decode("utf-8", "backslashreplace")


def main() -> int:
    """Print {"facts", "refusals"} as one line of JSON."""
    parser = argparse.ArgumentParser(prog="python3 -m agent.preflight", description=__doc__)
    parser.add_argument("--target", type=Path, required=True)
    text = parser.parse_args().target.read_text(encoding="utf-8")
    target = Target.from_document(json.loads(text))
    facts = gather(target)
    problems = [asdict(refusal) for refusal in refusals(target, facts)]
    print(json.dumps({"facts": asdict(facts), "refusals": problems}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
