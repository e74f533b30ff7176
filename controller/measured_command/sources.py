"""The sources of energy of this machine: which there are, and their joules between two reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from agent.provenance import SIMULATED_RAPL, lab_word
from contract.extensions import ExtensionError
from contract.measured_command import Component, Origin
from controller.names import require_known
from instrumentation.sources import hwmon, nvml, registry
from instrumentation.sources.accuracy import UPDATE_S
from instrumentation.sources.counter import (
    BEYOND_BOUND,
    PLATFORM_MAX_POWER_W,
    READ_FAILED,
    REOPENED,
    ReadFailure,
    Reading,
    total,
)
from instrumentation.sources.registry import SourceError
from instrumentation.sources.zones import Zone, summands

# Two ways to the same counters, by what they cost: the first that opens is taken. pyRAPL, a third,
# corrects no wraps.
RAPL_READERS = ("powercap", "perf")
_SAME_COUNTERS = "pyrapl"
# A counter that wraps is read this often meanwhile, so that it cannot wrap twice unseen.
GUARD_S = 5.0
_NO_FIGURE = {REOPENED, BEYOND_BOUND, READ_FAILED}
_ENDLESS_UJ = 2**63  # of a counter that never wraps
CPU, CPU_AND_MEMORY = "cpu", "cpu+memory"

Readings = Mapping[str, Reading | ReadFailure]


class Source(Protocol):
    """An open source of the registry; `zones` where it is RAPL, `limits` where it is coarse."""

    @property
    def names(self) -> Sequence[str]: ...
    def read(self) -> dict[str, Reading | ReadFailure]: ...
    def close(self) -> None: ...


def registered() -> dict[str, Callable[[], Source]]:
    """How each source is opened, in the order in which that is tried."""
    others = (n for n in registry.names() if n not in (*RAPL_READERS, _SAME_COUNTERS))
    return {name: partial(_open, name) for name in (*RAPL_READERS, *others)}


def _open(name: str) -> Source:
    source: Source = registry.load(name).open()
    return source


@dataclass
class LocalSources:
    """All sources that could be opened, and in sentences why the others could not."""

    opened: Mapping[str, Source]
    refused: Mapping[str, str]
    _sums: dict[str, Sequence[str]] = field(default_factory=dict)
    _zones: dict[str, Zone] = field(default_factory=dict)

    @classmethod
    def open(cls, openers: Mapping[str, Callable[[], Source]] | None = None) -> LocalSources:
        """Open what there is, or only what `openers` name; it may be nothing."""
        openers = registered() if openers is None else openers
        opened: dict[str, Source] = {}
        refused: dict[str, str] = {}
        for name, opener in openers.items():
            if name in RAPL_READERS and any(reader in opened for reader in RAPL_READERS):
                continue
            try:
                opened[name] = opener()
            except (SourceError, ExtensionError) as error:
                refused[name] = str(error)
        found = cls(opened, refused)
        for source in opened.values():
            found._zones |= {zone.name: zone for zone in getattr(source, "zones", ())}
        parts = summands(n for n, zone in found._zones.items() if zone.mirror_of is None)
        if parts["package"]:
            name = CPU_AND_MEMORY if parts["dram"] else CPU
            found._sums[name] = [*parts["package"], *parts["dram"]]
        return found

    @property
    def components(self) -> dict[str, Component]:
        """What is measured, by name; the origin is the lab's model wherever that provides it."""
        lab = lab_word("fde.machine", Path("/proc/cmdline").read_text()) is not None
        origin: Origin = "modelled" if lab or SIMULATED_RAPL.exists() else "measured"
        found = {
            name: Component("RAPL", f"{' + '.join(parts)} (RAPL)", origin)
            for name, parts in self._sums.items()
        }
        for source, one in self.opened.items():
            shown = "RAPL" if source in RAPL_READERS else source
            for name in one.names:
                found[name] = Component(shown, f"{name} ({shown})", origin)
        return found

    def read(self) -> Readings:
        """Every counter now."""
        return {n: r for source in self.opened.values() for n, r in source.read().items()}

    def between(self, series: Sequence[Readings]) -> dict[str, Used]:
        """By component, the joules from the first to the last of some readings."""
        found = {name: self._used(name, series) for name in series[-1]}
        for name, parts in self._sums.items():
            found[name] = added([found[part] for part in parts])
        return found

    def _used(self, name: str, series: Sequence[Readings]) -> Used:
        zone = self._zones.get(name)
        range_uj, bound_w = (
            (zone.max_range_uj, zone.max_power_w) if zone else (_ENDLESS_UJ, PLATFORM_MAX_POWER_W)
        )
        readings = [one[name] for one in series]
        found = total(readings, range_uj, bound_w)
        first, last = readings[0], readings[-1]
        if (
            found.energy_uj is None
            or _NO_FIGURE & set(found.flags)
            or not isinstance(first, Reading)
            or not isinstance(last, Reading)
        ):
            reasons = [one.error for one in readings if isinstance(one, ReadFailure)]
            return Used(None, 0.0, tuple(dict.fromkeys([*found.flags, *reasons])))
        middles = [(r.t_before_ns + r.t_after_ns) / 2 for r in (first, last)]
        return Used(found.energy_uj / 1e6, (middles[1] - middles[0]) * 1e-9, found.flags)

    def limits(self) -> list[str]:
        """How coarse they are, as far as they tell."""
        return [
            sentence
            for source in self.opened.values()
            for sentence in getattr(source, "limits", tuple)()
        ]

    def close(self) -> None:
        for source in self.opened.values():
            source.close()


@dataclass(frozen=True)
class Used:
    """Joules over the seconds between two reads; None where they are not known, and why."""

    energy_j: float | None
    seconds: float
    flags: tuple[str, ...] = ()
    coverage: float = 1.0  # the share of them that was measured


def added(parts: Sequence[Used]) -> Used:
    """Of several counters together."""
    energies = [part.energy_j for part in parts]
    flags = tuple(dict.fromkeys(flag for part in parts for flag in part.flags))
    known = [energy for energy in energies if energy is not None]
    energy_j = sum(known) if len(known) == len(energies) else None
    return Used(energy_j, max(part.seconds for part in parts), flags)


class Guard:
    """Reads counters now and then while a command runs, for those that wrap."""

    def __init__(self, sources: LocalSources) -> None:
        self._sources = sources
        self._running = threading.Lock()
        self._thread = threading.Thread(target=self._read, name="guard", daemon=True)
        self.readings: list[Readings] = []

    def __enter__(self) -> Guard:
        self._running.acquire()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.release()
        self._thread.join()

    def _read(self) -> None:
        while not self._running.acquire(timeout=GUARD_S):
            self.readings.append(self._sources.read())


def main_component(components: Mapping[str, Component], wanted: str | None) -> str:
    """What is compared: the one that is named, else that which sees most of the machine.

    Raises ControllerError where there is none of that name, or none at all.
    """
    if wanted is not None:
        require_known("component", [wanted], components)
        return wanted
    meters = [name for name, one in components.items() if one.source.startswith("meter ")]
    boards = [name for name in components if name.startswith("power_meter/")]
    whole = [n for n in meters if n == "system"] + meters + ["battery", "battery/gauge", *boards]
    order = [*whole, "psys", CPU_AND_MEMORY, CPU, *components]
    return next(name for name in order if name in components)


# Shorter than so many updates of its source, a run's figure is mostly the source's step.
FEW_UPDATES = 100
FEW_POLLS = 10


def too_short(source: str, seconds: float) -> str:
    """A sentence where a run is short for its source, else nothing."""
    if source == "RAPL" and seconds < FEW_UPDATES * UPDATE_S:
        return (
            f"A run of {seconds * 1e3:.3g} ms is short for RAPL, whose counters change about every "
            f"millisecond: each single figure may be off by up to {2 * UPDATE_S / seconds:.0%}. "
            "Let the command repeat its work."
        )
    poll_s = {"hwmon": hwmon.PERIOD_S, "nvml": nvml.PERIOD_S}.get(source)
    if poll_s and seconds < FEW_POLLS * poll_s:
        return (
            f"A run of {seconds * 1e3:.3g} ms is short for {source}: power is polled every "
            f"{poll_s * 1e3:g} ms, and how often a sensor or counter is renewed its maker seldom "
            "says. Let the command repeat its work."
        )
    return ""


def nothing_found(refused: Mapping[str, str]) -> str:
    """What was looked for, and the ways out: first what is there and only cannot be read."""
    wanted = (
        "RAPL (powercap, perf_event), a battery that is being discharged, energy and power sensors "
        "(hwmon) and NVIDIA's library (NVML)"
    )
    ways = "name a meter with --meter, or try it in the virtual lab (`make lab` in a checkout)"
    there = [
        said
        for name, said in refused.items()
        if "by root only" in said or (name not in RAPL_READERS and registry.there(name))
    ]
    if there:
        return (
            f"No source of energy can be read on this machine; looked for {wanted}. "
            f"{' '.join(there)} Or {ways}."
        )
    return (
        f"No source of energy was found on this machine: looked for {wanted}; load RAPL's driver "
        f"with `sudo modprobe intel_rapl_msr`, {ways}."
    )
