"""Run the guest as User Mode Linux: the kernel is a process, so its code has the host's speed.

One CPU, a kernel with our configuration (lab/kernel/) and no watchdog device. Needs no root: the
process runs in the lab's namespaces, where its network cards are the tap devices of `lab.network`.
Sources: the kernel's Documentation/virt/uml, and its arch/um/drivers/vector_user.c for `vec0=…`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from contract.errors import LabError
from lab import network as networks
from lab.cache import Say
from lab.host_time import HostPage
from lab.image import Image
from lab.launcher import Launcher, tail, wait_for
from lab.machines import kernel
from lab.machines.base import OVERLAY, Guest
from lab.network import GUEST_ADDRESS, WIRES, Network
from lab.state import GuestState, Process, Running, cache_dir

MEMORY_MIB = 2048
TAP_DEVICE = Path("/dev/net/tun")
HOST_FOLDER = "host"  # in the lab's directory; the guest mounts it at /run/fde-host
PROBE_LIMIT_S = 20.0
PROBE_WORDS = b"Unable to mount root fs"
DEATH_LIMIT_S = 10.0
# Words that the machine needs; the probe uses them, too, so that it tests the same.
MACHINE_WORDS = ("con=null", "con0=null,fd:1", "panic=1", "seccomp=auto", "cryptomgr.notests=1")
KERNEL_WORDS = (
    "root=/dev/ubda rw net.ifnames=0 loglevel=5 "
    "mitigations=off rcupdate.rcu_expedited=1 fde.host systemd.default_device_timeout_sec=600 "
    "sysctl.crypto.af_alg_restrict=0"  # newer kernels deny most ciphers to programs, even root's
)


class Uml:
    """User Mode Linux."""

    name = "uml"
    abilities: frozenset[str] = frozenset()
    needs_wires = True
    on_one_processor = True

    def why_not(self, _image: Image, say: Say) -> str | None:
        """Return why it does not work here; build a kernel if the archived one cannot load."""
        if (reason := obstacle()) is not None:
            return reason
        try:
            guest_kernel = kernel.ensure(say)
            if not guest_kernel.built and not loads(guest_kernel.program):
                say("kernel: the one of lab/kernel/ needs a newer C library; building it here")
                guest_kernel = kernel.build(say)
        except LabError as error:
            return str(error)
        if starts(guest_kernel.program):
            return None
        return f"the kernel {guest_kernel.program} does not start here"

    def address(self, _guest: Guest) -> tuple[str, int]:
        """Return the guest's address in the lab's network."""
        return GUEST_ADDRESS, 22

    def prepare(self, guest: Guest) -> list[str]:
        """Fill the folder with the guest's keys and modules; return the command that starts it."""
        built = kernel.location(cache_dir())
        folder = guest.folder / HOST_FOLDER
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        shutil.copytree(built.modules, folder / "modules")
        for name, file in guest.credentials.items():
            shutil.copy2(file, folder / name)
        overlay = guest.folder / OVERLAY
        overlay.unlink(missing_ok=True)
        # A blank or a comma in a path would end a kernel word, so the kernel gets links.
        folder_link, root = guest.sockets / "folder", guest.sockets / "root"
        for link, place in ((folder_link, guest.folder), (root, guest.image.root)):
            link.unlink(missing_ok=True)
            link.symlink_to(place)
        command = [str(built.program), f"mem={MEMORY_MIB}M", f"umid={guest.sockets.name}"]
        command += [f"uml_dir={guest.sockets}", f"ubd0={folder_link / OVERLAY},{root}"]
        command += [f"host_page={guest.host_page}"]
        command += [f"hostfs={folder_link / HOST_FOLDER}", *MACHINE_WORDS, *KERNEL_WORDS.split()]
        for number, wire in enumerate(WIRES):
            # Each has a fixed address, because the host remembers it over a restart of the guest.
            address = f"mac=02:fd:e0:00:00:0{number + 1}"
            command.append(f"vec{number}:transport=tap,ifname={wire},depth=128,gro=1,{address}")
        return guest.network.enter([*command, *guest.kernel_words])

    def start(self, launcher: Launcher, command: Sequence[str]) -> Running:
        """Start the kernel; its console is its standard output, in a new log for each boot."""
        console = launcher.layout.console
        # A guest that ended while asleep left its sum less the time of falling asleep.
        HostPage.create(launcher.sockets / HostPage.NAME)
        process = launcher.start("guest", command, log=console)
        time.sleep(0.2)
        if process.poll() is not None:
            raise LabError(f"User Mode Linux did not start; its last lines:\n{tail(console)}")
        return {"pid": process.pid}

    def reset(self, launcher: Launcher, guest: GuestState) -> Running:
        """Kill the guest and start it again."""
        with contextlib.suppress(ProcessLookupError):
            kernel_process = Process.from_pid("guest", guest["pid"])
            os.kill(guest["pid"], signal.SIGKILL)
            wait_for(lambda: not kernel_process.alive(), DEATH_LIMIT_S)
        return self.start(launcher, guest["command"])

    def set_network(self, _guest: GuestState, network: Network, *, up: bool) -> None:
        """Plug in or unplug the host's end of the guest's first wire."""
        networks.set_wire(network, "net", up=up)

    def provenance(self) -> dict[str, str | float]:
        """Return the kernel's version and the hash of its configuration."""
        return kernel.location(cache_dir()).facts()


def obstacle() -> str | None:
    """Return why no kernel of User Mode Linux can run here; None if one can."""
    if not os.access(TAP_DEVICE, os.R_OK | os.W_OK):
        return f"{TAP_DEVICE} cannot be opened; an administrator allows it: chmod 666 {TAP_DEVICE}"
    return networks.why_not()


def loads(program: Path) -> bool:
    """Return whether this host's libraries are new enough for the kernel to print its release."""
    return _outcome([str(program), "--version"]).returncode == 0


def starts(program: Path) -> bool:
    """Return whether the kernel boots as far as looking for its root disk; it gets none."""
    return PROBE_WORDS in _outcome([str(program), "mem=64M", *MACHINE_WORDS]).stdout


def _outcome(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_LIMIT_S,
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return subprocess.CompletedProcess(command, -1, b"", b"")
