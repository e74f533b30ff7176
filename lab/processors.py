"""Choose the host's processor for a guest; all other processes run on the remaining ones.

User Mode Linux passes every system call between two processes: on two processors that is a wake-up
across them, on one a switch, fifteen times as fast and with constant duration.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

PROC = Path("/proc")
CPUS = Path("/sys/devices/system/cpu")
WINDOW_S = 0.2
GUEST = "linux"  # the name of the process of the guest's kernel
BUSY = (0, 1, 2, 5, 6, 7)  # user nice system irq softirq steal: proc_stat(5)


@contextmanager
def chosen(lock: Path) -> Iterator[int | None]:
    """Yield the processor for one more guest; None if this process may use only one.

    It is a processor without a guest and, among these, the least busy one; load on the same core
    counts too. Start the guest within the context: the next caller waits for `lock`, and then sees
    it.
    """
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        yield None
        return
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = _ticks()
        time.sleep(WINDOW_S)
        busy = {cpu: ticks - before.get(cpu, ticks) for cpu, ticks in _ticks().items()}
        shared = {cpu: sum(busy.get(sibling, 0) for sibling in siblings(cpu)) for cpu in usable}
        yield best(usable, taken(), shared)


def best(usable: Iterable[int], taken: set[int], busy: Mapping[int, int]) -> int:
    """Return a free processor rather than a taken one, then the idlest, then the last one."""
    return min(usable, key=lambda cpu: (cpu in taken, busy.get(cpu, 0), -cpu))


def bound(command: Sequence[str], processor: int | None, *, guest: bool) -> list[str]:
    """Return `command` on the guest's processor, or on all others; unchanged without one."""
    usable = sorted(os.sched_getaffinity(0))
    listed = [cpu for cpu in usable if (cpu == processor) == guest]
    if processor is None or not listed:
        return [*command]
    return ["taskset", "--cpu-list", ",".join(map(str, listed)), *command]


def taken(proc: Path = PROC) -> set[int]:
    """Return the processors of running guests, including those of other users."""
    cpus = set()
    for status in proc.glob("[0-9]*/status"):
        try:
            text = status.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # the process has ended
        fields = dict(line.partition(":\t")[::2] for line in text.splitlines())
        allowed = fields.get("Cpus_allowed_list", "")
        if fields.get("Name") == GUEST and allowed.isdigit():
            cpus.add(int(allowed))
    return cpus


def _ticks() -> dict[int, int]:
    """Return the busy ticks of each processor since boot."""
    lines = (line.split() for line in (PROC / "stat").read_text(encoding="ascii").splitlines())
    return {
        int(name[3:]): sum(int(fields[place]) for place in BUSY)
        for name, *fields in lines
        if name.startswith("cpu") and name != "cpu"
    }


def siblings(cpu: int, cpus: Path = CPUS) -> set[int]:
    """Return the processors of the same core, including this one."""
    try:
        listed = (cpus / f"cpu{cpu}/topology/thread_siblings_list").read_text(encoding="ascii")
    except OSError:
        return {cpu}
    numbers = {cpu}
    for part in listed.strip().split(","):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers
