"""Resources of a process, from /proc (proc_pid_stat(5), proc_pid_status(5), proc_pid_smaps(5))."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def cpu_s(pid: int, *, waited_children: bool = False) -> float:
    """Return CPU time in user and kernel mode, in s. Raises OSError for an unknown process.

    `waited_children` adds that of its children which have ended and been waited for.
    """
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    times = fields.rpartition(")")[2].split()[11 : 15 if waited_children else 13]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    """Return the largest resident set, in 10⁶ bytes. Raises OSError as above."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    peak_kib = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), "0")
    return int(peak_kib) * 1024 / 1e6


def proportional_mb(pid: int) -> float:
    """Return its memory in 10⁶ bytes, shared pages by their part; 0 once it has ended."""
    lines: list[str] = []
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6


def descendants(pid: int) -> Iterator[int]:
    """Yield the children of a process, and theirs."""
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, listed.read_text(encoding="ascii").split()):
                yield child
                yield from descendants(child)
