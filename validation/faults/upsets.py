"""What disturbs single runs: a stepped clock, a drive with errors, programs that hang, Ctrl-C."""

from __future__ import annotations

import time
from typing import Any

from contract.errors import LabError
from drive import control
from validation.faults.fault import Fault, TrialOptions
from validation.faults.planning import LOADS, Small
from validation.faults.trial import AT_WORK, Outcome, Trial
from validation.scene import Scene

END_LIMIT_S = 2400.0
STEPS = ("+1 hour", "-1 hour", "-1 hour", "+1 hour")
HANGS, HANG_LIMIT_S = 2, 40.0
# NVMe gives a command 30 s (nvme_core.io_timeout): each stays below, so that the kernel waits.
SLOW_MS = 20_000
SLOW_S = 240.0
FAKE_DD = "/usr/local/bin/dd"
HANG_FILE = "/run/fde-fault-hang"
FILES = (LOADS[1],)
CTRL_C_STATES = ("running", "proving", "suite-finished")
INTERRUPTED = 130


def _clock(scene: Scene, wish: TrialOptions) -> Outcome:
    """There and back, twice: monotonic time does not care, and runs it hits are repeated."""
    outcome = Outcome("clock-step", wanted=len(STEPS))
    small = Small(blocks=4, loads=({"name": "idle", "parameters": {"seconds": 5}},))
    with Trial.of(scene, "clock-step", small, seed=wish.seed) as trial:
        for step in STEPS:
            trial.mark()
            before = trial.wait_state("running").entry
            time.sleep(1)
            scene.ssh(f"date --set '{step}' >/dev/null")
            outcome.times += 1
            outcome.reached.append(before.state)
            trial.say(f"clock stepped {step} in {before.run_id}")
            trial.mark()
            trial.wait_state("finished")
        trial.finish(END_LIMIT_S)
        outcome.judgement = trial.judge([r"clock was set"])
        outcome.suite = str(trial.suite_dir)
    return outcome


def _tell(scene: Scene, role: str, command: str, **parameters: Any) -> None:
    answer = control.ask(scene.drive(role), command, **parameters)
    if not answer["ok"]:
        raise LabError(f"the drive {role} refuses {command}: {answer['error']}")


def _drive(scene: Scene, wish: TrialOptions) -> Outcome:
    """Errors that a retry cures, a medium that cannot be read, replies that come late."""
    kinds: tuple[dict[str, Any], ...] = (
        {"name": "io-error", "count": 12, "on": "write"},
        {"name": "media-error", "lba": 4096, "blocks": 1 << 19},
        {"name": "slow-reply", "delay_ms": 400, "count": 60},
    )
    outcome = Outcome("drive-error", wanted=len(kinds))
    small = Small(blocks=4, loads=FILES, configurations=("plain", "dmcrypt-aes256"))
    with Trial.of(scene, "drive-error", small, seed=wish.seed) as trial:
        for kind in kinds:
            trial.mark()
            before = trial.wait_state("running").entry
            try:
                _tell(scene, "plain", "fault", **kind)
                trial.say(f"{kind['name']} in {before.run_id}")
                outcome.times += 1
                outcome.reached.append(before.state)
                trial.mark()
                trial.wait_state("void", "finished", "suite-failed")
            finally:
                _tell(scene, "plain", "clear-faults")
            trial.wait_state("finished")
        trial.finish(END_LIMIT_S)
        outcome.judgement = trial.judge([r"I/O error|Input/output error|kernel told"])
        outcome.suite = str(trial.suite_dir)
    return outcome


def _run_hangs(scene: Scene, wish: TrialOptions) -> Outcome:
    """The workload's program is one that sleeps for ever, once and once more."""
    outcome = Outcome("run-hangs", wanted=HANGS)
    small = Small(blocks=2, loads=FILES, run_limit_s=HANG_LIMIT_S)
    script = (
        "#!/bin/sh\n"
        f'if [ "$1" != --version ] && rm {HANG_FILE} 2>/dev/null; then exec sleep 100000; fi\n'
        'exec /usr/bin/dd "$@"\n'
    )
    with Trial.of(scene, "run-hangs", small, seed=wish.seed) as trial:
        trial.scene.ssh(f"cat > {FAKE_DD} && chmod 755 {FAKE_DD}", stdin=script.encode())
        try:
            for _ in range(HANGS):
                trial.mark()
                before = trial.wait_state("running").entry
                scene.ssh(f"touch {HANG_FILE}")
                trial.mark()
                line = trial.wait_state("void")
                outcome.times += 1
                outcome.reached.append(before.state)
                trial.say(f"a program of {line.entry.run_id} hung: {line.entry.detail}")
        finally:
            scene.ssh(f"rm -f {FAKE_DD} {HANG_FILE}")
        trial.finish(END_LIMIT_S)
        outcome.judgement = trial.judge([r"took longer"])
        outcome.suite = str(trial.suite_dir)
    return outcome


def _kernel_hangs(scene: Scene, wish: TrialOptions) -> Outcome:
    """Every command of the disk takes 20 s: programs sit in the kernel, where no signal helps."""
    outcome = Outcome("kernel-hangs", wanted=1)
    small = Small(blocks=2, loads=FILES, run_limit_s=HANG_LIMIT_S)
    with Trial.of(scene, "kernel-hangs", small, seed=wish.seed) as trial:
        before = trial.wait_state("running").entry
        try:
            _tell(scene, "plain", "fault", name="slow-reply", delay_ms=SLOW_MS)
            _tell(scene, "sed", "fault", name="slow-reply", delay_ms=SLOW_MS)
            trial.say(f"the disks hang in {before.run_id}")
            outcome.times, outcome.reached = 1, [before.state]
            time.sleep(SLOW_S)
        finally:
            _tell(scene, "plain", "clear-faults")
            _tell(scene, "sed", "clear-faults")
        back_s = time.monotonic()
        trial.say(f"the disks answer again; {trial.last()}")
        line = trial.wait(
            lambda line: line.heard_s > back_s and line.entry.state in AT_WORK,
            "line of work once the disks answered",
        )
        outcome.resumed_s = [line.heard_s - back_s]
        trial.finish(END_LIMIT_S)
        outcome.judgement = trial.judge(
            [r"took longer|did not end within|agent was started again|cut short"]
        )
        outcome.suite = str(trial.suite_dir)
    return outcome


def _ctrl_c(scene: Scene, wish: TrialOptions) -> Outcome:
    """In a run, in its proof, and while the results come over."""
    outcome = Outcome("ctrl-c", wanted=len(CTRL_C_STATES))
    with Trial.of(scene, "ctrl-c", Small(blocks=2), seed=wish.seed) as trial:
        for state in CTRL_C_STATES:
            trial.mark()
            trial.wait_state(state)
            if not trial.controller.running():
                continue
            trial.controller.interrupt()
            code = trial.controller.wait(300)
            trial.say(f"Ctrl-C at {state}: it ended with {code}")
            outcome.times += 1
            outcome.reached.append(state)
            if code not in (0, INTERRUPTED):
                outcome.note = f"ended with {code} after Ctrl-C"
            trial.keep_going()
        trial.finish(END_LIMIT_S)
        outcome.judgement = trial.judge([r"suite was stopped|started again after it had ended"])
        outcome.suite = str(trial.suite_dir)
    return outcome


CLOCK = Fault("clock-step", "steps the target's clock by ±1 h within runs", "stepped back", _clock)
DRIVE = Fault(
    "drive-error",
    "has the drive fail commands, lose a part of its medium, and answer late",
    "the drive is whole again",
    _drive,
)
RUN_HANGS = Fault(
    "run-hangs",
    "puts a program that sleeps for ever in the place of the workload's",
    "the program is removed",
    _run_hangs,
)
KERNEL_HANGS = Fault(
    "kernel-hangs",
    "has every command of both disks take 20 s for four minutes",
    "the disks answer at once again",
    _kernel_hangs,
)
CTRL_C = Fault("ctrl-c", "presses Ctrl-C at the controller", "make resume", _ctrl_c)
