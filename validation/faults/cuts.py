"""A target without power, and a target that hangs until its watchdog resets it."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

from contract.errors import LabError
from lab import power
from lab.machines import qemu
from lab.machines.base import WATCHDOG as WATCHDOG_DEVICE
from validation.faults.trial import AT_WORK, Fault, Outcome, Small, Trial

CUTS, QUICK_CUTS = 50, 3
# A cut comes so long after the target is at work again, or (one in five) after it was started.
SPREAD_S = 25.0
EARLY = 0.2
EARLY_S = 10.0
OFF_S = 5.0
POWER_ON_TRIES = 5
BOOT_LIMIT_S = 420.0
WENT_DOWN = ("reboots",)
WATCHDOG_LIMIT_S = 300.0
HANG = "echo 0 > /proc/sys/kernel/panic; echo 1 > /proc/sys/kernel/sysrq; sleep 1; "
HANG += "echo c > /proc/sysrq-trigger"


def cut(trial: Trial, chance: random.Random) -> None:
    """Cut the power for some seconds; returns when the machine boots."""
    power.power_cut(trial.scene.layout)
    time.sleep(chance.uniform(0, OFF_S))
    for tries in range(POWER_ON_TRIES):
        try:
            power.power_on(trial.scene.layout)
            return
        except LabError as error:  # most likely its port is in use for a moment
            if tries == POWER_ON_TRIES - 1:
                raise
            trial.say(f"not on again yet: {error}")
            time.sleep(2)


def resumed_s(trial: Trial, boot_before: str, start: int) -> float:
    """Return the seconds from the target's SSH server to its first line of work, by its clock.

    `start` is the observer's line from which on to look. Raises LabError where none came.
    """
    line = trial.wait(
        lambda line: line.entry.boot_id != boot_before and line.entry.state in AT_WORK,
        "line of work after the boot",
        BOOT_LIMIT_S,
        start,
    )
    query = "systemctl show --property=ActiveEnterTimestampMonotonic --value ssh.service"
    back_us = int(trial.scene.ssh(query))
    power.wait_until_up(trial.scene.layout, trial.say)
    return line.entry.t_mono_ns / 1e9 - back_us / 1e6


def _power(trial: Trial, outcome: Outcome) -> None:
    """Make all cuts within one suite, which is long enough for them."""
    chance = random.Random(f"power-cut/{trial.seed}")
    outcome.wanted = QUICK_CUTS if outcome.quick else CUTS
    trial.wait_state(*AT_WORK)
    while outcome.times < outcome.wanted:
        if _strike(trial, chance, outcome):
            outcome.note = f"the suite was at its end after {outcome.times} cuts"
            break


def _strike(trial: Trial, chance: random.Random, outcome: Outcome) -> bool:
    """Wait for a random moment, cut, wait for work to continue; return true after the end."""
    early = outcome.times > 0 and chance.random() < EARLY
    time.sleep(chance.uniform(0, EARLY_S if early else SPREAD_S))
    lines = trial.observer.lines()
    before = lines[-1].entry
    if before.state == "suite-finished":
        return True
    start = trial.mark()
    cut(trial, chance)
    outcome.struck(before.state)
    trial.say(f"cut {outcome.times} while {before.state} {before.run_id} (line {before.seq})")
    took_s = resumed_s(trial, before.boot_id, start)
    outcome.resumed_s.append(took_s)
    trial.say(f"at work {took_s:.1f} s after its SSH server was back")
    return False


def _watchdog(trial: Trial, outcome: Outcome) -> None:
    """Hang the kernel for good; only the watchdog's timer still works."""
    scene = trial.scene
    before = trial.wait_state("running").entry
    start = trial.mark()

    def hang() -> None:
        with contextlib.suppress(LabError):
            scene.ssh(HANG, check=False, limit_s=5)

    qmp = Path(scene.state["guest"]["qmp"])
    qemu.wait_for_event(qmp, "WATCHDOG", WATCHDOG_LIMIT_S, hang)
    outcome.struck(before.state)
    trial.say("QEMU reports that the watchdog's timer ran out")
    outcome.resumed_s = [resumed_s(trial, before.boot_id, start)]


POWER = Fault(
    "power-cut",
    "kills the guest and cycles the drives' power at random moments of one suite",
    "the same machine is switched on again",
    _power,
    WENT_DOWN,
    small=Small(blocks=24),
    quick=Small(blocks=4),
    events=("interrupted",),
    causes=("void",),
)
WATCHDOG = Fault(
    "watchdog",
    "has the guest's kernel panic and hang",
    "the virtual machine's own watchdog resets it",
    _watchdog,
    WENT_DOWN,
    needs=frozenset({WATCHDOG_DEVICE}),
    events=("interrupted",),
    causes=("void",),
)
