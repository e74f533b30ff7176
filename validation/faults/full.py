"""Disks without free space: the controller's, which holds the recordings, and the target's."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contract.errors import LabError
from validation.faults.trial import AT_WORK, Fault, Outcome, Small, Trial
from validation.scene import SUITES

FULL_S, QUICK_FULL_S = 120.0, 45.0
# A session begins with 256 MiB free, not with less.
DISK_MIB = 384
BALLAST = f"{SUITES}/../ballast"
RESUMED = AT_WORK | {"suite-finished"}  # it may have come to its end before


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Yield a new file system in memory; only root may mount one. Raises LabError.

    Its suites are copied to `folder`/suites in the end.
    """
    place = folder / "disk"
    place.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "fde-faults", str(place)]
    mount = subprocess.run(command, capture_output=True, text=True, check=False)
    if mount.returncode:
        raise LabError(f"a small disk needs the right to mount one: {mount.stderr.strip()}")
    try:
        yield place
        subprocess.run(["cp", "-a", f"{place}/.", str(folder / "suites")], check=False)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False)


def _fill(place: Path) -> Path:
    """Create a file that takes all free space."""
    ballast = place / "ballast"
    piece = bytes(1 << 20)
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while piece:
            if file.write(piece) < len(piece):
                piece = piece[: len(piece) // 2]
    return ballast


def _controller(trial: Trial, outcome: Outcome) -> None:
    place = trial.suite_dir.parent
    outcome.struck(trial.wait_state("running").entry.state)
    ballast = _fill(place)
    free = os.statvfs(place)
    trial.say(f"{free.f_bavail * free.f_frsize} bytes are free on the controller")
    # Nobody resumes the suite before there is room again.
    time.sleep(QUICK_FULL_S if outcome.quick else FULL_S)
    ballast.unlink()
    ended = "" if trial.controller.running() else "; the controller had ended meanwhile"
    trial.say(f"there is room again{ended}")
    outcome.resumed_s = [trial.wait_resumed("there was room", states=RESUMED)]


def _target(trial: Trial, outcome: Outcome) -> None:
    outcome.struck(trial.wait_state("running").entry.state)
    # What is kept for root as well; the last blocks one by one.
    fill = (
        f"fallocate -l $(($(stat -f -c '%f*%S' {SUITES}) - 4194304)) {BALLAST}; "
        f"dd if=/dev/zero of={BALLAST}.rest bs=4096 2>/dev/null; df --output=avail {SUITES}"
    )
    try:
        trial.scene.ssh(fill, check=False)
        trial.say("the target's disk is full")
        time.sleep(QUICK_FULL_S if outcome.quick else FULL_S)
    finally:
        trial.scene.ssh(f"rm -f {BALLAST} {BALLAST}.rest")
    trial.say(f"there is room again; {trial.last()}")
    outcome.resumed_s = [trial.wait_resumed("there was room", states=RESUMED)]


CONTROLLER = Fault(
    "controller-full",
    "fills the file system of the suite's folder on the controller to its last byte",
    "what fills it is removed",
    _controller,
    ("waited:held", "silences"),
    quick=Small(),
    place=small_disk,
    events=("meter-silent",),
)
TARGET = Fault(
    "target-full",
    "fills the target's own file system to its last block",
    "what fills it is removed",
    _target,
    ("waited:room", "voids"),
    quick=Small(),
    events=("waiting", "void-runs"),
    causes=("waiting", "void"),
)
