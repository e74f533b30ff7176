"""CPU time of the guest, read from outside: of QEMU's virtual CPUs, or of a process tree.

Both are read often, so files stay open and nothing is started.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
CHILDREN_TIME = slice(13, 15)  # cutime and cstime of /proc/PID/stat, counted after the name


class PowerLostError(Exception):
    """The guest is gone."""


class Threads:
    """CPU time of single threads of one process: QEMU's virtual CPUs, without its own work."""

    def __init__(self, pid: int, thread_ids: Sequence[int]) -> None:
        """Raises OSError where there is no such thread."""
        tasks = Path(f"/proc/{pid}/task")
        self._files = [os.open(tasks / str(int(t)) / "schedstat", os.O_RDONLY) for t in thread_ids]

    def read_ns(self) -> int:
        """Their sum in ns. Raises PowerLostError."""
        try:
            # First field: time on a CPU in ns (kernel, Documentation/scheduler/sched-stats).
            return sum(int(os.pread(file, 64, 0).split()[0]) for file in self._files)
        except (ProcessLookupError, IndexError):
            raise PowerLostError from None

    def close(self) -> None:
        for file in self._files:
            os.close(file)


class ProcessTree:
    """CPU time of a process and its children, of those that have ended too: User Mode Linux.

    Live processes have a clock in ns. What ended ones used is exact once their parent has waited
    for them, but the kernel shows it in ticks: the clocks as last seen fill in what a tick hides.
    """

    def __init__(self, pid: int) -> None:
        """Raises OSError where there is no such process."""
        self._pid = pid
        self._stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        self._seen_ns: dict[int, int] = {}
        self._ended_ns = 0
        self._last_ns = 0

    def read_ns(self) -> int:
        """The sum in ns; never less than before. Raises PowerLostError."""
        alive_ns: dict[int, int] = {}
        for child in self._children():
            with contextlib.suppress(OSError):
                alive_ns[child] = _clock_ns(child)
        try:
            own_ns = _clock_ns(self._pid)
            fields = os.pread(self._stat, 4096, 0).rpartition(b")")[2].split()
            ticks = sum(int(field) for field in fields[CHILDREN_TIME])
            if fields[0] in (b"Z", b"X"):
                raise PowerLostError
        except (OSError, IndexError):
            raise PowerLostError from None
        self._ended_ns += sum(ns for pid, ns in self._seen_ns.items() if pid not in alive_ns)
        self._seen_ns = alive_ns
        floor_ns = ticks * TICK_NS  # two figures, each cut to a whole tick
        self._ended_ns = min(max(self._ended_ns, floor_ns), floor_ns + 2 * TICK_NS)
        self._last_ns = max(self._last_ns, own_ns + self._ended_ns + sum(alive_ns.values()))
        return self._last_ns

    def _children(self) -> list[int]:
        """Of every thread of the process (kernel: CONFIG_PROC_CHILDREN)."""
        tasks = Path(f"/proc/{self._pid}/task")
        try:
            named = [(task / "children").read_text(encoding="ascii") for task in tasks.iterdir()]
        except OSError:
            raise PowerLostError from None
        return [int(word) for text in named for word in text.split()]

    def close(self) -> None:
        os.close(self._stat)


def _clock_ns(pid: int) -> int:
    """CPU clock of a process; the number is that of clock_getcpuclockid(3) in the GNU library."""
    return time.clock_gettime_ns((~pid << 3) | 2)
