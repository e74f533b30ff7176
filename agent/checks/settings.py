"""Check that the settings of kernel, processor and disks stay as they were.

Every file in these places counts, so that a setting of a newer kernel is included. Only files that
are not settings are left out: `NO_SETTINGS`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from agent.checks.context import CheckContext, Observation, text
from agent.checks.disks import serial_of
from agent.storage.uses import mounts, read_stack
from contract.names import printable

# What the agent does itself, or what counts or acts when it is read.
NO_SETTINGS = frozenset({"drop_caches", "compact_memory", "stat_refresh", "nr_hugepages_mempolicy"})
_SYS = (
    "devices/system/clocksource/clocksource0/current_clocksource",
    "devices/system/cpu/amd_pstate/*",
    "devices/system/cpu/cpufreq/boost",
    "devices/system/cpu/cpuidle/current_*",
    "devices/system/cpu/intel_pstate/*",
    "devices/system/cpu/online",
    "devices/system/cpu/smt/*",
    "kernel/mm/transparent_hugepage/*",
    "module/nvme*/parameters/*",
    "module/pcie_aspm/parameters/*",
)
# What a laptop's firmware, or thermald, sets as it gets warm.
_LIMITS = (
    "class/powercap/*/constraint_*_power_limit_uw",
    "class/powercap/*/constraint_*_time_window_us",
)
_OF_EACH_CPU = (
    "cpufreq/energy_performance_preference",
    "cpufreq/scaling_driver",
    "cpufreq/scaling_governor",
    "cpufreq/scaling_min_freq",
    "power/energy_perf_bias",
)
_PROC = ("sys/vm/*", "sys/kernel/*watchdog*", "sys/kernel/numa_balancing", "sys/kernel/sched_*")
_OF_DEVICE = (
    "queue/*",
    "queue/iosched/*",
    "device/power/control",
    "device/power/autosuspend_delay_ms",
    "device/power/pm_qos_latency_tolerance_us",
)
_MOST_HZ = "cpufreq/scaling_max_freq"
_MOST_NAMED = 5


def of_machine(sys: Path, proc: Path) -> dict[str, str]:
    """Return the settings of kernel and processor, by their paths below /sys and /proc."""
    return {**_read(sys, _SYS), **_read(proc, _PROC), **_of_cpus(sys, _OF_EACH_CPU)}


def limits(context: CheckContext) -> dict[str, str] | None:
    """Return the limits of power and frequency; None if the kernel has none."""
    return limits_of(context.sys) or None


def limits_of(sys: Path) -> dict[str, str]:
    """Return the limits of power and frequency, by their paths below /sys."""
    return {**_read(sys, _LIMITS), **_of_cpus(sys, (_MOST_HZ,))}


def _of_cpus(sys: Path, names: tuple[str, ...]) -> dict[str, str]:
    cpus = sorted(sys.glob("devices/system/cpu/cpu[0-9]*"))
    values = {n: {value for cpu in cpus if (value := text(cpu / n)) is not None} for n in names}
    return {name: ", ".join(sorted(texts)) for name, texts in values.items() if texts}


def of_device(device: Path) -> dict[str, str]:
    """Return the settings of a block device by its folder in /sys/class/block."""
    return _read(device, _OF_DEVICE)


def _read(root: Path, patterns: tuple[str, ...]) -> dict[str, str]:
    values = {}
    for file in (file for pattern in patterns for file in sorted(root.glob(pattern))):
        if file.name not in NO_SETTINGS and (value := text(file)) is not None:
            # Of a list of choices only the one in brackets: modules bring others.
            chosen = re.search(r"\[([^\]]+)\]", value)
            values[str(file.relative_to(root))] = printable(chosen[1] if chosen else value)
    return values


def read(context: CheckContext) -> dict[str, str] | None:
    """Read all settings; those of the disks' layers carry the configuration's name.

    None without any.
    """
    settings = of_machine(context.sys, context.proc)
    with suppress(FileNotFoundError):  # a machine without block devices
        blocks = context.sys / "class/block"
        stack = read_stack(blocks)
        for disk in context.disks:
            for name in sorted(stack.over(disk) or {disk}):
                layer = text(blocks / name / "dm/name") or name.replace(disk, "")
                label = f"{context.configuration} {layer}"
                if name == disk:
                    label = serial_of(context, disk)
                values = of_device(blocks / name).items()
                settings |= {f"{label} {key}": value for key, value in values}
    with suppress(FileNotFoundError):
        for mount in mounts(str(context.proc / "self")):
            if mount.where == str(context.mount_point):
                settings[f"{context.configuration} mount options"] = mount.options
    return settings or None


def as_at_first(context: CheckContext) -> Observation | None:
    """Compare the settings with those at the beginning of the suite or of the configuration."""
    current = read(context)
    if current is None:
        return None
    return changed(context.first_of_each("settings", current), current)


def changed(before: Mapping[str, str], current: Mapping[str, str]) -> Observation:
    """Compare settings with earlier ones; the facts name each with both values."""
    differing = differences(before, current)
    named = differing[:_MOST_NAMED]
    suffix = f" and {len(differing) - len(named)} more" * (len(differing) > len(named))
    return Observation(len(differing), not differing, {"changed": f"{'; '.join(named)}{suffix}"})


def differences(before: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    """Describe each setting that differs as `name: before, now current`.

    Settings with both values come first: another scheduler brings settings with it.
    """
    names = sorted({*before, *current}, key=lambda n: (n not in before or n not in current, n))
    return [
        f"{name}: {before.get(name, 'absent')}, now {current.get(name, 'absent')}"
        for name in names
        if before.get(name) != current.get(name)
    ]
