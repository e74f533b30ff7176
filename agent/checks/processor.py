"""Checks of the processor: how fast it may run, and whether it slowed itself down."""

from __future__ import annotations

from agent.checks.scene import Scene, Seen, number, text


def governor(scene: Scene) -> Seen | None:
    """cpufreq's governors, of all CPUs."""
    found = {text(p) for p in scene.cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")} - {None}
    if not found:
        return None
    names = " ".join(sorted(str(name) for name in found))
    return Seen(names, found == {"performance"}, f"the governor is {names}")


def turbo(scene: Scene) -> Seen | None:
    """Whether the processor may go beyond its base frequency (intel_pstate, or cpufreq's boost)."""
    no_turbo = text(scene.cpus / "intel_pstate/no_turbo")
    boost = text(scene.cpus / "cpufreq/boost")
    if no_turbo is None and boost is None:
        return None
    on = no_turbo == "0" if no_turbo is not None else boost == "1"
    return Seen(int(on), not on, "turbo is on")


def idle_states(scene: Scene) -> str | None:
    """The C-states that every CPU may enter, by name; None where the kernel leaves none to it."""
    found = set()
    for cpu in sorted(scene.cpus.glob("cpu[0-9]*/cpuidle")):
        states = sorted(cpu.glob("state[0-9]*"), key=lambda p: int(p.name.removeprefix("state")))
        enabled = [text(s / "name") or s.name for s in states if text(s / "disable") in (None, "0")]
        found.add(" ".join(enabled) or "none")
    return ", ".join(sorted(found)) if found else None


def idle_states_changed(before: str, now: str) -> Seen:
    return Seen(now, now == before, "the C-states that are allowed changed during the run")


def core_throttles(scene: Scene) -> int | None:
    return _throttles(scene, "core")


def package_throttles(scene: Scene) -> int | None:
    return _throttles(scene, "package")


def _throttles(scene: Scene, part: str) -> int | None:
    """How often the processor throttled since boot, over all CPUs; None if it does not count."""
    counts = [
        number(p) for p in scene.cpus.glob(f"cpu[0-9]*/thermal_throttle/{part}_throttle_count")
    ]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def throttled(before: int, now: int) -> Seen:
    return Seen(now - before, now == before, "the processor throttled during the run")
