"""Switch the power of the lab's target and plug or unplug its cables."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import cast

from contract.errors import LabError
from contract.files import write_json
from contract.interrupts import deferred_interrupts
from contract.strict_json import read_object
from drive import control
from lab import machines, ssh
from lab.cache import Say
from lab.launcher import Launcher, wait_for
from lab.network import Network
from lab.state import GuestState, LabState, Layout, Process, read_started

PATIENCE_S = 10.0


def network(layout: Layout, *, plugged: bool) -> None:
    """Plug in or unplug the target's network; packets are lost, and links hang, as without a cable.

    Raises LabError if the guest's machine does not answer.
    """
    state = require_state(layout)
    network = Network(state["network_pid"])
    machine_of(state).set_network(state["guest"], network, up=plugged)


def meter(layout: Layout, *, plugged: bool) -> None:
    """Plug in or unplug the meter's port; the meter itself continues measuring.

    Raises LabError if the lab has no meter.
    """
    port = require_state(layout).get("meter", {}).get("port")
    process = _find_alive(layout, "meter")
    if process is None or not port:
        raise LabError("no-meter", directory=layout.directory)
    os.kill(process.pid, signal.SIGUSR2 if plugged else signal.SIGUSR1)
    if not wait_for(lambda: Path(port).exists() == plugged, PATIENCE_S):
        raise LabError("meter-silent", directory=layout.directory)


DEATH_LIMIT_S = 20.0


def power_cut(layout: Layout) -> None:
    """Cut the power of the target and its drives. Raises LabError if there is no guest."""
    state = require_state(layout)
    guest = _find_alive(layout, "guest")
    if guest is None:
        raise LabError("no-power")
    with contextlib.suppress(ProcessLookupError):
        os.kill(guest.pid, signal.SIGKILL)
    if not wait_for(lambda: not guest.alive(), DEATH_LIMIT_S):
        raise LabError("guest-lives", pid=guest.pid)
    for drive in state["drives"].values():
        control.ask(Path(drive["control"]), "power-cycle")
    off: GuestState = {"command": state["guest"]["command"]}
    write_json(layout.state, {**state, "ready": False, "guest": off})


def is_on(layout: Layout) -> bool:
    """Return whether the target has power, even if the guest hangs."""
    return _find_alive(layout, "guest") is not None


def power_on(layout: Layout) -> None:
    """Start the same machine again with its old disk, port and keys, without waiting for it.

    Raises LabError if it has power already, or does not start.
    """
    state = require_state(layout)
    if _find_alive(layout, "guest") is not None:
        raise LabError("power-on-already")
    with contextlib.suppress(FileNotFoundError):
        layout.console.replace(layout.directory / "console.before.log")
    with deferred_interrupts():
        launcher = Launcher(layout, read_started(layout), state["processor"])
        command = state["guest"]["command"]
        running = machine_of(state).start(launcher, command)
        write_json(layout.state, state | {"guest": {"command": command, **running}})


def wait_until_up(layout: Layout, say: Say) -> None:
    """Wait until the guest answers and has its drives. Raises LabError if it does not."""
    state = require_state(layout)
    ssh.wait_for_guest(layout, state, lambda: _find_alive(layout, "guest") is not None, say)
    write_json(layout.state, state | {"ready": True})


def reset(layout: Layout) -> None:
    """Press the reset button: the guest restarts at once, its drives keep their power."""
    state = require_state(layout)
    with deferred_interrupts():
        launcher = Launcher(layout, read_started(layout), state["processor"])
        running = machine_of(state).reset(launcher, state["guest"])
        write_json(layout.state, state | {"guest": {**state["guest"], **running}})


def machine_of(state: LabState) -> machines.Machine:
    """Return the machine that a lab runs on."""
    return machines.require(str(state["machine"]["name"]))


def require_state(layout: Layout) -> LabState:
    """Return the lab's state. Raises LabError if the lab is not up."""
    if not (state := read_object(layout.state)):
        raise LabError("lab-not-up", directory=layout.directory)
    return cast(LabState, state)


def _find_alive(layout: Layout, name: str) -> Process | None:
    started = read_started(layout).processes
    return next((process for process in started if process.name == name and process.alive()), None)
