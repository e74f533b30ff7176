"""Measure the guest's use of the host's processors: time used, idle and stolen.

The times are read from outside, of QEMU's virtual CPUs or of User Mode Linux's process tree: often,
so that files stay open and no process is started. All times only grow. Sources of the clocks: the
kernel's Documentation/scheduler/sched-stats.rst (schedstat: time on a processor, time waiting for
one).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
CHILDREN_TIME = slice(13, 15)  # cutime and cstime of /proc/PID/stat, counted after the name


class PowerLostError(Exception):
    """The guest has ended."""


@dataclass(frozen=True)
class GuestTime:
    """Nanoseconds of all CPUs of the guest together since some moment.

    `stolen_ns` is time in which a CPU had work and the host did not run it, `idle_ns` without work.
    """

    cpu_ns: int = 0
    stolen_ns: int = 0
    idle_ns: int = 0


class HostPage:
    """A page shared by the guest's kernel and the meter: three numbers of 64 bits.

    The guest writes how long its CPU has slept (User Mode Linux only: lab/kernel/uml.patch), the
    meter the time stolen from the guest's CPUs, and from the modelled machine as a whole. Each
    number is read and written in one access, because the other side may read at any moment;
    `struct` would write single bytes and clear the place first.
    """

    NAME = "host-page"
    SIZE_BYTES = 4096
    _SLEPT, _STOLEN_CPU, _STOLEN = range(3)

    def __init__(self, path: Path) -> None:
        """Map the file. Raises OSError if it does not exist."""
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), self.SIZE_BYTES)
        self._numbers = memoryview(self._memory).cast("q")

    @classmethod
    def create(cls, path: Path) -> None:
        """Create the file, all zeros; clear an existing one in place, because others map it."""
        with path.open("r+b" if path.exists() else "xb") as file:
            file.write(bytes(cls.SIZE_BYTES))

    def idle_ns(self, now_ns: int) -> int:
        """Return how long the guest's CPU has slept until now (CLOCK_MONOTONIC).

        During a sleep the page holds the sum of earlier sleeps less the time of falling asleep,
        which is negative.
        """
        slept_ns = self._numbers[self._SLEPT]
        return slept_ns if slept_ns >= 0 else slept_ns + now_ns

    def publish(self, stolen_cpu_ns: int, stolen_ns: int) -> None:
        """Write stolen time for the guest's modelled counters and /proc/stat."""
        self._numbers[self._STOLEN_CPU] = stolen_cpu_ns
        self._numbers[self._STOLEN] = stolen_ns

    def close(self) -> None:
        self._numbers.release()
        self._memory.close()


class SchedStats:
    """Time on a processor and time waiting for one, of some threads; keeps their files open."""

    def __init__(self, files: Sequence[Path]) -> None:
        """Open the files. Raises OSError if a thread does not exist."""
        self._files = [os.open(file, os.O_RDONLY) for file in files]

    def read(self) -> tuple[int, int]:
        """Return both sums in ns. Raises ProcessLookupError or ValueError if a thread ended."""
        fields = [os.pread(file, 64, 0).split() for file in self._files]
        cpu_ns, waited_ns = 0, 0
        for own_ns, delay_ns, _ in fields:
            cpu_ns, waited_ns = cpu_ns + int(own_ns), waited_ns + int(delay_ns)
        return cpu_ns, waited_ns

    def close(self) -> None:
        for file in self._files:
            os.close(file)


class Threads:
    """Single threads of one process: QEMU's virtual CPUs, without QEMU's other work."""

    def __init__(self, pid: int, thread_ids: Sequence[int]) -> None:
        """Open the threads' files. Raises OSError if one does not exist."""
        tasks = Path(f"/proc/{pid}/task")
        self._stats = SchedStats([tasks / str(int(t)) / "schedstat" for t in thread_ids])
        self.cpus = len(thread_ids)
        self._start: tuple[int, int, int] | None = None

    def read(self, now_ns: int) -> GuestTime:
        """Return the sums; stolen and idle since the first reading. Raises PowerLostError."""
        try:
            cpu_ns, waited_ns = self._stats.read()
        except (ProcessLookupError, ValueError):
            raise PowerLostError from None
        start_ns, cpu_start_ns, waited_start_ns = self._start = self._start or (
            now_ns,
            cpu_ns,
            waited_ns,
        )
        stolen_ns = waited_ns - waited_start_ns
        idle_ns = (now_ns - start_ns) * self.cpus - (cpu_ns - cpu_start_ns) - stolen_ns
        return GuestTime(cpu_ns, stolen_ns, max(0, idle_ns))

    def close(self) -> None:
        self._stats.close()


class ProcessTree:
    """A process and its children, including ended ones: User Mode Linux on its one CPU.

    Live processes have a clock in ns. The time of ended ones is exact after their parent has waited
    for them, but the kernel shows it in ticks; the last readings of the clocks fill in the rest of
    a tick. Time neither used nor slept, by `page`, was stolen by the host; without a page that is
    0.
    """

    cpus = 1

    def __init__(self, pid: int, page: HostPage | None = None) -> None:
        """Open the process's file. Raises OSError if it does not exist."""
        self._pid = pid
        self._stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        self._page = page
        self._seen_ns: dict[int, int] = {}
        self._ended_ns = 0
        self._last = GuestTime()
        self._start: tuple[int, int, int] | None = None

    def read(self, now_ns: int) -> GuestTime:
        """Return non-decreasing sums; stolen and idle since the first. Raises PowerLostError."""
        cpu_ns = self._cpu_ns()
        idle_ns = stolen_ns = 0
        if self._page is not None:
            slept_ns = self._page.idle_ns(now_ns)
            if self._start is None:
                self._start = now_ns, slept_ns, cpu_ns
            idle_ns = slept_ns - self._start[1]
            stolen_ns = (now_ns - self._start[0]) - idle_ns - (cpu_ns - self._start[2])
        last = self._last
        self._last = GuestTime(
            max(last.cpu_ns, cpu_ns), max(last.stolen_ns, stolen_ns), max(last.idle_ns, idle_ns)
        )
        return self._last

    def _cpu_ns(self) -> int:
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
        return own_ns + self._ended_ns + sum(alive_ns.values())

    def _children(self) -> list[int]:
        """Return the child processes of every thread (kernel: CONFIG_PROC_CHILDREN)."""
        tasks = Path(f"/proc/{self._pid}/task")
        try:
            named = [(task / "children").read_text(encoding="ascii") for task in tasks.iterdir()]
        except OSError:
            raise PowerLostError from None
        return [int(word) for text in named for word in text.split()]

    def close(self) -> None:
        os.close(self._stat)
        if self._page is not None:
            self._page.close()


class Delay:
    """Time that the threads of a process, including new and ended ones, waited for a processor."""

    def __init__(self, pid: int) -> None:
        self._tasks = f"/proc/{pid}/task"
        self._threads: dict[str, SchedStats] = {}
        self._last_ns: dict[str, int] = {}
        self._total_ns = 0

    def read_ns(self) -> int:
        """Return the sum in ns, which only grows; unchanged if the process has ended."""
        with contextlib.suppress(OSError):
            alive = set(os.listdir(self._tasks))  # noqa: PTH208 - a hundred times a second
            for name in self._threads.keys() - alive:
                self._threads.pop(name).close()
            for name in alive:
                with contextlib.suppress(OSError, ValueError):
                    if name not in self._threads:
                        self._threads[name] = SchedStats([Path(self._tasks, name, "schedstat")])
                        self._last_ns[name] = self._threads[name].read()[1]
                    delay_ns = self._threads[name].read()[1]
                    self._total_ns += max(0, delay_ns - self._last_ns[name])
                    self._last_ns[name] = delay_ns
        return self._total_ns

    def close(self) -> None:
        for thread in self._threads.values():
            thread.close()


def _clock_ns(pid: int) -> int:
    """Return the CPU clock of a process; clock_getcpuclockid(3) of the GNU C library numbers it."""
    return time.clock_gettime_ns((~pid << 3) | 2)
