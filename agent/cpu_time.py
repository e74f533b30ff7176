"""How long the machine's CPUs were busy, from the first line of /proc/stat."""

from __future__ import annotations

import os
from pathlib import Path

STAT = Path("/proc/stat")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# user nice system idle iowait irq softirq; what follows is a hypervisor's (steal), or counted
# under user already (guest).
_BUSY = (0, 1, 2, 5, 6)


def busy_s(stat: Path = STAT) -> float:
    """Seconds since boot that all logical CPUs together did not rest, in steps of a clock tick
    (10 ms as a rule): without idle and iowait. See proc_stat(5)."""
    with stat.open("rb", buffering=0) as file:
        line = file.read(512).split(b"\n", 1)[0]
    ticks = [int(word) for word in line.split()[1:]]
    return sum(ticks[place] for place in _BUSY) / _TICKS_PER_S
