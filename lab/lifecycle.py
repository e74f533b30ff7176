"""Start the lab (network, drives, guest, meter, in this order), and stop it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from contract.files import write_json
from contract.interrupts import deferred_interrupts, term_interrupts
from contract.places import module_command
from contract.strict_json import read_object
from lab import devices, image, machines, network, processors, ssh
from lab.cache import Say
from lab.devices import DRIVES, start_drive, start_meter, write_secrets
from lab.host_time import HostPage
from lab.launcher import Launcher, wait_for
from lab.machines import Machine
from lab.machines.base import OVERLAY, Guest
from lab.network import Network
from lab.power_model import rapl_words
from lab.state import FORMAT, GIB, LabState, Layout, Process, cache_dir, read_started, require_room

ROOM_BYTES = 4 * GIB
STOP_LIMIT_S = 5.0
FLEETING = (
    "console.before.log",
    "host_ed25519",
    "host_ed25519.pub",
    "id_ed25519",
    "id_ed25519.pub",
    "known_hosts",
    "meter",
    OVERLAY,
    "sed.psid",
    "tmpfiles.conf",
)


@dataclass(frozen=True)
class LabOptions:
    """Options of a lab: `machine` is auto or one of `lab.machines.MACHINES`.

    With `truth` the meter writes its input, for a comparison with the recording. `packages`, 1 or
    2, share the modelled joules of the processor and of the memory. `disks` names a model of
    `lab.devices`, "" for disks without a special behaviour.
    """

    machine: str = field(default_factory=lambda: os.environ.get("LAB_MACHINE") or "auto")
    drives: bool = True
    meter: bool = True
    truth: bool = False
    packages: int = 1
    disks: str = ""


def up(layout: Layout, say: Say, options: LabOptions) -> bool:
    """Start the lab; return False if it is up already. If anything fails, all is stopped again.

    Raises LabError with the reason and the remedy.
    """
    if running(layout):
        return False
    if options.disks:
        devices.find(options.disks)  # fail before anything is built
    machine, guest_image = machines.ready(options.machine, say)
    down(layout)
    require_room(layout.directory, ROOM_BYTES, "the lab")
    layout.directory.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    try:
        with term_interrupts():
            lock = cache_dir() / "processor.lock"
            choice = processors.chosen(lock) if machine.on_one_processor else nullcontext()
            with choice as processor:
                launcher = Launcher(layout, processor=processor)
                state, process = _start(launcher, options, guest_image, machine, say)
            ssh.wait_for_guest(layout, state, process.alive, say)
            boot_s = round(time.monotonic() - started, 1)
            write_json(layout.state, state | {"ready": True, "boot_s": boot_s})
    except BaseException:
        with deferred_interrupts():
            down(layout)
        raise
    say(f"lab: up in {boot_s:.0f} s ({machine.name})")
    return True


def _start(
    launcher: Launcher, options: LabOptions, guest_image: image.Image, machine: Machine, say: Say
) -> tuple[LabState, Process]:
    """Start all processes; return the lab's state and the guest's process."""
    layout = launcher.layout
    words = [f"fde.machine={machine.name}", *rapl_words(packages=options.packages)]
    if machine.name != "kvm":  # which reports steal to its guest
        words.append("fde_rapl_sim.report_steal=1")
    host_page = launcher.sockets / HostPage.NAME
    HostPage.create(host_page)
    lab_network = _start_network(launcher, machine, say)
    psid = write_secrets(layout)
    drives = {
        kind.role: start_drive(launcher, kind, psid, lab_network)
        for kind in (devices.find(options.disks).drives if options.disks else DRIVES)
        if options.drives
    }
    if options.disks:
        devices.apply(options.disks, drives)
        words.append(f"fde.disks={options.disks}")
    words += [f"fde.drive={drive['port']},{drive['nqn']}" for drive in drives.values()]
    guest = Guest(
        image=guest_image,
        folder=layout.directory,
        sockets=launcher.sockets,
        console=layout.console,
        network=lab_network,
        host_page=host_page,
        ssh_port=network.free_port(),
        credentials=ssh.make_keys(layout),
        kernel_words=words,
    )
    address = machine.address(guest)
    command = machine.prepare(guest)
    state: LabState = {
        "format": FORMAT,
        "ready": False,
        "machine": {"name": machine.name, **machine.provenance()},
        # `lab power-on` starts the same machine again by its command.
        "guest": {"command": command, **machine.start(launcher, command)},
        "processor": launcher.processor,
        "host_page": str(host_page),
        "network_pid": lab_network.pid,
        "address": address,
        "sockets": str(launcher.sockets),
        "ssh": ssh.where(layout, lab_network, address),
        "drives": drives,
        "secrets": str(layout.secrets),
    }
    write_json(layout.state, state)  # the meter reads it, so it comes before the meter
    if options.meter:
        state["meter"] = start_meter(launcher, truth=options.truth)
    return state, Process.from_pid("guest", state["guest"]["pid"])


def _start_network(launcher: Launcher, machine: Machine, say: Say) -> Network:
    """Start namespaces for this lab; fall back to loopback if the machine permits that."""
    reason = network.why_not()
    if reason is not None and not machine.needs_wires:
        say(f"lab: the drives listen on this machine's loopback: {reason}")
        return Network()
    wires = ["--wires"] if machine.needs_wires else []
    command = [*network.NAMESPACE, *module_command("lab.network", *wires)]
    return Network(launcher.start_ready("network", command)["pid"])


def running(layout: Layout) -> bool:
    """Return whether the lab came up and all of its processes still run."""
    state = read_object(layout.state)
    processes = read_started(layout).processes
    return bool(state.get("ready") and processes) and all(p.alive() for p in processes)


def down(layout: Layout) -> list[str]:
    """Stop the processes started in this directory; return the names of those that ran.

    Logs and the drives' media remain until the next `up`; keys, secrets and sockets are removed.
    """
    started = read_started(layout)
    alive = [p for p in started.processes if p.alive()]
    for process in reversed(alive):
        _stop(process)
    if started.sockets:
        shutil.rmtree(started.sockets, ignore_errors=True)
    shutil.rmtree(layout.directory / "host", ignore_errors=True)
    opal_states = sorted(path.name for path in layout.directory.glob("*.opal*"))
    for name in (*FLEETING, *opal_states):
        (layout.directory / name).unlink(missing_ok=True)
    # Remove the list of processes last, so that an interrupted `down` can be repeated.
    for path in (layout.secrets, layout.state, layout.processes):
        path.unlink(missing_ok=True)
    return [p.name for p in alive]


def down_all(directory: Path) -> list[str]:
    """Stop the lab in this directory and those in its subdirectories, as `down` does."""
    labs = [directory, *(path.parent for path in sorted(directory.glob("*/processes.json")))]
    return [name for lab in labs for name in down(Layout(lab))]


def _stop(process: Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not process.alive():
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
        wait_for(lambda: not process.alive(), STOP_LIMIT_S)
