"""Checks of the processor: its speed, whether it slowed itself down, and its heat."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from agent.checks.context import CheckContext, Observation, number, text
from agent.marks import cpus_s

# What sensors of the processor's package are called: the kernel's thermal zone; hwmon's labels.
_ZONE = "x86_pkg_temp"
_LABELS = {"coretemp": ("Package",), "k10temp": ("Tctl", "Tdie"), "zenpower": ("Tctl", "Tdie")}
# A sensor that reports less or more is broken or absent.
_SENSIBLE_C = (-20.0, 150.0)
# So long a cold machine is left to itself before it is made to work.
PATIENCE_S = 20.0
BUSY_S = 5.0


def temperature_c(context: CheckContext) -> float | None:
    """Read the hottest sensor of the processor's package, else of all thermal zones."""
    readings = [*_package(context.sys)] or [*_zones(context.sys, "")]
    sensible = [c for c in readings if _SENSIBLE_C[0] < c < _SENSIBLE_C[1]]
    return round(max(sensible), 1) if sensible else None


def _zones(sys: Path, kind: str) -> Iterator[float]:
    for zone in sys.glob("class/thermal/thermal_zone[0-9]*"):
        value = number(zone / "temp")
        if value is not None and (not kind or text(zone / "type") == kind):
            yield value / 1000


def _package(sys: Path) -> Iterator[float]:
    yield from _zones(sys, _ZONE)
    for chip in sys.glob("class/hwmon/hwmon[0-9]*"):
        prefixes = _LABELS.get(text(chip / "name") or "", ())
        for label in chip.glob("temp[0-9]*_label"):
            value = number(label.with_name(label.name.replace("_label", "_input")))
            if value is not None and (text(label) or "").startswith(prefixes or ("\0",)):
                yield value / 1000


def temperature(context: CheckContext) -> Observation | None:
    """Observe whether the temperature is within the band around the suite's first reading."""
    current = temperature_c(context)
    if current is None:
        return None
    first = context.first("temperature_c", current)
    detail = f"{current:.1f} °C, {first:.1f} °C ± {context.band_c:g} °C wanted"
    direction = "warmer" if current > first else "colder"
    is_within = first - context.band_c <= current <= first + context.band_c
    return Observation(current, is_within, {"way": direction}, detail)


def warm_up(context: CheckContext, waited_s: float) -> bool:
    """Keep all CPUs busy for a moment if the machine is too cold and waiting does not help."""
    current = temperature_c(context)
    if current is None or waited_s < PATIENCE_S:
        return False
    if current >= context.first("temperature_c", current) - context.band_c:
        return False
    work(BUSY_S)
    return True


def work(seconds: float) -> float:
    """Keep all CPUs busy with hashing; return the share of their time that they received.

    The rest is what a hypervisor kept from them.
    """
    begin_s, (busy_s, _) = time.monotonic(), cpus_s()
    end_s = begin_s + seconds

    def busy() -> None:
        piece = bytes(2**20)
        while time.monotonic() < end_s:
            hashlib.sha256(piece)

    # Hashing large pieces lets other threads run meanwhile, so that threads do for all CPUs.
    threads = [threading.Thread(target=busy) for _ in range(os.cpu_count() or 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (cpus_s()[0] - busy_s) / ((time.monotonic() - begin_s) * len(threads))


def governor(context: CheckContext) -> Observation | None:
    """Observe the governors of all CPUs (cpufreq)."""
    governors = {text(p) for p in context.cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")} - {None}
    if not governors:
        return None
    names = " ".join(sorted(str(name) for name in governors))
    return Observation(names, governors == {"performance"})


def turbo(context: CheckContext) -> Observation | None:
    """Observe whether the processor may exceed its base frequency (intel_pstate or cpufreq)."""
    no_turbo = text(context.cpus / "intel_pstate/no_turbo")
    boost = text(context.cpus / "cpufreq/boost")
    if no_turbo is None and boost is None:
        return None
    on = no_turbo == "0" if no_turbo is not None else boost == "1"
    return Observation(int(on), not on)


def idle_states(context: CheckContext) -> str | None:
    """Name the C-states that every CPU may enter.

    None if the kernel does not offer any.
    """
    state_sets = set()
    for cpu in sorted(context.cpus.glob("cpu[0-9]*/cpuidle")):
        states = sorted(cpu.glob("state[0-9]*"), key=lambda p: int(p.name.removeprefix("state")))
        enabled = [text(s / "name") or s.name for s in states if text(s / "disable") in (None, "0")]
        state_sets.add(" ".join(enabled) or "none")
    return ", ".join(sorted(state_sets)) if state_sets else None


def idle_states_changed(before: str, current: str) -> Observation:
    """Compare the idle states with the earlier ones."""
    return Observation(current, current == before)


def throttles(context: CheckContext, part: str) -> int | None:
    """Count how often `core` or `package` throttled since boot, all CPUs; None without counters."""
    counts = [
        number(p) for p in context.cpus.glob(f"cpu[0-9]*/thermal_throttle/{part}_throttle_count")
    ]
    readable = [count for count in counts if count is not None]
    return sum(readable) if readable else None


def throttled(before: int, current: int) -> Observation:
    """Observe how often the processor throttled since `before`."""
    return Observation(current - before, current == before)
