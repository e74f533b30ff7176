"""How busy other programs keep this host, and whether that disturbs a virtual lab."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

LOAD_WINDOW_S = 1.0
# What a lab keeps busy: a processor for its guest, and one for its drives, meter and recorder.
CPUS_OF_A_LAB = 2
# Of the processors that the labs want, so much may be taken before it is worth a warning.
QUIET_SHARE = 0.1


@dataclass(frozen=True)
class Host:
    """Processors that this process may use, and how many of them others use; None: unknown."""

    cpus: int
    busy_cpus: float | None

    @classmethod
    def measure(cls, window_s: float = LOAD_WINDOW_S) -> Host:
        """Measure from /proc/stat at both ends of a window of `window_s` seconds."""
        cpus = os.sched_getaffinity(0)
        before = cpu_ticks(cpus)
        time.sleep(window_s)
        return cls(len(cpus), busy(before, cpu_ticks(cpus), len(cpus)))

    def busy_sentence(self, labs: int) -> str:
        """Describe other programs' load if it disturbs that many labs; empty if it does not."""
        if self.busy_cpus is None:
            return "How busy this machine is could not be read from /proc/stat."
        needed_cpus = min(self.cpus, labs * CPUS_OF_A_LAB)
        lacking = needed_cpus - min(needed_cpus, self.cpus - self.busy_cpus)
        if lacking <= QUIET_SHARE * needed_cpus:
            return ""
        processors = "the only processor" if self.cpus == 1 else f"{self.cpus} processors"
        return f"Other programs keep {self.busy_cpus:.1f} of {processors} busy."


def cpu_ticks(cpus: Collection[int]) -> tuple[int, int] | None:
    """Return the ticks that these processors have spent at work, and in all.

    Those that a hypervisor took away count as work. None where /proc/stat does not have them.
    """
    at_work = total = cpu_lines = 0
    try:
        for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
            name, *fields = line.split()
            if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in cpus:
                user, nice, system, idle, waiting, *interrupts = map(int, fields[:8])
                cpu_lines += 1
                at_work += user + nice + system + sum(interrupts)
                total += user + nice + system + idle + waiting + sum(interrupts)
    except (OSError, ValueError):
        return None
    return (at_work, total) if cpu_lines == len(cpus) else None


def busy(before: tuple[int, int] | None, after: tuple[int, int] | None, cpus: int) -> float | None:
    """Return how many of the processors were busy between two `cpu_ticks`; None: unknown."""
    if before is None or after is None or after[1] <= before[1]:
        return None
    share = (after[0] - before[0]) / (after[1] - before[1])
    return round(cpus * min(1.0, max(0.0, share)), 2)
