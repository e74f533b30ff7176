"""The controller's bound on a suite: no run begins that could not end in time."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from contract import strict_json
from contract.attempts import NS, History
from contract.files import write_json
from contract.journal import boot_id
from contract.plan import Plan, Run

FILE = ".bounds.json"
# A run may take this many times its workload's longest duration so far.
RESERVE = 1.25


@dataclass(frozen=True)
class Bounds:
    """The controller's bounds; without `seconds` there is no limit of time.

    All runs must end within `seconds` after `since_ns` (CLOCK_BOOTTIME of the boot `boot_id`),
    which the agent sets. `known_s` are the longest durations of runs by entry in earlier suites,
    with their switch.
    """

    seconds: float | None = None
    known_s: Mapping[str, float] = field(default_factory=dict)
    boot_id: str = ""
    since_ns: int = 0

    @property
    def left_s(self) -> float:
        """Seconds until all runs must be over."""
        if self.seconds is None:
            return math.inf
        return self.seconds - (boottime_ns() - self.since_ns) / NS

    def admit(self, plan: Plan, history: History, run: Run) -> bool:
        """Whether a run that begins now ends in time."""
        return needed_s(plan, history, run, self.known_s) <= self.left_s


def boottime_ns() -> int:
    """Return the monotonic clock that counts the time in which the machine sleeps, too."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def store(suite_dir: Path, bounds: Bounds) -> None:
    """Replace the bounds of a suite, from now on."""
    suite_dir.mkdir(parents=True, exist_ok=True)
    stamped = replace(bounds, boot_id=boot_id(), since_ns=boottime_ns())
    write_json(suite_dir / FILE, asdict(stamped))


def parse(text: str) -> Bounds:
    """Parse bounds from JSON; raises ValueError."""
    return strict_json.parse(Bounds, text)


def load(suite_dir: Path) -> Bounds:
    """Return the bounds of a suite that were set in this boot; without limits if there are none."""
    bounds = strict_json.load(Bounds, suite_dir / FILE)
    return bounds if bounds and bounds.boot_id == boot_id() else Bounds()


def needed_s(plan: Plan, history: History, run: Run, known_s: Mapping[str, float]) -> float:
    """Return the longest time that a run may take: 1.25 times its workload's longest so far.

    Rests and the longest switch are included. A workload without earlier runs, here or in
    `known_s`, may take its limit.
    """
    attempts = [attempt for attempt in history.attempts if attempt.finished]
    workloads = {run.run_id: run.workload for run in plan.runs}
    worked_s = [
        attempt.worked_s
        for attempt in attempts
        if attempt.worked_s is not None and workloads.get(attempt.run_id) == run.workload
    ]
    switch_s = max((s for attempt in attempts for s in attempt.switches_s), default=0.0)
    longest_s = max(max(worked_s) + switch_s if worked_s else 0.0, known_s.get(run.workload, 0.0))
    if longest_s:
        return RESERVE * longest_s
    return (math.inf if plan.run_limit_s is None else plan.run_limit_s) + switch_s
