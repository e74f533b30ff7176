"""Bringing the lab up and down: drives, guest, meter, in this order, and back."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import boot, image, kvm, ssh, vm
from lab.boot import Say
from lab.devices import DRIVES, start_drive, start_meter, write_secrets
from lab.errors import LabError
from lab.launcher import Launcher, no_interruption, term_interrupts
from lab.paths import GIB, REPOSITORY, cache_dir, require_room
from lab.qmp import Qmp, vcpu_thread_ids
from lab.state import FORMAT, Layout, Process, read_json, read_started, write_json

POWER_MODEL = REPOSITORY / "lab" / "power_model.yml"
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
    "root.qcow2",
    "sed.opal",
    "sed.opal.datastore",
    "sed.opal.lock",
    "sed.opal.mbr",
    "sed.psid",
    "tmpfiles.conf",
)


@dataclass(frozen=True)
class Wish:
    """How the lab is to be: `accelerator` is auto, kvm or tcg; `ssh_port` None means a free one."""

    accelerator: str = "auto"
    ssh_port: int | None = None
    drives: bool = True
    meter: bool = True


def up(layout: Layout, say: Say, wish: Wish) -> bool:
    """Bring the lab up; false if it is up already. Whatever fails, nothing is left running.

    Raises LabError with the reason and the way out.
    """
    if running(layout):
        return False
    qemu = vm.qemu_program()
    if wish.ssh_port is not None:
        vm.require_free_port(wish.ssh_port)
    guest_image = image.ensure(say)
    accelerator = wish.accelerator
    if accelerator == "auto":
        accelerator = kvm.accelerator(qemu, guest_image, cache_dir(), say)
    down(layout)
    require_room(layout.directory, ROOM_BYTES, "the lab")
    layout.directory.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    try:
        with term_interrupts():
            state, process = _start(layout, wish, guest_image, [qemu, accelerator])
            boot.wait_for_guest(layout, state, lambda: process.poll() is None, say)
            write_json(layout.state, state | {"ready": True})
    except BaseException:
        with no_interruption():
            down(layout)
        raise
    say(f"lab: up in {time.monotonic() - started:.0f} s ({accelerator})")
    return True


def _start(
    layout: Layout, wish: Wish, guest_image: image.Image, emulator: list[str]
) -> tuple[dict[str, Any], subprocess.Popen[bytes]]:
    """Start everything; returns the lab's state and QEMU."""
    qemu, accelerator = emulator
    words = vm.rapl_words(POWER_MODEL)
    launcher = Launcher(layout)
    psid = write_secrets(layout)
    drives = {kind.role: start_drive(launcher, kind, psid) for kind in DRIVES if wish.drives}
    words += [f"fde.drive={drive['port']},{drive['nqn']}" for drive in drives.values()]

    overlay = layout.directory / "root.qcow2"
    vm.make_overlay(guest_image, overlay)
    port = wish.ssh_port or vm.free_port()
    guest = vm.Guest(
        image=guest_image,
        accelerator=accelerator,
        overlay=overlay,
        console=layout.console,
        qmp=launcher.sockets / "qmp",
        ssh_port=port,
        credentials=ssh.make_keys(layout, port),
        kernel_words=words,
    )
    command = vm.qemu_command(qemu, guest)
    process = boot.start_qemu(launcher, command, guest.qmp)
    state: dict[str, Any] = {
        "format": FORMAT,
        "ready": False,
        "accel": accelerator,
        "qemu_pid": process.pid,
        "vcpu_tids": vcpu_thread_ids(guest.qmp),
        "qemu_command": command,  # the same machine is switched on again by it
        "qmp": str(guest.qmp),
        "console": str(layout.console),
        "ssh": {
            "host": "127.0.0.1",
            "port": port,
            "user": "root",
            "key": str(layout.key),
            "known_hosts": str(layout.known_hosts),
        },
        "drives": drives,
        "secrets": str(layout.secrets),
    }
    write_json(layout.state, state)  # the meter reads it, so it comes before the meter
    if wish.meter:
        state["meter"] = start_meter(launcher)
    return state, process


def running(layout: Layout) -> bool:
    """Whether the lab came up and all that it started still runs."""
    state = read_json(layout.state)
    processes = read_started(layout).processes
    return bool(state and state.get("ready") and processes) and all(p.alive() for p in processes)


def down(layout: Layout) -> list[str]:
    """Stop what was started in this directory, and only that; returns the names of what ran.

    Logs and the drives' media stay for a look until the next `up`; keys, secrets and sockets go.
    """
    started = read_started(layout)
    alive = [p for p in started.processes if p.alive()]
    if started.sockets and any(p.name == "qemu" for p in alive):
        _quit_qemu(Path(started.sockets) / "qmp")
    for process in reversed(alive):
        _stop(process)
    if started.sockets:
        shutil.rmtree(started.sockets, ignore_errors=True)
    for name in FLEETING:
        (layout.directory / name).unlink(missing_ok=True)
    # The list of processes goes last, so that a cut-off `down` can be called again.
    for path in (layout.secrets, layout.state, layout.processes):
        path.unlink(missing_ok=True)
    return [p.name for p in alive]


def _quit_qemu(socket_path: Path) -> None:
    """Ask QEMU to end at once; the guest's disks die with the lab, so nothing is lost."""
    with (
        contextlib.suppress(LabError, OSError, ValueError, EOFError),
        Qmp(socket_path, timeout_s=STOP_LIMIT_S) as qmp,
    ):
        qmp.execute("quit")


def _stop(process: Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not process.alive():
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
        deadline = time.monotonic() + STOP_LIMIT_S
        while process.alive() and time.monotonic() < deadline:
            time.sleep(0.02)
