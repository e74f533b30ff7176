"""Conditions that a fair run needs: a flat table, looked at before or after every run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Value = int | float | str | None
CPU = Path("/sys/devices/system/cpu")
_MIN_FREE_SHARE = 0.05
_MIN_MEMORY_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Scene:
    """What the checks look at."""

    mount_point: Path
    load_limit: float = 0.0

    @classmethod
    def here(cls, mount_point: Path) -> Scene:
        return cls(mount_point, load_limit=max(1.0, 0.5 * (os.cpu_count() or 1)))


@dataclass(frozen=True)
class Check:
    """`look` gives (value, ok); value None means that the machine does not offer it: no finding.

    `when` is `before` or `after`; `severity` `note`, `warning` or `blocker` (a blocker that fails
    voids the run); `mend` is the way out.
    """

    name: str
    when: str
    severity: str
    look: Callable[[Scene], tuple[Value, bool]]
    mend: str


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _governor(_scene: Scene) -> tuple[Value, bool]:
    governor = _text(CPU / "cpu0/cpufreq/scaling_governor")
    return governor, governor in (None, "performance")


def _turbo(_scene: Scene) -> tuple[Value, bool]:
    no_turbo = _text(CPU / "intel_pstate/no_turbo")
    boost = _text(CPU / "cpufreq/boost")
    on = no_turbo == "0" if no_turbo is not None else boost == "1"
    return (None if no_turbo is None and boost is None else int(on)), not on


def _free_room(scene: Scene) -> tuple[Value, bool]:
    usage = shutil.disk_usage(scene.mount_point)
    return usage.free, usage.free >= _MIN_FREE_SHARE * usage.total


def _mounted(scene: Scene) -> tuple[Value, bool]:
    mounted = scene.mount_point.is_mount()
    return int(mounted), mounted


def _memory(_scene: Scene) -> tuple[Value, bool]:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
            return available, available >= _MIN_MEMORY_BYTES
    return None, True


def _swap(_scene: Scene) -> tuple[Value, bool]:
    used = sum(int(line.split()[3]) for line in Path("/proc/swaps").read_text().splitlines()[1:])
    return used * 1024, used == 0


def _load(scene: Scene) -> tuple[Value, bool]:
    # Runnable threads now, this one left out: the load average still remembers the run before.
    running = int(Path("/proc/loadavg").read_text().split()[3].split("/")[0]) - 1
    return running, running <= scene.load_limit


def _powercap(_scene: Scene) -> tuple[Value, bool]:
    zones = sorted(Path("/sys/class/powercap").glob("intel-rapl:*/energy_uj"))
    readable = [zone for zone in zones if _text(zone)]
    return len(readable), bool(readable)


def _throttle(_scene: Scene) -> tuple[Value, bool]:
    counts = [_text(p) for p in CPU.glob("cpu[0-9]*/thermal_throttle/*_throttle_count")]
    numbers = [int(count) for count in counts if count is not None]
    return (sum(numbers) if numbers else None), True


TABLE: tuple[Check, ...] = (
    Check("governor", "before", "warning", _governor, "set the governor to performance"),
    Check("turbo", "before", "warning", _turbo, "switch turbo off, or accept its noise"),
    Check("mounted", "before", "blocker", _mounted, "look at the agent's log: entering failed"),
    Check("free-room", "before", "blocker", _free_room, "make extent_bytes larger"),
    Check("memory", "before", "warning", _memory, "stop what fills the memory"),
    Check("swap", "before", "warning", _swap, "swapoff -a"),
    Check("load", "before", "warning", _load, "stop what else runs on the target"),
    Check("powercap", "before", "blocker", _powercap, "modprobe intel_rapl_msr, run as root"),
    Check("throttle", "before", "note", _throttle, "cool the machine"),
    Check("swap", "after", "warning", _swap, "swapoff -a, or choose smaller sizes"),
    Check("throttle", "after", "note", _throttle, "cool the machine"),
)
