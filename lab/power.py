"""The mains of the lab's target: taken away in the middle of anything, and given back.

A cut kills the guest's process, so what it held in its memory is gone, and the drives lose what
real ones do: the self-encrypting one is locked. What stays is what the guest had written: a flush
of its root disk need not reach the host's disk, but what the process was given lies in the host's
page cache, which outlives it. For the guest an fsync is as good as on real hardware; what its own
kernel had not yet written is lost, as it must be.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract.errors import LabError
from contract.files import write_json
from contract.interrupts import deferred_interrupts
from drive import control
from lab import boot, machines
from lab.launcher import Launcher
from lab.machines.base import Machine
from lab.state import Layout, Process, read_json, read_started

DEATH_LIMIT_S = 20.0


def power_cut(layout: Layout) -> None:
    """The target and its drives lose their power now. Raises LabError where there is no guest."""
    state = require_state(layout)
    guest = _guest(layout)
    if guest is None:
        raise LabError("the target has no power already: python -m lab power-on gives it back")
    with contextlib.suppress(ProcessLookupError):
        os.kill(guest.pid, signal.SIGKILL)
    deadline = time.monotonic() + DEATH_LIMIT_S
    while guest.alive():
        if time.monotonic() > deadline:
            raise LabError(f"the guest (process {guest.pid}) does not die: see what holds it")
        time.sleep(0.01)
    for drive in state["drives"].values():
        control.ask(Path(drive["control"]), "power-cycle")
    off = {"command": state["guest"]["command"], "pid": None}
    write_json(layout.state, state | {"ready": False, "guest": off})


def power_on(layout: Layout) -> None:
    """The same machine starts again: disk, port and keys are the old ones. Does not wait for it.

    Raises LabError where it has its power, or does not start.
    """
    state = require_state(layout)
    if _guest(layout) is not None:
        raise LabError("the target has its power already: python -m lab power-cut takes it away")
    with contextlib.suppress(FileNotFoundError):
        layout.console.replace(layout.directory / "console.before.log")
    with deferred_interrupts():
        launcher = Launcher(layout, read_started(layout))
        command = state["guest"]["command"]
        running = machine_of(state).start(launcher, command)
        write_json(layout.state, state | {"guest": {"command": command, **running}})


def wait_until_up(layout: Layout, say: boot.Say) -> None:
    """Until the guest answers and has its drives. Raises LabError where it does not."""
    state = require_state(layout)
    boot.wait_for_guest(layout, state, lambda: _guest(layout) is not None, say)
    write_json(layout.state, state | {"ready": True})


def reset(layout: Layout) -> None:
    """The button on the front: the guest starts anew at once, its drives keep their power."""
    state = require_state(layout)
    with deferred_interrupts():
        launcher = Launcher(layout, read_started(layout))
        running = machine_of(state).reset(launcher, state["guest"])
        write_json(layout.state, state | {"guest": {**state["guest"], **running}})


def machine_of(state: Mapping[str, Any]) -> Machine:
    """The machine that a lab runs on."""
    return machines.require(state["machine"]["name"])


def require_state(layout: Layout) -> dict[str, Any]:
    """The lab's state. Raises LabError where there is none."""
    state = read_json(layout.state)
    if state is None:
        raise LabError(f"no lab is up in {layout.directory}: run `python -m lab up` first")
    return state


def _guest(layout: Layout) -> Process | None:
    for process in read_started(layout).processes:
        if process.name == "guest" and process.alive():
            return process
    return None
