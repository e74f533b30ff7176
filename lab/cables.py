"""Cables of the lab, pulled and put back: the target's network, and the meter's USB.

The target's drives have a wire of their own, so that its network can go while its disks stay.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from contract.errors import LabError
from lab.network import Network
from lab.power import machine_of, require_state
from lab.state import Layout, read_started

PATIENCE_S = 10.0


def network(layout: Layout, *, plugged: bool) -> None:
    """Nothing is refused without it: packets are lost, and links hang as they do without a cable.

    Raises LabError where the guest's machine does not answer.
    """
    state = require_state(layout)
    network = Network(state["network_pid"])
    machine_of(state).set_network(state["guest"], network, up=plugged)


def meter(layout: Layout, *, plugged: bool) -> None:
    """The meter's port vanishes or comes back; the meter itself goes on measuring.

    Raises LabError where the lab has no meter.
    """
    port = require_state(layout).get("meter", {}).get("port")
    found = [p for p in read_started(layout).processes if p.name == "meter" and p.alive()]
    if not (found and port):
        raise LabError(f"the lab in {layout.directory} has no meter that runs")
    os.kill(found[0].pid, signal.SIGUSR2 if plugged else signal.SIGUSR1)
    deadline = time.monotonic() + PATIENCE_S
    while Path(port).exists() != plugged:
        if time.monotonic() > deadline:
            raise LabError(f"the meter of the lab in {layout.directory} does not listen")
        time.sleep(0.01)
