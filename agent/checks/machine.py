"""Checks of what else happens on the machine, and of what there is room for."""

from __future__ import annotations

import os
import shutil
import time

from agent import lock, quiet
from agent.checks.scene import Scene, Seen, text


def held(scene: Scene) -> Seen:
    """The controller's lease: it asks for no run while a meter is silent, or its disk full."""
    reason = lock.reason(scene.run_dir / lock.HOLD.name)
    return Seen(int(reason is not None), reason is None, reason or "")


def suite_room(scene: Scene) -> Seen | None:
    """Bytes that are free where the results go."""
    if scene.suite_dir is None:
        return None
    free = shutil.disk_usage(scene.suite_dir).free
    detail = f"{free / 2**20:.0f} MiB free, {scene.min_free_bytes / 2**20:.0f} MiB wanted"
    why = "there is no room for the results on the target"
    return Seen(free, free >= scene.min_free_bytes, why, detail)


def load(scene: Scene) -> Seen:
    """How many CPUs others keep busy, over a short window in which this process sleeps."""
    others = _busy_s(scene)
    started = time.monotonic()
    time.sleep(scene.window_s)
    cpus = round(max(0.0, _busy_s(scene) - others) / (time.monotonic() - started), 2)
    detail = f"{cpus:g} CPUs busy, {scene.load_limit:g} allowed"
    return Seen(cpus, cpus <= scene.load_limit, "something else runs on the target", detail)


def _busy_s(scene: Scene) -> float:
    """CPU time that was neither idle nor ours, in seconds since boot (proc(5), /proc/stat)."""
    ticks = [int(n) for n in (scene.proc / "stat").read_text().splitlines()[0].split()[1:9]]
    busy = sum(ticks) - ticks[3] - ticks[4]  # idle and iowait
    return busy / os.sysconf("SC_CLK_TCK") - time.process_time()


def mounted(scene: Scene) -> Seen:
    is_mount = scene.mount_point.is_mount()
    return Seen(int(is_mount), is_mount, "the configuration is not mounted")


def free_room(scene: Scene) -> Seen:
    """Bytes that are free on the file system under test."""
    usage = shutil.disk_usage(scene.mount_point)
    enough = usage.free >= scene.min_free_share * usage.total
    return Seen(usage.free, enough, "the file system under test is nearly full")


def memory(scene: Scene) -> Seen | None:
    """Bytes that programs could still have."""
    for line in (text(scene.proc / "meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
            return Seen(available, available >= scene.min_memory_bytes, "little memory is left")
    return None


def swap(scene: Scene) -> Seen | None:
    """Bytes of swap in use."""
    said = text(scene.proc / "swaps")
    if said is None:
        return None
    used = sum(int(line.split()[3]) for line in said.splitlines()[1:]) * 1024
    return Seen(used, used == 0, "memory is swapped out to a disk")


def powercap(scene: Scene) -> Seen:
    """How many RAPL counters can be read."""
    zones = sorted(scene.sys.glob("class/powercap/intel-rapl:*/energy_uj"))
    readable = [zone for zone in zones if text(zone)]
    return Seen(len(readable), bool(readable), "no RAPL counter can be read")


def timers(scene: Scene) -> Seen | None:
    """What may start work by itself in the middle of a run."""
    found = quiet.disturbers(scene.systemctl)
    if found is None:
        return None
    names = " ".join(found)
    return Seen(names or "none", not found, f"these may start work by themselves: {names}")
