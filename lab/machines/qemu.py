"""Run the guest in QEMU, with KVM or emulated, and control it by QMP."""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from contract.errors import LabError
from contract.files import write_json
from contract.strict_json import read_object
from lab.cache import Say
from lab.host_time import HostPage
from lab.image import Image
from lab.launcher import READY_LIMIT_S, Launcher, tail, wait_for
from lab.machines.base import DEBIAN_KERNEL, OVERLAY, TWO_CPUS, WATCHDOG, Guest
from lab.network import Network
from lab.state import GuestState, Running, cache_dir

if TYPE_CHECKING:
    from qemu.qmp import QMPClient

QMP_LIMIT_S = 20.0


def execute(path: Path, command: str, **arguments: object) -> object:
    """Return QEMU's answer to a command on its socket `path`; raise LabError without one."""
    return _talk(path, QMP_LIMIT_S, command, lambda qmp: qmp.execute(command, arguments))


def wait_for_event(path: Path, event: str, limit_s: float, begin: Callable[[], None]) -> None:
    """Call `begin`, and wait until QEMU reports the event that follows from it.

    Raises LabError if none arrives within `limit_s`.
    """

    async def wait(qmp: QMPClient) -> None:
        with qmp.listener(event) as events:
            await asyncio.to_thread(begin)
            await events.get()

    _talk(path, limit_s, event, wait)


def _talk(
    path: Path, limit_s: float, action: str, talk: Callable[[QMPClient], Awaitable[object]]
) -> object:
    from qemu.qmp import QMPClient  # slow to import, and User Mode Linux needs none
    from qemu.qmp.error import QMPError

    async def session() -> object:
        qmp = QMPClient()
        await qmp.connect(str(path))
        try:
            return await talk(qmp)
        finally:
            with suppress(EOFError):  # QEMU may have ended meanwhile
                await qmp.disconnect()

    try:
        return asyncio.run(asyncio.wait_for(session(), limit_s))
    except (OSError, TimeoutError, EOFError, QMPError) as error:
        raise LabError(f"QEMU did not do {action} on {path}: {error or 'no answer'}") from error


def vcpu_thread_ids(path: Path) -> list[int]:
    """Return the host thread ids of the guest's CPUs, in the order of the CPUs."""
    cpus = cast("list[dict[str, int]]", execute(path, "query-cpus-fast"))
    return [cpu["thread-id"] for cpu in sorted(cpus, key=lambda cpu: cpu["cpu-index"])]


DEVICE = Path("/dev/kvm")
LIMIT_S = 25.0
PROOF = b"Run /init as init process"


def why_not(qemu: str, image: Image, cache: Path, say: Say) -> str | None:
    """Return why KVM does not work here, or None; probe once per machine and QEMU version."""
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return f"{DEVICE} cannot be opened"  # not cached: joining the group kvm fixes it
    key = machine_key(qemu)
    memory = cache / "kvm.json"
    outcomes = read_object(memory)
    if key not in outcomes:
        say("lab: trying whether KVM runs the guest's kernel")
        outcomes[key] = boots(qemu, image)
        cache.mkdir(parents=True, exist_ok=True)
        write_json(memory, outcomes)
    return None if outcomes[key] else "KVM does not run the guest's kernel on this machine"


def machine_key(qemu: str) -> str:
    """Return a name for this machine, its kernel and its QEMU that is the same at every boot."""
    version = subprocess.run([qemu, "--version"], capture_output=True, text=True, check=False)
    machine_id = Path("/etc/machine-id")
    parts = (
        machine_id.read_text(encoding="utf-8") if machine_id.exists() else platform.node(),
        platform.release(),
        version.stdout,
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def boots(qemu: str, image: Image, limit_s: float = LIMIT_S) -> bool:
    """Start the guest's kernel under KVM; return whether it starts /init within the limit."""
    command = [qemu, "-accel", "kvm", "-cpu", "max", "-m", "512", "-nodefaults", "-no-user-config"]
    command += ["-display", "none", "-no-reboot", "-monitor", "none"]
    command += ["-kernel", str(image.kernel), "-initrd", str(image.initrd)]
    with tempfile.TemporaryDirectory(prefix="fde-kvm-") as scratch:
        serial = Path(scratch) / "serial"
        command += ["-serial", f"file:{serial}", "-append", "console=ttyS0 panic=-1"]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                wait_for(lambda: process.poll() is not None or PROOF in _read(serial), limit_s)
            finally:
                process.kill()
        return PROOF in _read(serial)


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


CPUS = 2
MEMORY_MIB = 3072
TRANSLATED_CODE_MIB = 512  # TCG's cache; its default grows with the host's memory

KERNEL_WORDS = (
    "console=ttyS0 root=/dev/vda rw net.ifnames=0 loglevel=5 panic=10 "
    # Mitigations and audit are slow under emulation, and nobody attacks this guest.
    "mitigations=off apparmor=0 audit=0 random.trust_cpu=on rcupdate.rcu_expedited=1 "
    # On a busy host the kernel would distrust its clock and patch itself, which emulation breaks.
    "tsc=reliable "
    # On a busy host a working guest may miss its watchdog for longer than the image's 30 s, and
    # wait for its network card for longer than systemd's 90 s.
    "systemd.watchdog_sec=120 systemd.default_device_timeout_sec=600"
)


class Qemu:
    """QEMU with one accelerator: `kvm` or `tcg`."""

    abilities = frozenset({WATCHDOG, TWO_CPUS, DEBIAN_KERNEL})
    needs_wires = False
    on_one_processor = False

    def __init__(self, name: str) -> None:
        self.name = name

    def why_not(self, image: Image, say: Say) -> str | None:
        """Return why this accelerator does not work here; TCG works if QEMU is installed."""
        try:
            qemu = program()
        except LabError as error:
            return str(error)
        return why_not(qemu, image, cache_dir(), say) if self.name == "kvm" else None

    def address(self, guest: Guest) -> tuple[str, int]:
        """Return a loopback port that QEMU forwards to the guest."""
        return "127.0.0.1", guest.ssh_port

    def prepare(self, guest: Guest) -> list[str]:
        """Create the guest's root disk; return the command that starts it. Raises LabError."""
        overlay = guest.folder / OVERLAY
        make_overlay(guest.image, overlay)
        return guest.network.enter(qemu_command(program(), self.name, guest, overlay))

    def start(self, launcher: Launcher, command: Sequence[str]) -> Running:
        """Start QEMU and wait until it answers. Raises LabError with its last lines."""
        socket = launcher.sockets / "qmp"
        socket.unlink(missing_ok=True)
        process = launcher.start("guest", command)
        wait_for(lambda: socket.exists() or process.poll() is not None, READY_LIMIT_S)
        if not socket.exists():
            log = tail(launcher.layout.directory / "guest.log")
            raise LabError(f"QEMU did not start; its last lines:\n{log}")
        return {"pid": process.pid, "vcpu_tids": vcpu_thread_ids(socket), "qmp": str(socket)}

    def reset(self, _launcher: Launcher, guest: GuestState) -> Running:
        """Press QEMU's reset button: the guest restarts at once, its drives stay on."""
        execute(Path(guest["qmp"]), "system_reset")
        return {"pid": guest["pid"], "vcpu_tids": guest["vcpu_tids"], "qmp": guest["qmp"]}

    def set_network(self, guest: GuestState, _network: Network, *, up: bool) -> None:
        """Plug in or unplug the guest's network, by the link of its first card."""
        execute(Path(guest["qmp"]), "set_link", name="net", up=up)

    def provenance(self) -> dict[str, str | float]:
        version = subprocess.run(
            [program(), "--version"], capture_output=True, text=True, check=False
        ).stdout
        return {"emulator": version.splitlines()[0] if version else ""}


def program(name: str = "qemu-system-x86_64") -> str:
    """Return the path of a QEMU program. Raises LabError if it is missing."""
    path = shutil.which(name)
    if path is None:
        raise LabError(f"the program {name} is missing: run `make packages`")
    return path


def qemu_command(qemu: str, accelerator: str, guest: Guest, overlay: Path) -> list[str]:
    """Return the command line; it names only files, so it contains no secrets."""
    forward = f"hostfwd=tcp:127.0.0.1:{guest.ssh_port}-:22"
    # The overlay is removed with the lab, so it need not reach the host's disk. Guests of User Mode
    # Linux also read the image, with a lock that QEMU would take for a writer's.
    disk = "if=none,id=root,format=qcow2,cache=unsafe,discard=unmap,backing.file.locking=off"
    disk += f",file={_escaped(overlay)}"
    accel = "kvm" if accelerator == "kvm" else f"tcg,thread=multi,tb-size={TRANSLATED_CODE_MIB}"
    command = [qemu, "-name", "fde-lab", "-nodefaults", "-no-user-config", "-display", "none"]
    command += ["-machine", "q35", "-accel", accel, "-cpu", "max"]
    command += ["-smp", f"{CPUS},sockets=1,cores={CPUS},threads=1", "-m", str(MEMORY_MIB)]
    command += ["-kernel", str(guest.image.kernel), "-initrd", str(guest.image.initrd)]
    command += ["-append", " ".join([KERNEL_WORDS, *guest.kernel_words])]
    command += ["-drive", disk, "-device", "virtio-blk-pci,drive=root"]
    command += ["-netdev", f"user,id=net,{forward}"]
    command += ["-device", "virtio-net-pci,netdev=net,romfile="]
    # A separate network for the drives, so that unplugging `net` leaves the disks connected.
    command += ["-netdev", "user,id=drives,net=10.0.3.0/24"]
    command += ["-device", "virtio-net-pci,netdev=drives,romfile="]
    command += ["-device", "virtio-rng-pci"]
    page = f"memory-backend-file,id=host,share=on,size={HostPage.SIZE_BYTES}"
    command += ["-object", f"{page},mem-path={_escaped(guest.host_page)}"]
    command += ["-device", "ivshmem-plain,memdev=host"]
    # Reset a guest that hangs, as a watchdog would; it keeps its disk.
    command += ["-device", "i6300esb", "-action", "watchdog=reset"]
    command += ["-chardev", f"file,id=console,path={_escaped(guest.console)}"]
    command += ["-serial", "chardev:console"]
    command += ["-qmp", f"unix:{_escaped(guest.sockets / 'qmp')},server=on,wait=off"]
    for name, file in guest.credentials.items():
        command += ["-fw_cfg", f"name=opt/io.systemd.credentials/{name},file={_escaped(file)}"]
    return command


def _escaped(path: Path) -> str:
    """Escape a path for a comma-separated QEMU option."""
    return str(path).replace(",", ",,")


def make_overlay(image: Image, overlay: Path) -> None:
    """Create a fresh copy-on-write disk over the image."""
    base = ["-F", "raw", "-b", str(image.root)]
    command = [program("qemu-img"), "create", "-q", "-f", "qcow2", *base, str(overlay)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LabError(f"qemu-img could not make the guest's disk: {result.stderr.strip()}")
