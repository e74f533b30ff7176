"""Print how the guest's sensor, disks, kernel log, clock and timers look to the checks.

Runs in the guest; one JSON object.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent.checks import CheckContext, Inspection, Memory
from agent.system import quiet
from contract.plan import Quiet

SENSOR = Path("/sys/module/fde_rapl_sim/parameters/temp_mc")


class Trial:
    """Inspections of the same suite."""

    def __init__(self, folder: Path, disks: tuple[str, ...]) -> None:
        # Other tests' programs may still be ending, and nothing is measured here.
        self.context = CheckContext(Path("/"), 9.0, folder, disks, poll_s=0.5)
        self.said: list[str] = []
        self.memory = Memory()

    def run(
        self, between: Callable[[], object] = lambda: None, waiting: Callable[[], object] = list
    ) -> list[dict[str, object]]:
        inspection = Inspection(self.context, self.memory)

        def note(cause: str, why: str) -> None:
            self.said.append(f"{cause}: {why}")
            waiting()

        inspection.before(note)
        between()
        inspection.after()
        return [finding.document() for finding in inspection.findings]


def during(line: str, step_s: int) -> Callable[[], None]:
    """Return what happens during a run: the kernel says something, and the clock is set."""

    def happens() -> None:
        Path("/dev/kmsg").write_text(line + "\n")
        # GNU date would take whole seconds: the clock would drift with every step.
        now_s = time.clock_gettime(time.CLOCK_REALTIME)
        time.clock_settime(time.CLOCK_REALTIME, now_s + step_s)

    return happens


def active_units() -> list[str]:
    """Return what of that which may be stopped is active."""
    by_group = quiet.disturbers() or {}
    return sorted(unit for group in Quiet().stop for unit in by_group.get(group, ()))


def trials(folder: Path, disks: tuple[str, ...]) -> dict[str, Any]:
    """Everything that was seen, by what was done."""
    trial = Trial(folder, disks)
    quieted = {"stopped": quiet.stop(), "left": active_units()}
    try:
        findings = {"calm": trial.run()}
        SENSOR.write_text("60000")
        findings["ahead"] = trial.run(
            during("<4>fde-testbed: an odd line, written by a test", 3600),
            waiting=lambda: SENSOR.write_text("46000"),
        )
        findings["back"] = trial.run(
            during("<3>I/O error, dev none, sector 0: written by a test", -3600)
        )
    finally:
        SENSOR.write_text("45000")
        quieted["started"] = quiet.restart()
    quieted["after"] = active_units()
    health = [[h.serial, h.passed, h.errors] for h in trial.context.health.values()]
    return {"seen": findings, "said": trial.said, "quiet": quieted, "health": health}


if __name__ == "__main__":
    subprocess.run(["modprobe", "fde_rapl_sim"], check=True)
    with tempfile.TemporaryDirectory(dir="/run") as name:
        print(json.dumps(trials(Path(name), tuple(sys.argv[1:]))))
