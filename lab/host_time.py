"""What the guest has of the host's processors: time that it used, slept, and was kept waiting for.

Read from outside, of QEMU's virtual CPUs or of User Mode Linux's process tree: often, so that files
stay open and nothing is started. All times only grow. Sources of the clocks: the kernel's
Documentation/scheduler/sched-stats.rst (schedstat: time on a processor, time waiting for one).
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
    """The guest is gone."""


@dataclass(frozen=True)
class GuestTime:
    """Nanoseconds of all CPUs of the guest together since some moment.

    `stolen_ns` is when a CPU had work and the host did not run it, `idle_ns` when it had none.
    """

    cpu_ns: int = 0
    stolen_ns: int = 0
    idle_ns: int = 0


class HostPage:
    """A page that the guest's kernel and the meter share: three numbers, each of 64 bits.

    The guest writes how long its CPU has slept (User Mode Linux alone: lab/kernel/uml.patch), the
    meter what the host has kept from the guest's CPUs, and from the modelled machine as a whole.
    Each is read and written at one go, for the other side looks at any moment; `struct` goes byte
    by byte and clears the place first.
    """

    NAME = "host-page"
    SIZE_BYTES = 4096
    _SLEPT, _STOLEN_CPU, _STOLEN = range(3)

    def __init__(self, path: Path) -> None:
        """Raise OSError where there is no such file."""
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), self.SIZE_BYTES)
        self._numbers = memoryview(self._memory).cast("q")

    @classmethod
    def create(cls, path: Path) -> None:
        """Make the file, all zeros; one that others have mapped is cleared in place."""
        with path.open("r+b" if path.exists() else "xb") as file:
            file.write(bytes(cls.SIZE_BYTES))

    def idle_ns(self, now_ns: int) -> int:
        """How long the guest's CPU has slept by now (CLOCK_MONOTONIC), this very sleep included.

        While it sleeps, the page holds the sum without this sleep less the time of falling asleep,
        which is negative.
        """
        slept_ns = self._numbers[self._SLEPT]
        return slept_ns if slept_ns >= 0 else slept_ns + now_ns

    def publish(self, stolen_cpu_ns: int, stolen_ns: int) -> None:
        """Write to the guest, whose modelled counters and /proc/stat show it."""
        self._numbers[self._STOLEN_CPU] = stolen_cpu_ns
        self._numbers[self._STOLEN] = stolen_ns

    def close(self) -> None:
        self._numbers.release()
        self._memory.close()


class SchedStats:
    """Time on a processor and time waiting for one, of some threads whose files are held open."""

    def __init__(self, files: Sequence[Path]) -> None:
        """Raise OSError where there is no such thread."""
        self._files = [os.open(file, os.O_RDONLY) for file in files]

    def read(self) -> tuple[int, int]:
        """Their sums in ns. Raises ProcessLookupError or ValueError where a thread has ended."""
        fields = [os.pread(file, 64, 0).split() for file in self._files]
        cpu_ns, waited_ns = 0, 0
        for own_ns, delay_ns, _ in fields:
            cpu_ns, waited_ns = cpu_ns + int(own_ns), waited_ns + int(delay_ns)
        return cpu_ns, waited_ns

    def close(self) -> None:
        for file in self._files:
            os.close(file)


class Threads:
    """Single threads of one process: QEMU's virtual CPUs, without its own work."""

    def __init__(self, pid: int, thread_ids: Sequence[int]) -> None:
        """Raise OSError where there is no such thread."""
        tasks = Path(f"/proc/{pid}/task")
        self._stats = SchedStats([tasks / str(int(t)) / "schedstat" for t in thread_ids])
        self.cpus = len(thread_ids)
        self._start: tuple[int, int, int] | None = None

    def read(self, now_ns: int) -> GuestTime:
        """Their sums; stolen and idle since the first reading. Raises PowerLostError."""
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
    """A process and its children, those too that have ended: User Mode Linux on its one CPU.

    Live processes have a clock in ns. What ended ones used is exact once their parent has waited
    for them, but the kernel shows it in ticks: the clocks as last seen fill in what a tick hides.
    What was neither used nor slept, by `page`, the host has kept from it; without a page that is 0.
    """

    cpus = 1

    def __init__(self, pid: int, page: HostPage | None = None) -> None:
        """Raise OSError where there is no such process."""
        self._pid = pid
        self._stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        self._page = page
        self._seen_ns: dict[int, int] = {}
        self._ended_ns = 0
        self._last = GuestTime()
        self._start: tuple[int, int, int] | None = None

    def read(self, now_ns: int) -> GuestTime:
        """Return the sums, none ever less; stolen and idle since the first; or PowerLostError."""
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
        """Of every thread of the process (kernel: CONFIG_PROC_CHILDREN)."""
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
    """How long the threads of a process, which come and go, have waited for a processor."""

    def __init__(self, pid: int) -> None:
        self._tasks = f"/proc/{pid}/task"
        self._threads: dict[str, SchedStats] = {}
        self._last_ns: dict[str, int] = {}
        self._total_ns = 0

    def read_ns(self) -> int:
        """Return the sum in ns, which only grows; as before where the process is gone."""
        with contextlib.suppress(OSError):
            alive = set(os.listdir(self._tasks))  # noqa: PTH208 - a hundred times a second
            for name in self._threads.keys() - alive:
                self._threads.pop(name).close()
            for name in alive:
                self._add(name)
        return self._total_ns

    def _add(self, name: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            if name not in self._threads:
                self._threads[name] = SchedStats([Path(self._tasks, name, "schedstat")])
                self._last_ns[name] = self._threads[name].read()[1]
            delay_ns = self._threads[name].read()[1]
            self._total_ns += max(0, delay_ns - self._last_ns[name])
            self._last_ns[name] = delay_ns

    def close(self) -> None:
        for thread in self._threads.values():
            thread.close()


def _clock_ns(pid: int) -> int:
    """CPU clock of a process; the number is that of clock_getcpuclockid(3) in the GNU library."""
    return time.clock_gettime_ns((~pid << 3) | 2)
