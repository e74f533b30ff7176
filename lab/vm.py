"""The QEMU command of the lab's guest, and what its console says."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from lab.errors import LabError
from lab.image import Image

CPUS = 2
MEMORY_MIB = 3072
TRANSLATED_CODE_MIB = 512  # TCG's cache; its default grows with the host's memory
BOOT_WORDS = b"Loading, please wait..."  # the initrd's first, at every boot
LAST_WORDS = (b"Kernel panic - not syncing", b"Rebooting automatically due to panic=")
ZONES = ("package", "dram")

KERNEL_WORDS = (
    "console=ttyS0 root=/dev/vda rw net.ifnames=0 loglevel=5 panic=10 "
    # Nobody attacks this guest, and under emulation mitigations and audit cost much.
    "mitigations=off apparmor=0 audit=0 random.trust_cpu=on rcupdate.rcu_expedited=1 "
    # Else a busy host makes the kernel doubt its clock and patch itself, which emulation breaks.
    "tsc=reliable "
    # Such a host may keep a sound guest from its watchdog for longer than the image's 30 s, and let
    # it wait longer for its network card than systemd's 90 s.
    "systemd.watchdog_sec=120 systemd.default_device_timeout_sec=600"
)


@dataclass(frozen=True)
class Guest:
    """Everything that QEMU must be told."""

    image: Image
    accelerator: str
    overlay: Path
    console: Path
    qmp: Path
    ssh_port: int
    credentials: Mapping[str, Path]
    kernel_words: Sequence[str]


def qemu_program(name: str = "qemu-system-x86_64") -> str:
    """Path of a QEMU program. Raises LabError if it is missing."""
    found = shutil.which(name)
    if found is None:
        raise LabError(f"the program {name} is missing: run `make packages`")
    return found


def qemu_command(qemu: str, guest: Guest) -> list[str]:
    """The command line; files only, so nothing secret stands on it."""
    forward = f"hostfwd=tcp:127.0.0.1:{guest.ssh_port}-:22"
    # The overlay dies with the lab, so its caches need not reach the host's disk.
    disk = f"if=none,id=root,format=qcow2,cache=unsafe,discard=unmap,file={_escaped(guest.overlay)}"
    accel = (
        "kvm" if guest.accelerator == "kvm" else f"tcg,thread=multi,tb-size={TRANSLATED_CODE_MIB}"
    )
    command = [qemu, "-name", "fde-lab", "-nodefaults", "-no-user-config", "-display", "none"]
    command += ["-machine", "q35", "-accel", accel, "-cpu", "max"]
    command += ["-smp", f"{CPUS},sockets=1,cores={CPUS},threads=1", "-m", str(MEMORY_MIB)]
    command += ["-kernel", str(guest.image.kernel), "-initrd", str(guest.image.initrd)]
    command += ["-append", " ".join([KERNEL_WORDS, *guest.kernel_words])]
    command += ["-drive", disk, "-device", "virtio-blk-pci,drive=root"]
    command += [
        "-netdev",
        f"user,id=net,{forward}",
        "-device",
        "virtio-net-pci,netdev=net,romfile=",
    ]
    # The drives' wire, so that `net` can be taken away like a cable from a machine with disks.
    command += ["-netdev", "user,id=drives,net=10.0.3.0/24"]
    command += ["-device", "virtio-net-pci,netdev=drives,romfile="]
    command += ["-device", "virtio-rng-pci"]
    # A guest that hangs is reset, as a machine with a watchdog would be; it keeps its disk.
    command += ["-device", "i6300esb", "-action", "watchdog=reset"]
    command += ["-chardev", f"file,id=console,path={_escaped(guest.console)}"]
    command += ["-serial", "chardev:console"]
    command += ["-qmp", f"unix:{_escaped(guest.qmp)},server=on,wait=off"]
    for name, file in guest.credentials.items():
        command += ["-fw_cfg", f"name=opt/io.systemd.credentials/{name},file={_escaped(file)}"]
    return command


def _escaped(path: Path) -> str:
    """A path within a comma-separated QEMU option."""
    return str(path).replace(",", ",,")


def make_overlay(image: Image, overlay: Path) -> None:
    """A fresh copy-on-write disk over the image."""
    base = ["-F", "raw", "-b", str(image.root)]
    command = [qemu_program("qemu-img"), "create", "-q", "-f", "qcow2", *base, str(overlay)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"qemu-img could not make the guest's disk: {done.stderr.strip()}")


def rapl_words(power_model: Path) -> list[str]:
    """Kernel words that give fde_rapl_sim the coefficients of the power model, in mW."""
    try:
        rapl = yaml.safe_load(power_model.read_text(encoding="utf-8"))["rapl"]
        names = [f"{z}_{part}" for z in ZONES for part in ("idle_mw", "busy_mw_per_cpu")]
        return [f"fde_rapl_sim.{name}={_milliwatts(rapl[name])}" for name in names]
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise LabError(
            f"{power_model} does not give the RAPL model's coefficients: {error}"
        ) from error


def _milliwatts(value: object) -> int:
    """A coefficient, given plainly or as {value: …, source: …}."""
    if isinstance(value, dict):
        value = value["value"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1_000_000:
        raise ValueError(f"{value!r} is not a power between 0 and 1,000,000 mW")
    return round(value)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def require_free_port(port: int) -> None:
    """Raise LabError if something listens on this port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise LabError(
                f"port {port} for the guest's SSH cannot be used ({error.strerror}); name another "
                "with --ssh-port or leave the choice to the lab"
            ) from error


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log, without control characters; empty if there is none."""
    if not path.exists():
        return ""
    text = path.read_bytes()[-65536:].decode("utf-8", "replace")
    clean = (_printable(line) for line in text.replace("\r", "\n").split("\n"))
    return "\n".join([line for line in clean if line.strip()][-lines:])


def gave_up(console: Path) -> bool:
    """Whether the guest's kernel or initrd said that it cannot go on, and has not booted since."""
    if not console.exists():
        return False
    said = console.read_bytes().rpartition(BOOT_WORDS)[2]
    return any(words in said for words in LAST_WORDS)


def _printable(line: str) -> str:
    return "".join(c for c in line if c.isprintable() or c == "\t").rstrip()
