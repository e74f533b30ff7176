"""Do nothing for a given time: the baseline of the other workloads."""

from __future__ import annotations

import time
from typing import ClassVar

from contract.parameters import Parameter
from workloads.base import Context, Workload


class Idle(Workload):
    """One phase, `idle`."""

    name = "idle"
    summary = "the machine at rest, disk mounted and untouched"
    program = "none: the machine rests"
    parameters = (Parameter("seconds", 5.0, "s", "length of the rest", minimum=0.1),)
    small: ClassVar = {"seconds": 0.1}

    def run(self, context: Context) -> None:
        seconds = float(context.parameters["seconds"])
        with context.phase("idle") as work:
            time.sleep(seconds)
        work.plan(idle_s=seconds)
        work.add(idle_s=seconds)
        work.disk_rests()
