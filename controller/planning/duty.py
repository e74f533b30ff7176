"""Sample how much this machine reads, writes and rests, for `fde_assumptions.battery_hour`.

Only totals of /proc/stat and /proc/diskstats (proc(5)) are read, which name no program, file or
person. How much of it is video or SQL they do not show.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from contract import system_text

SECTOR_BYTES, GIB = 512, 2**30
STATES = 8  # of /proc/stat: user to steal; the guests' are part of user's
IDLE = slice(3, 5)  # idle and iowait


@dataclass(frozen=True)
class Totals:
    """Counts since the start of the machine, and its time awake, in s."""

    awake_s: float
    cpu_ticks: int
    idle_ticks: int
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True)
class SampledDuty:
    """What the machine did in `hours` awake: GiB an hour from and to its disks, its idle share."""

    hours: float
    idle_share: float
    read_gib: float
    written_gib: float

    @property
    def lines(self) -> list[str]:
        """What is kept, as YAML for the inventory."""
        return [
            f"# Sampled in {self.hours:.2f} h awake, {self.idle_share * 100:.0f} % idle. "
            "Add video_min and transactions by hand.",
            f"battery_hour: {{read_gib: {self.read_gib:.3g}, written_gib: {self.written_gib:.3g}}}",
        ]


def read_totals(proc: Path = Path("/proc"), sys_block: Path = Path("/sys/block")) -> Totals:
    """Read the counts of all processors, and of all disks that are devices. Raises OSError."""
    cpu = next(line for line in _lines(proc / "stat") if line[0] == "cpu")
    ticks = [int(value) for value in cpu[1 : 1 + STATES]]
    disks = [
        line for line in _lines(proc / "diskstats") if (sys_block / line[2] / "device").exists()
    ]
    read, written = (SECTOR_BYTES * sum(int(line[n]) for line in disks) for n in (5, 9))
    return Totals(time.monotonic(), sum(ticks), sum(ticks[IDLE]), read, written)


def sampled_duty(first: Totals, last: Totals) -> SampledDuty:
    """Return what was done between two readings."""
    hours = (last.awake_s - first.awake_s) / 3600
    return SampledDuty(
        hours,
        (last.idle_ticks - first.idle_ticks) / max(1, last.cpu_ticks - first.cpu_ticks),
        (last.read_bytes - first.read_bytes) / GIB / hours,
        (last.written_bytes - first.written_bytes) / GIB / hours,
    )


def _lines(path: Path) -> list[list[str]]:
    return [line.split() for line in system_text.read(path).splitlines()]
