"""`plain` with a known load, to check whether an effect of known size is found.

A program of the highest priority keeps a processor busy for an even share of the time, so that what
needs the processor alone takes longer by `slowdown`.
"""

from __future__ import annotations

import sys
from typing import ClassVar

from agent.storage.base import Evidence, Place
from agent.storage.guard import MAPPING
from agent.storage.plain import Plain
from agent.storage.secrets import Secrets
from agent.system.command import run
from contract.parameters import Parameter
from contract.plan import Configuration

# Ends with the mapping: every one has a node of its own.
LOAD = """
import os, sys, time
mapping, share = sys.argv[1], float(sys.argv[2])
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
node, last = os.lstat(mapping).st_ino, time.monotonic()
while os.path.lexists(mapping) and os.lstat(mapping).st_ino == node:
    time.sleep(0.02)
    now = time.monotonic()
    rest = (now - last) * share / (1 - share)  # of what the others had
    while time.monotonic() - now < rest:
        pass
    last = time.monotonic()
"""


class KnownLoad(Plain):
    """No encryption, and a load."""

    name: ClassVar[str] = "plain_known_load"
    fields: ClassVar[tuple[Parameter, ...]] = (
        *Plain.fields,
        Parameter("slowdown", 0.03, "share", "what the load adds to the time of a busy processor"),
    )

    def label(self, configuration: Configuration) -> str:
        return f"plain beside {100 * float(configuration.settings['slowdown']):g} percent load"

    def attach(self, place: Place, configuration: Configuration, secrets: Secrets) -> Evidence:
        attached = super().attach(place, configuration, secrets)
        share = 1 - 1 / (1 + float(configuration.settings["slowdown"]))
        unit = ["systemd-run", "--quiet", "--collect", sys.executable, "-IS", "-c", LOAD]
        run([*unit, f"/dev/mapper/{MAPPING}", f"{share}"])
        return attached
