"""Checks of what else happens on the machine, and of what there is room for."""

from __future__ import annotations

import os
import shutil
import time

from agent import lock, quiet
from agent.checks.context import CheckContext, Observation, text


def held(context: CheckContext) -> Observation:
    """The controller's lease: it asks for no run while a meter is silent, or its disk full."""
    reason = lock.reason(context.run_dir / lock.HOLD.name)
    return Observation(int(reason is not None), reason is None, {"reason": reason or ""})


def suite_room(context: CheckContext) -> Observation | None:
    """Bytes that are free where the results go."""
    if context.suite_dir is None:
        return None
    free = shutil.disk_usage(context.suite_dir).free
    detail = f"{free / 2**20:.0f} MiB free, {context.min_free_bytes / 2**20:.0f} MiB wanted"
    return Observation(free, free >= context.min_free_bytes, detail=detail)


def load(context: CheckContext) -> Observation:
    """How many CPUs others keep busy, over a short window in which this process sleeps."""
    others = _busy_s(context)
    started = time.monotonic()
    time.sleep(context.window_s)
    cpus = round(max(0.0, _busy_s(context) - others) / (time.monotonic() - started), 2)
    detail = f"{cpus:g} CPUs busy, {context.load_limit:g} allowed"
    return Observation(cpus, cpus <= context.load_limit, detail=detail)


def _busy_s(context: CheckContext) -> float:
    """CPU time that was neither idle nor ours, in seconds since boot (proc(5), /proc/stat)."""
    ticks = [int(n) for n in (context.proc / "stat").read_text().splitlines()[0].split()[1:9]]
    busy = sum(ticks) - ticks[3] - ticks[4]  # idle and iowait
    return busy / os.sysconf("SC_CLK_TCK") - time.process_time()


def mounted(context: CheckContext) -> Observation:
    is_mount = context.mount_point.is_mount()
    return Observation(int(is_mount), is_mount)


def free_room(context: CheckContext) -> Observation:
    """Bytes that are free on the file system under test."""
    usage = shutil.disk_usage(context.mount_point)
    return Observation(usage.free, usage.free >= context.min_free_share * usage.total)


def memory(context: CheckContext) -> Observation | None:
    """Bytes that programs could still have."""
    for line in (text(context.proc / "meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
            return Observation(available, available >= context.min_memory_bytes)
    return None


def swap(context: CheckContext) -> Observation | None:
    """Bytes of swap in use."""
    said = text(context.proc / "swaps")
    if said is None:
        return None
    used = sum(int(line.split()[3]) for line in said.splitlines()[1:]) * 1024
    return Observation(used, used == 0)


def powercap(context: CheckContext) -> Observation:
    """How many RAPL counters can be read."""
    zones = sorted(context.sys.glob("class/powercap/intel-rapl:*/energy_uj"))
    readable = [zone for zone in zones if text(zone)]
    return Observation(len(readable), bool(readable))


def timers(context: CheckContext) -> Observation | None:
    """What may start work by itself in the middle of a run."""
    found = quiet.disturbers(context.systemctl)
    if found is None:
        return None
    units = [unit for group in found.values() for unit in group]
    return Observation(" ".join(units) or "none", not found)
