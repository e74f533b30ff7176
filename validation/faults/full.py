"""Disks without room: the controller's, which holds the recordings, and the target's."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contract.errors import LabError
from validation.faults.fault import Fault, TrialOptions
from validation.faults.planning import Small
from validation.faults.trial import AT_WORK, Outcome, Trial
from validation.scene import SUITES, Scene

FULL_S, QUICK_FULL_S = 120.0, 45.0
# A session begins with 256 MiB free, not with less.
DISK_MIB = 384
END_LIMIT_S = 2400.0
BALLAST = f"{SUITES}/../ballast"


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A file system of its own in memory; only root may mount one. Raises LabError."""
    place.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "fde-faults", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"a small disk needs the right to mount one: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False)


def _fill(place: Path) -> Path:
    """Nothing fits any more: a file that takes all that is left."""
    ballast = place / "ballast"
    piece = bytes(1 << 20)
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while piece:
            if file.write(piece) < len(piece):
                piece = piece[: len(piece) // 2]
    return ballast


def _controller(scene: Scene, wish: TrialOptions) -> Outcome:
    outcome = Outcome("controller-full", wanted=1, quick=wish.quick)
    place = scene.folder / "controller-full" / "disk"
    with small_disk(place):
        small = Small(blocks=2)
        with Trial.of(scene, "controller-full", small, seed=wish.seed, out=place) as trial:
            before = trial.wait_state("running").entry
            ballast = _fill(place)
            trial.say(f"{_free_bytes(place)} bytes are free on the controller")
            full_s = QUICK_FULL_S if wish.quick else FULL_S
            end = time.monotonic() + full_s
            while time.monotonic() < end:
                # Somebody who looks in the morning: not before there is room again.
                time.sleep(1)
            ballast.unlink()
            back_s = time.monotonic()
            outcome.times, outcome.reached = 1, [before.state]
            ended = "" if trial.controller.running() else "; the controller had ended meanwhile"
            trial.say(f"there is room again{ended}")
            _resumed(trial, outcome, back_s)
            trial.finish(END_LIMIT_S)
            outcome.judgement = trial.judge(
                [r"disk of the controller|controller.{0,60}(full|room)"]
            )
            kept = trial.folder / trial.suite_id
            subprocess.run(["cp", "-a", str(trial.suite_dir), str(kept)], check=False)
            outcome.suite = str(kept)
    return outcome


def _target(scene: Scene, wish: TrialOptions) -> Outcome:
    outcome = Outcome("target-full", wanted=1, quick=wish.quick)
    with Trial.of(scene, "target-full", Small(blocks=2), seed=wish.seed) as trial:
        before = trial.wait_state("running").entry
        # What is kept for root as well; the last blocks one by one.
        fill = (
            f"fallocate -l $(($(stat -f -c '%f*%S' {SUITES}) - 4194304)) {BALLAST}; "
            f"dd if=/dev/zero of={BALLAST}.rest bs=4096 2>/dev/null; df --output=avail {SUITES}"
        )
        try:
            scene.ssh(fill, check=False)
            trial.say("the target's disk is full")
            time.sleep(QUICK_FULL_S if wish.quick else FULL_S)
        finally:
            scene.ssh(f"rm -f {BALLAST} {BALLAST}.rest")
        back_s = time.monotonic()
        outcome.times, outcome.reached = 1, [before.state]
        trial.say(f"there is room again; {trial.last()}")
        _resumed(trial, outcome, back_s)
        trial.finish(END_LIMIT_S)
        outcome.judgement = trial.judge([r"free room on the target|No space left"])
        outcome.suite = str(trial.suite_dir)
    return outcome


def _resumed(trial: Trial, outcome: Outcome, back_s: float) -> None:
    """A line of work after there was room, unless the suite came to its end before."""
    line = trial.wait(
        lambda line: (
            line.heard_s > back_s
            and (line.entry.state in AT_WORK or line.entry.state == "suite-finished")
        ),
        "line of work once there was room",
    )
    outcome.resumed_s = [line.heard_s - back_s]


def _free_bytes(place: Path) -> int:
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


CONTROLLER = Fault(
    "controller-full",
    "fills the file system of the suite's folder on the controller to its last byte",
    "what fills it is removed",
    _controller,
)
TARGET = Fault(
    "target-full",
    "fills the target's own file system to its last block",
    "what fills it is removed",
    _target,
)
