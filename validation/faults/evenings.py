"""A suite over three evenings, each on a rebooted controller, once rebooted within a run."""

from __future__ import annotations

import subprocess
import time
import uuid

from contract.errors import LabError
from validation.faults.trial import Fault, Outcome, Small, Trial

EVENINGS = 3
EVENING_S, MINUTE_S = 150, 60  # an evening ends with the minute in which so many seconds are over
AFTER_S = 120.0  # how long a session may take to end behind its time; its runs may not
ON_A_NEW_BOOT = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && "$@"'


def _boot(trial: Trial) -> None:
    """Let the controller start as on a machine that has just booted.

    No process of before is left, and it has another boot id and new clocks, in namespaces. Raises
    LabError where this machine has none.
    """
    trial.controller.end()
    boot_id = trial.folder / "boot_id"
    boot_id.write_text(f"{uuid.uuid4()}\n", encoding="utf-8")
    up_s = int(time.clock_gettime(time.CLOCK_MONOTONIC))
    slept_s = int(time.clock_gettime(time.CLOCK_BOOTTIME)) - up_s
    clocks = ["--time", f"--monotonic={-up_s}", f"--boottime={-up_s - slept_s}"]
    unshare = ["unshare", "--fork", "--kill-child", "--mount", *clocks]
    prefix = [*unshare, "sh", "-c", ON_A_NEW_BOOT, str(boot_id)]
    check = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    if check.returncode:
        raise LabError(f"a new boot needs root and namespaces of time: {check.stderr.strip()}")
    trial.controller.prefix = prefix


def _evening(trial: Trial, outcome: Outcome, *, rebooted: bool) -> float:
    """Run one evening; return by how many seconds its last line missed the hard end.

    `rebooted`: the controller is, in the middle of a run; its user resumes until the same time.
    """
    end_s = (int(time.time()) + EVENING_S) // MINUTE_S * MINUTE_S + MINUTE_S
    clock = time.strftime("%H:%M", time.localtime(end_s))
    trial.controller.options = ("--until", clock)
    _boot(trial)
    start = trial.mark()
    trial.controller.start()
    line = trial.wait_state("running")
    outcome.struck(line.entry.state)
    trial.say(f"evening {outcome.times}, until {clock}")
    if rebooted:
        trial.say(f"the controller is rebooted in {line.entry.run_id}")
        _boot(trial)
        trial.controller.start()
    status = trial.controller.wait(end_s - time.time() + AFTER_S)
    if status:
        outcome.note = f"the session of evening {outcome.times} ended with {status}"
    trial.say(f"evening {outcome.times} is over: {trial.finished(start)} runs finished")
    behind_s = time.time() - end_s
    return max(0.0, trial.observer.lines()[-1].received_s - time.monotonic() + behind_s)


def _evenings(trial: Trial, outcome: Outcome) -> None:
    """Run two evenings that end at their time, the second with a reboot, and one until the seal."""
    outcome.wanted = EVENINGS
    late_s = [_evening(trial, outcome, rebooted=bool(n)) for n in range(EVENINGS - 1)]
    outcome.extra = [("a line behind the hard end", round(max(late_s), 1), "s", 0.0)]
    trial.controller.options = ()
    _boot(trial)
    trial.mark()
    trial.controller.start()
    outcome.struck(trial.wait_state("running").entry.state)
    trial.say("the last evening, without an end")


EVENINGS_APART = Fault(
    "evenings",
    "ends the session at its time on two evenings, and reboots the controller",
    "fde resume, the next evening",
    _evenings,
    ("controller_boots",),
    small=Small(blocks=24, run_limit_s=60.0),
    quick=Small(blocks=18, run_limit_s=60.0),
)
