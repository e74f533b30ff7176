"""Checks of the machine: other load, free room, the kernel's log, and clocks.

Wall clocks that people set must not matter, and the machine must not have slept.
"""

from __future__ import annotations

import os
import shutil
import time

from agent.checks import kernel_log
from agent.checks.context import CheckContext, Observation, text
from agent.checks.kernel_log import Line
from agent.system import lock, quiet
from contract import system_text
from instrumentation.clock import ahead_ns, asleep_ns

# By a host: more of it and what a phase takes tells more of the host than of the disk. Of a machine
# whose power is a model of what it did, only so much that hardly any time was its own.
STOLEN_LIMIT = 0.1
STOLEN_LIMIT_MODELLED = 0.8
# Two clocks are read one after the other, and the reader may be put aside in between.
TOLERANCE_NS = 50_000_000


def held(context: CheckContext) -> Observation:
    """Observe whether the controller holds the agent by a lease.

    It asks for no run while a meter is silent, or its disk full.
    """
    reason = lock.reason(context.run_dir / lock.HOLD.name)
    return Observation(int(reason is not None), reason is None, {"reason": reason or ""})


def suite_room(context: CheckContext) -> Observation | None:
    """Observe the bytes that are free on the file system of the results."""
    if context.suite_dir is None:
        return None
    free = shutil.disk_usage(context.suite_dir).free
    detail = f"{free / 2**20:.0f} MiB free, {context.min_free_bytes / 2**20:.0f} MiB wanted"
    return Observation(free, free >= context.min_free_bytes, detail=detail)


def load(context: CheckContext) -> Observation:
    """Count the CPUs that other processes keep busy, over a short window of sleep."""
    busy_before_s = _busy_s(context)
    started = time.monotonic()
    time.sleep(context.window_s)
    cpus = round(max(0.0, _busy_s(context) - busy_before_s) / (time.monotonic() - started), 2)
    detail = f"{cpus:g} CPUs busy, {context.load_limit:g} allowed"
    return Observation(cpus, cpus <= context.load_limit, detail=detail)


def _busy_s(context: CheckContext) -> float:
    """Return the CPU time that was neither idle nor ours, in s since boot (proc(5), /proc/stat)."""
    ticks = [int(n) for n in system_text.read(context.proc / "stat").splitlines()[0].split()[1:9]]
    busy = sum(ticks) - ticks[3] - ticks[4]  # idle and iowait
    return busy / os.sysconf("SC_CLK_TCK") - time.process_time()


def stolen_s(context: CheckContext) -> tuple[float, float, float]:
    """Return the seconds that a host kept from the CPUs, the CPUs' seconds, and the share allowed.

    See proc_stat(5). A modelled machine stops meanwhile; a real one continues drawing power.
    """
    ticks = int(system_text.read(context.proc / "stat").splitlines()[0].split()[8])
    modelled = (context.sys / "module/fde_rapl_sim").exists()
    limit = STOLEN_LIMIT_MODELLED if modelled else STOLEN_LIMIT
    return ticks / os.sysconf("SC_CLK_TCK"), time.monotonic() * (os.cpu_count() or 1), limit


def stolen(before: tuple[float, float, float], current: tuple[float, float, float]) -> Observation:
    """Observe the share of the CPUs' time that the host took."""
    share = round((current[0] - before[0]) / (current[1] - before[1]), 3)
    return Observation(share, share <= current[2])


def mounted(context: CheckContext) -> Observation:
    """Observe whether the configuration is mounted."""
    is_mount = context.mount_point.is_mount()
    return Observation(int(is_mount), is_mount)


def free_room(context: CheckContext) -> Observation:
    """Observe the bytes that are free on the file system under test."""
    usage = shutil.disk_usage(context.mount_point)
    return Observation(usage.free, usage.free >= context.min_free_share * usage.total)


def memory(context: CheckContext) -> Observation | None:
    """Observe the bytes of memory that are available to programs."""
    for line in (text(context.proc / "meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
            return Observation(available, available >= context.min_memory_bytes)
    return None


def swap(context: CheckContext) -> Observation | None:
    """Observe the bytes of swap in use."""
    table = text(context.proc / "swaps")
    if table is None:
        return None
    used_bytes = sum(int(line.split()[3]) for line in table.splitlines()[1:]) * 1024
    return Observation(used_bytes, used_bytes == 0)


def preloaded(context: CheckContext) -> Observation:
    """Observe the libraries that the loader puts into every program, which may change its work."""
    libraries = " ".join((text(context.proc / "1/root/etc/ld.so.preload") or "").split())
    return Observation(libraries or "none", not libraries)


def powercap(context: CheckContext) -> Observation:
    """Count the RAPL counters that can be read."""
    zones = sorted(context.sys.glob("class/powercap/intel-rapl:*/energy_uj"))
    readable = [zone for zone in zones if text(zone)]
    return Observation(len(readable), bool(readable))


def timers(context: CheckContext) -> Observation | None:
    """Observe the active services that may start work in the middle of a run."""
    by_group = quiet.disturbers(context.systemctl)
    if by_group is None:
        return None
    units = [unit for group in by_group.values() for unit in group]
    return Observation(" ".join(units) or "none", not by_group)


def kernel_lines(context: CheckContext) -> list[Line] | None:
    """Return the lines of the kernel's log; None if it cannot be read."""
    return context.kernel_lines


def grave(before: list[Line], current: list[Line]) -> Observation:
    """Count the lines that void the run."""
    lines = kernel_log.grave(kernel_log.since(before, current))
    return Observation(len(lines), not lines, {"lines": kernel_log.show(lines)})


def suspicious(before: list[Line], current: list[Line]) -> Observation:
    """Count the warnings that are not known to be harmless."""
    lines = kernel_log.suspicious(kernel_log.since(before, current))
    return Observation(len(lines), not lines, {"lines": kernel_log.show(lines)})


def wall_offset_ns(_scene: CheckContext) -> int:
    """Return CLOCK_REALTIME − CLOCK_MONOTONIC, which changes when the clock is set, not slewed."""
    return ahead_ns(time.CLOCK_REALTIME)


def sleep_ns(_scene: CheckContext) -> int:
    """Return CLOCK_BOOTTIME − CLOCK_MONOTONIC, the time that the machine slept since boot."""
    return asleep_ns()


def shifted(before_ns: int, now_ns: int) -> Observation:
    """Observe by how many seconds a clock has moved against CLOCK_MONOTONIC."""
    shift_ns = now_ns - before_ns
    return Observation(round(shift_ns / 1e9, 3) + 0.0, abs(shift_ns) <= TOLERANCE_NS)
