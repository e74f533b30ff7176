"""Disturbances of single runs: a stepped clock, drive errors, hanging programs, Ctrl-C."""

from __future__ import annotations

import time
from typing import Any

from contract.errors import LabError
from drive import control
from validation.faults.trial import FILE_IO, IDLE, Fault, Outcome, Small, Trial
from validation.scene import Scene

STEPS = ("+1 hour", "-1 hour", "-1 hour", "+1 hour")
HANGS, HANG_LIMIT_S = 2, 40.0
# NVMe gives a command 30 s (nvme_core.io_timeout): each stays below, so that the kernel waits.
SLOW_MS = 20_000
SLOW_S = 240.0
FAKE_SHELL = "/usr/local/bin/sh"
HANG_FILE = "/run/fde-fault-hang"
HANGING = Small(loads=(FILE_IO,), run_limit_s=HANG_LIMIT_S)
CTRL_C_STATES = ("running", "proving", "suite-finished")
INTERRUPTED = 130


def _clock(trial: Trial, outcome: Outcome) -> None:
    """Step the clock there and back, twice; the runs it hits are repeated."""
    outcome.wanted = len(STEPS)
    for step in STEPS:
        trial.mark()
        before = trial.wait_state("running").entry
        time.sleep(1)
        trial.scene.ssh(f"date --set '{step}' >/dev/null")
        outcome.struck(before.state)
        trial.say(f"clock stepped {step} in {before.run_id}")
        trial.mark()
        trial.wait_state("finished")


def _ask_drive(scene: Scene, role: str, command: str, **parameters: Any) -> None:
    answer = control.ask(scene.drive(role), command, **parameters)
    if not answer["ok"]:
        raise LabError(f"the drive {role} refuses {command}: {answer['error']}")


def _drive(trial: Trial, outcome: Outcome) -> None:
    """Make the drive return transient errors, an unreadable medium, late replies."""
    kinds: tuple[dict[str, Any], ...] = (
        {"name": "io-error", "count": 12, "on": "write"},
        {"name": "media-error", "lba": 4096, "blocks": 1 << 19},
        {"name": "slow-reply", "delay_ms": 400, "count": 60},
    )
    outcome.wanted = len(kinds)
    for kind in kinds:
        trial.mark()
        before = trial.wait_state("running").entry
        try:
            _ask_drive(trial.scene, "plain", "fault", **kind)
            trial.say(f"{kind['name']} in {before.run_id}")
            outcome.struck(before.state)
            trial.mark()
            trial.wait_state("void", "finished", "suite-failed")
        finally:
            _ask_drive(trial.scene, "plain", "clear-faults")
        trial.wait_state("finished")


def _run_hangs(trial: Trial, outcome: Outcome) -> None:
    """Let the shell that runs the workload's script sleep for ever, twice."""
    outcome.wanted = HANGS
    script = (
        "#!/bin/sh\n"
        f'[ "${{1#/}}" != "$1" ] && rm {HANG_FILE} 2>/dev/null && exec sleep 100000\n'
        'exec /bin/sh "$@"\n'
    )
    trial.scene.ssh(f"cat > {FAKE_SHELL} && chmod 755 {FAKE_SHELL}", stdin=script.encode())
    try:
        for _ in range(HANGS):
            trial.mark()
            before = trial.wait_state("running").entry
            trial.scene.ssh(f"touch {HANG_FILE}")
            outcome.struck(before.state)
            trial.mark()
            line = trial.wait_state("void")
            trial.say(f"a program of {line.entry.run_id} hung: {line.entry.detail}")
    finally:
        trial.scene.ssh(f"rm -f {FAKE_SHELL} {HANG_FILE}")


def _kernel_hangs(trial: Trial, outcome: Outcome) -> None:
    """Delay every command of the disks by 20 s: programs block in the kernel, deaf to signals."""
    before = trial.wait_state("running").entry
    try:
        for role in ("plain", "sed"):
            _ask_drive(trial.scene, role, "fault", name="slow-reply", delay_ms=SLOW_MS)
        trial.say(f"the disks hang in {before.run_id}")
        outcome.struck(before.state)
        time.sleep(SLOW_S)
    finally:
        for role in ("plain", "sed"):
            _ask_drive(trial.scene, role, "clear-faults")
    trial.say(f"the disks answer again; {trial.last()}")
    outcome.resumed_s = [trial.wait_resumed("the disks answered")]


def _ctrl_c(trial: Trial, outcome: Outcome) -> None:
    """Press Ctrl-C in a run, in its proof, and while the results are fetched."""
    outcome.wanted = len(CTRL_C_STATES)
    for state in CTRL_C_STATES:
        trial.mark()
        trial.wait_state(state)
        if not trial.controller.running():
            continue
        trial.controller.interrupt()
        code = trial.controller.wait(300)
        trial.say(f"Ctrl-C at {state}: it ended with {code}")
        outcome.struck(state)
        if code not in (0, INTERRUPTED):
            outcome.note = f"ended with {code} after Ctrl-C"
        trial.keep_going()


CLOCK = Fault(
    "clock-step",
    "steps the target's clock by ±1 h within runs",
    "stepped back",
    _clock,
    ("check:clock",),
    small=Small(blocks=4, loads=({**IDLE, "parameters": {"seconds": 5}},)),
)
DRIVE = Fault(
    "drive-error",
    "has the drive fail commands, lose a part of its medium, and answer late",
    "the drive is whole again",
    _drive,
    ("voids",),
    small=Small(blocks=4, loads=(FILE_IO,), configurations=("plain", "dmcrypt-aes256")),
    events=("void-runs",),
    causes=("void",),
)
RUN_HANGS = Fault(
    "run-hangs",
    "puts a program that sleeps for ever in the place of the workload's",
    "the program is removed",
    _run_hangs,
    ("voids",),
    small=HANGING,
    events=("void-runs",),
    causes=("void",),
)
KERNEL_HANGS = Fault(
    "kernel-hangs",
    "has every command of both disks take 20 s for four minutes",
    "the disks answer at once again",
    _kernel_hangs,
    ("voids", "interrupted"),
    small=HANGING,
    events=("void-runs", "interrupted"),
    causes=("void",),
)
CTRL_C = Fault(
    "ctrl-c",
    "presses Ctrl-C at the controller",
    "fde resume",
    _ctrl_c,
    ("resumed",),
    events=("stopped",),
)
