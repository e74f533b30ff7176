"""What this machine offers for `fde here`: its sources, the folder's storage, its programs.

Nothing is changed and no rights of root are needed.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.preflight import STORAGE_PROGRAMS, SUPPORTED
from agent.storage import backing
from agent.storage.backing import Backing
from agent.system.command import CommandError, program_path, run
from agent.system.virtual_lab import SIMULATED_RAPL, lab_word
from contract import system_text
from contract.errors import ControllerError
from contract.measured_command import Origin
from contract.problem import wordings_of
from instrumentation.sources import registry
from workloads.children.kernel_ciphers import driver
from workloads.crypt import catalogue

MODULES = {"loop": "loop", "dm_crypt": "dm-crypt"}
POWER = Path("/sys/class/power_supply")
CONTAINER_FILES = (Path("/.dockerenv"), Path("/run/.containerenv"))
# Entries of the suite that are measured only if all of their programs are installed.
OPTIONAL = {
    "sql": ("sysbench", "mariadbd mysqld"),
    "video": ("mplayer", "ffmpeg"),
    "package_upgrade": ("dpkg", "dpkg-deb"),
}
SOURCES = {"powercap": "RAPL (processor, perhaps memory)", "battery": "the battery, to compare"}
AES_128_OR_256 = "aes-xts-plain64"
MIB = 2**20


class HereError(ControllerError):
    """This machine or folder cannot be measured by `fde here`."""

    WORDINGS = wordings_of("controller/here", "HereError")


@dataclass(frozen=True)
class Machine:
    """This machine: energy `sources` by name, whether it runs `on_battery`, storage, programs.

    `missing_packages` are Debian's names of what storage needs; `can_install` whether they can be
    installed here. `left_out` are entries of the suite, with the programs that they lack.
    `default_cipher` is cryptsetup's own, None without cryptsetup. `aes_driver` is the kernel's for
    AES in XTS, empty if none is loaded.
    """

    name: str
    system: str
    kernel: str
    origin: Origin
    sources: tuple[str, ...]
    on_battery: bool
    folder: Path
    storage: Backing
    free_bytes: int
    aes_driver: str
    has_aes: bool
    busy_share: float
    missing_packages: tuple[str, ...]
    can_install: bool
    left_out: dict[str, tuple[str, ...]]
    default_cipher: tuple[str, int] | None


def survey(folder: Path) -> Machine:
    """Examine this machine; raises HereError with every reason why it cannot be measured."""
    folder = folder.absolute()
    if not folder.is_dir():
        raise HereError("no-folder", folder=folder)
    folder = folder.resolve()
    release = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    lab = lab_word("fde.machine", system_text.read_line_or_empty(Path("/proc/cmdline")))
    missing = [program for program in STORAGE_PROGRAMS if not _installed(program)]
    machine = Machine(
        name=platform.node().partition(".")[0],
        system=release.get("PRETTY_NAME", "an unknown system"),
        kernel=platform.release(),
        origin="modelled" if lab is not None or SIMULATED_RAPL.exists() else "measured",
        sources=tuple(name for name in SOURCES if registry.is_present(name)),
        on_battery=any(
            system_text.read_line_or_empty(path) == "Discharging" for path in POWER.glob("*/status")
        ),
        folder=folder,
        storage=backing.describe(folder),
        free_bytes=backing.free_bytes(folder),
        aes_driver=driver("xts(aes)", system_text.read(Path("/proc/crypto"))),
        has_aes=catalogue.present(),
        busy_share=os.getloadavg()[0] / (os.cpu_count() or 1),
        missing_packages=tuple(sorted(STORAGE_PROGRAMS[program] for program in missing)),
        can_install=release.get("VERSION_ID", "") in SUPPORTED.get(release.get("ID", ""), ()),
        left_out=dict(_left_out()),
        default_cipher=_default_cipher(),
    )
    if refusals := list(_refusals(machine)):
        raise HereError(*refusals)
    return machine


def _installed(program: str) -> bool:
    return shutil.which(program, path=program_path()) is not None


def _left_out() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the entries that cannot be measured here, with the programs that are missing."""
    for entry, programs in OPTIONAL.items():
        lacking = (p for p in programs if not any(map(_installed, p.split())))
        if missing := tuple(program.replace(" ", " or ") for program in lacking):
            yield entry, missing


def _default_cipher() -> tuple[str, int] | None:
    """Return the cipher and key bits that cryptsetup uses by default, if other than AES in XTS."""
    try:
        printed = run(["cryptsetup", "--help"], ok=range(256)).out
    except CommandError:
        return None
    match = re.search(r"LUKS: ([\w-]+), Key: (\d+) bits", printed)
    return (match[1], int(match[2])) if match and match[1] != AES_128_OR_256 else None


def _refusals(machine: Machine) -> Iterator[HereError]:
    if any(path.exists() for path in CONTAINER_FILES) or "container" in os.environ:
        yield HereError("container")
    if os.geteuid() and not _installed("sudo"):
        yield HereError("no-sudo")
    if "powercap" not in machine.sources:
        yield HereError("no-source", system=machine.system)
    if (kind := backing.unfit(machine.folder)) is not None:
        yield HereError("unfit", folder=machine.folder, type=kind)
    for module, name in MODULES.items():
        if not _kernel_has(module):
            yield HereError("no-module", module=name, kernel=machine.kernel)
    if machine.missing_packages and not machine.can_install:
        packages = ", ".join(machine.missing_packages)
        yield HereError("programs", packages=packages, system=machine.system)


def _kernel_has(module: str) -> bool:
    """Return whether a module is in the kernel, loaded or can be loaded."""
    folder = Path("/lib/modules") / platform.release()
    lists = (folder / name for name in ("modules.builtin", "modules.dep"))
    pattern = rf"/{module.replace('_', '[-_]')}\.ko"
    listed = any(re.search(pattern, system_text.read(path)) for path in lists if path.exists())
    return listed or Path("/sys/module", module).exists() or not folder.exists()


def describe(machine: Machine, minutes: float, size_bytes: int) -> Iterator[str]:
    """Yield lines that announce the measurement, its duration and its limits."""
    power = "on battery" if machine.on_battery else "on mains"
    yield f"machine   {machine.name}, {machine.system}, Linux {machine.kernel}, {power}"
    yield f"energy    {', '.join(SOURCES[name] for name in machine.sources)}"
    below = ", ".join(machine.storage.layers) or "no disk that the kernel shows"
    kind = machine.storage.filesystem
    free = f"{machine.free_bytes / 2**30:.1f} GiB free"
    yield f"storage   {machine.folder} is {kind} on {below}; {free}"
    aes = "with" if machine.has_aes else "without"
    by = machine.aes_driver or "a driver not loaded yet"
    yield f"cipher    AES-XTS by {by}; processor {aes} AES instructions"
    file = f"a file of {size_bytes // MIB} MiB there"
    yield f"plan      {file}, with dm-crypt and without, about {minutes:g} minutes"
    if machine.missing_packages:
        yield f"installs  {', '.join(machine.missing_packages)}; removed again at the end"
    for entry, programs in machine.left_out.items():
        yield f"left out  {entry}: {' and '.join(programs)} not installed"
    for limit in limits(machine):
        yield f"note      {limit}"


NO_METER = "RAPL sees processor and memory only: whole machine and battery need --meter."


def limits(machine: Machine) -> Iterator[str]:
    """Yield a sentence for each circumstance that limits the answer."""
    if machine.on_battery:
        yield "On battery the firmware saves power: on mains the figures may differ."
    if "dm-crypt" in machine.storage.layers:
        yield "This folder is already encrypted: a second layer of encryption is measured."
    if machine.storage.copies_on_write:
        yield f"{machine.storage.filesystem} copies on write; the file is excluded from that."
    if "USB disk" in machine.storage.layers:
        yield "The disk is connected by USB."
    if machine.busy_share > 0.2:
        yield f"The machine is busy ({machine.busy_share:.0%}): close programs, or wait."
