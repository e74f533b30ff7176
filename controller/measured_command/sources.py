"""The sources of energy of this machine: which there are, and their joules between two reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from agent.system.virtual_lab import SIMULATED_RAPL, lab_word
from contract.errors import ControllerError
from contract.extensions import ExtensionError
from contract.measured_command import Component, Origin
from controller.planning.known_names import require_known
from instrumentation.sources import coverage, registry, standing
from instrumentation.sources.battery import GAUGE, POWER, BatterySource
from instrumentation.sources.counter import (
    BEYOND_BOUND,
    PLATFORM_MAX_POWER_W,
    READ_FAILED,
    REOPENED,
    ReadFailure,
    Reading,
    total,
    unit_nj,
)
from instrumentation.sources.polled import PolledSource
from instrumentation.sources.powercap import on_x86
from instrumentation.sources.registry import SourceError
from instrumentation.sources.updates import Line, lines_of_slow
from instrumentation.sources.zones import Zone, kind_of, summands

# Two ways to the same counters, by what they cost: the first that opens is taken. pyRAPL, a third,
# corrects no wraps.
RAPL_READERS = ("powercap", "perf")
_SAME_COUNTERS = "pyrapl"
# A counter that wraps is read this often meanwhile, so that it cannot wrap twice unseen.
GUARD_S = 5.0
_NO_FIGURE = {REOPENED, BEYOND_BOUND, READ_FAILED}
_ENDLESS_UJ = 2**63  # of a counter that never wraps
COARSE = "coarser-than-the-run"
CPU, CPU_AND_MEMORY = "cpu", "cpu+memory"

Readings = Mapping[str, Reading | ReadFailure]


class Source(Protocol):
    """An open source of the registry.

    It has `zones` where it is RAPL, `limits` where it is coarse, `omitted` where it could not read
    all, `only_w` where it polls powers.
    """

    @property
    def names(self) -> Sequence[str]: ...
    def read(self) -> dict[str, Reading | ReadFailure]: ...
    def close(self) -> None: ...


def registered(on_battery: bool = False) -> dict[str, Callable[[], Source]]:
    """Return how each source is opened, in the order in which that is tried.

    `on_battery`: no supply feeds the machine, whatever it shows.
    """
    others = (n for n in registry.names() if n not in (*RAPL_READERS, _SAME_COUNTERS))
    openers: dict[str, Callable[[], Source]] = {
        name: partial(registry.opened, name) for name in (*RAPL_READERS, *others)
    }
    if on_battery and "battery" in openers:
        openers["battery"] = partial(registry.opened, "battery", believe_online=False)
    return openers


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
        sources = cls(opened, refused)
        for source in opened.values():
            sources._zones |= {zone.name: zone for zone in getattr(source, "zones", ())}
        zones = sources._zones
        parts = summands(n for n, zone in zones.items() if zone.mirror_of is None)
        # A sum without one of its sockets is not the processor's, or not all memory's.
        for name in (n for s in opened.values() for n in getattr(s, "uncounted", ())):
            parts[kind_of(name)] = []
        packages, memory = parts["package"], parts["dram"]
        if packages and {zones[n].package for n in packages} == {zones[n].package for n in memory}:
            sources._sums[CPU_AND_MEMORY] = [*packages, *memory]
        if packages:
            sources._sums[CPU] = packages
        names = [name for source in opened.values() for name in source.names]
        sources._sums |= coverage.table().sums(names)
        return sources

    @property
    def components(self) -> dict[str, Component]:
        """What is measured, by name; the origin is the lab's model wherever that provides it."""
        lab = lab_word("fde.machine", Path("/proc/cmdline").read_text()) is not None
        origin: Origin = "modelled" if lab or SIMULATED_RAPL.exists() else "measured"
        shown = {
            name: "RAPL" if source in RAPL_READERS else source
            for source, reader in self.opened.items()
            for name in reader.names
        }
        labels = {name: " + ".join(parts) for name, parts in self._sums.items()}
        sources = {name: shown[parts[0]] for name, parts in self._sums.items()} | shown
        return {
            name: Component(source, f"{labels.get(name, name)} ({source})", origin)
            for name, source in sources.items()
        }

    def read(self) -> Readings:
        """Every counter now."""
        return {n: r for source in self.opened.values() for n, r in source.read().items()}

    def lines(self, readings: Readings) -> Mapping[str, Line]:
        """Return the lines through two updates of each counter that is seldom brought up to date.

        Waits for them; returns at once where `readings`, which were just taken, have none.
        """
        lines: dict[str, Line] = {}
        for source in self.opened.values():
            counters = {
                name: readings[name]
                for name in source.names
                if not (isinstance(source, PolledSource) and source.polls(name))
            }
            lines |= lines_of_slow(counters, source.read)
        return lines

    def between(self, series: Sequence[Readings]) -> dict[str, Used]:
        """By component, the joules from the first to the last of some readings."""
        used = {name: self._used(name, series) for name in series[-1]}
        for name, parts in self._sums.items():
            used[name] = added([used[part] for part in parts])
        return used

    def _used(self, name: str, series: Sequence[Readings]) -> Used:
        zone = self._zones.get(name)
        range_uj, bound_w = (
            (zone.max_range_uj, zone.max_power_w) if zone else (_ENDLESS_UJ, PLATFORM_MAX_POWER_W)
        )
        readings = [reading[name] for reading in series]
        used = total(readings, range_uj, bound_w)
        first, last = readings[0], readings[-1]
        if (
            used.energy_uj is None
            or _NO_FIGURE & set(used.flags)
            or not isinstance(first, Reading)
            or not isinstance(last, Reading)
        ):
            reasons = [reading.error for reading in readings if isinstance(reading, ReadFailure)]
            return Used(None, 0.0, used.flags, errors=tuple(dict.fromkeys(reasons)))
        source = next(source for source in self.opened.values() if name in source.names)
        if used.energy_uj < getattr(source, "least_uj", {}).get(name, 0):  # it counts in steps
            return Used(None, 0.0, (*used.flags, COARSE))
        middles = [(r.t_before_ns + r.t_after_ns) / 2 for r in (first, last)]
        step_j = (unit_nj(range_uj or 0) or 0) * 1e-9
        update_s = max(first.window_ns, last.window_ns) * 1e-9
        seconds = (middles[1] - middles[0]) * 1e-9
        return Used(used.energy_uj / 1e6, seconds, used.flags, coarse=Coarseness(step_j, update_s))

    def objections(
        self, stretches: Mapping[str, Sequence[standing.Stretch]], busy_s: float
    ) -> dict[str, standing.Objection]:
        """Return the objections to joules by component, by all rests and runs of each.

        `busy_s` are seconds of the processor's work in them. A sum with a part that stands still
        has none; the objection is to the part. A part that did not move in too short a time adds
        nothing to the others.
        """
        objections: dict[str, standing.Objection] = {}
        for name, component in self.components.items():
            if name in stretches and name not in self._sums:
                objection = self._objection(name, component, stretches[name], busy_s)
                if objection is not None:
                    objections[name] = objection
        source = self.opened.get("battery")
        if isinstance(source, BatterySource) and (totals_j := source.totals_j):
            pair = POWER, GAUGE
            if objection := standing.of_gauge(pair, *totals_j):
                objections |= {name: replace(objection, label=name) for name in pair}
        for name, parts in self._sums.items():
            still = [objections[part] for part in parts if part in objections]
            short = all(objection.code == standing.DID_NOT_MOVE for objection in still)
            if still and (not short or len(still) == len(parts)):
                objections[name] = standing.Objection(still[0].code, "", "")
        return objections

    def _objection(
        self,
        name: str,
        component: Component,
        stretches: Sequence[standing.Stretch],
        busy_s: float,
    ) -> standing.Objection | None:
        source = next(source for source in self.opened.values() if name in source.names)
        patience = standing.patience_s(component.source)
        if isinstance(source, PolledSource) and source.polls(name):
            only_w = source.only_w.get(name)
            if component.source in ("nvml", "nvme") and only_w != 0:
                return None  # a card or a drive, which the processor's work does not move
            return sensor_objection(component.label, only_w, stretches, busy_s, patience)
        if kind_of(name) == "uncore":  # a graphics processor that is asleep takes nothing
            whole_s = sum(stretch.seconds for stretch in stretches)
            known = [stretch.energy_j for stretch in stretches if stretch.energy_j is not None]
            stretches = [standing.Stretch(whole_s, sum(known))] if known else ()
        zone = self._zones.get(name)
        step_j = (unit_nj(zone.max_range_uj or 0) or 0) * 1e-9 if zone else 0.0
        # At 1 W a step takes as many seconds as it has joules.
        return standing.of_counter(component.label, stretches, patience + step_j)

    def poll_s(self, name: str) -> float | None:
        """Return seconds between two polls of a component that is a power, or a sum of such."""
        sources = [s for s in self.opened.values() if isinstance(s, PolledSource)]
        parts = self.parts(name)
        return next((s.period_s for s in sources for part in parts if s.polls(part)), None)

    def parts(self, name: str) -> Sequence[str]:
        """Return the parts of a component that is a sum; itself where it is none."""
        return self._sums.get(name, [name])

    @property
    def only_w(self) -> Mapping[str, float]:
        """By polled component that has shown one power alone, that power."""
        polled = (s.only_w for s in self.opened.values() if isinstance(s, PolledSource))
        return {name: power_w for source in polled for name, power_w in source.items()}

    @property
    def omitted(self) -> list[str]:
        """What the opened sources could not read, in sentences."""
        sentences = (getattr(source, "omitted", "") for source in self.opened.values())
        return [sentence for sentence in sentences if sentence]

    def limits(self) -> list[str]:
        """Resolution of the sources that report one."""
        return [
            sentence
            for source in self.opened.values()
            for sentence in getattr(source, "limits", tuple)()
        ]

    def close(self) -> None:
        for source in self.opened.values():
            source.close()


@dataclass(frozen=True)
class Coarseness:
    """What a counter counts in, and for how long it may show an old count."""

    step_j: float = 0.0
    update_s: float = 0.0


@dataclass(frozen=True)
class Used:
    """Joules over the seconds between two reads; None where they are not known, and why."""

    energy_j: float | None
    seconds: float
    flags: tuple[str, ...] = ()
    coverage: float = 1.0  # the share of them that was measured
    errors: tuple[str, ...] = ()  # the system's words on reads that failed
    coarse: Coarseness = Coarseness()


def added(parts: Sequence[Used]) -> Used:
    """Of several counters together."""
    energies = [part.energy_j for part in parts]
    flags = tuple(dict.fromkeys(flag for part in parts for flag in part.flags))
    known = [energy for energy in energies if energy is not None]
    energy_j = sum(known) if len(known) == len(energies) else None
    errors = tuple(dict.fromkeys(error for part in parts for error in part.errors))
    step_j = sum(part.coarse.step_j for part in parts)
    coarse = Coarseness(step_j, max(part.coarse.update_s for part in parts))
    seconds = max(part.seconds for part in parts)
    return Used(energy_j, seconds, flags, errors=errors, coarse=coarse)


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


def sensor_objection(
    label: str,
    only_w: float | None,
    stretches: Sequence[standing.Stretch],
    busy_s: float,
    patience: float,
) -> standing.Objection | None:
    """Object to a sensor or a meter's channel that showed one power alone (`only_w`).

    Also to one that did so through many rests and runs.
    """
    whole_s = sum(stretch.seconds for stretch in stretches)
    if only_w is not None:
        return standing.of_sensor(label, only_w, whole_s, busy_s, patience)
    row = standing.frozen(stretches, patience)
    if row is None or not whole_s:
        return None
    power_w = (row.energy_j or 0.0) / row.seconds
    busy_s *= row.seconds / whole_s
    return standing.of_sensor(label, power_w, row.seconds, busy_s, patience)


def category(name: str, components: Mapping[str, Component]) -> coverage.Category | None:
    """Return what a component covers; None where that is unknown.

    Of a meter's channels `system` alone is the machine: another may be one of several supplies, or
    a disk. Whoever installed a package with a source wants its figures, whatever they cover.
    """
    table = coverage.table()
    source = components[name].source
    if not source.startswith("meter "):
        undeclared = table.categories["undeclared"] if registry.is_undeclared(source) else None
        return table.category(name, components) or undeclared
    is_machine = name.rpartition("/")[2] == "system"  # a channel that sees the whole machine
    return table.categories["machine"] if is_machine else None


def below_parts(
    components: Mapping[str, Component],
    stretches: Mapping[str, Sequence[standing.Stretch]],
    objections: Mapping[str, standing.Objection],
) -> dict[str, standing.Objection]:
    """Return objections to components that are less than their parts, or than any machine."""
    known = {n: c for n in stretches if n not in objections and (c := category(n, components))}
    below: dict[str, standing.Objection] = {}
    for name, covers in known.items():
        label, source = components[name].label, components[name].source
        little = standing.of_little(label, source, stretches[name]) if covers.never_zero else None
        if little is not None:
            below[name] = little
        update_s = standing.patience_s(source)
        if source in ("RAPL", "nvml"):
            update_s = standing.update_of(stretches[name])
        for part, within in known.items():
            if name not in below and within.name in covers.holds:
                parts = components[part].label, stretches[part]
                objection = standing.of_total(label, stretches[name], *parts, update_s)
                if objection is not None:
                    below[name] = objection
    return below


def main_component(
    components: Mapping[str, Component],
    wanted: str | None,
    without: Collection[str] = (),
    why: Sequence[str] = (),
    too_short: Collection[str] = (),
) -> str:
    """Return the component to compare: the named one, else that which covers most of the machine.

    `without` are the components that have no joules, for the reason `why`; of `too_short` longer
    runs would have some, so that one of these is taken where no other is left. Raises
    ControllerError where there is none of that name, or none that has joules and covers a known
    part.
    """
    if wanted is not None:
        require_known("component", [wanted], components)
        if wanted in without and wanted not in too_short:
            raise ControllerError("component-refused", component=wanted, reasons=" ".join(why))
        return wanted
    ranks = {n: c.rank for n in components if (c := category(n, components)) and c.rank}
    left = [n for n in ranks if n not in without] or [n for n in ranks if n in too_short]
    if left:
        return min(left, key=lambda name: ranks[name])  # the first of equals
    others = [name for name in components if name not in ranks and name not in without]
    reasons = "".join(f" {sentence}" for sentence in why)
    if others:
        raise ControllerError("components-unknown", reasons=reasons, others=", ".join(others))
    raise ControllerError("no-component", reasons=reasons)


def nothing_found(refused: Mapping[str, str]) -> ControllerError:
    """Build the error with the remedies, first those of sources that exist but cannot be read."""
    hints = [
        reason
        for name, reason in refused.items()
        if "by root only" in reason or (name != "perf" and registry.is_present(name))
    ]
    sources = ", ".join(registry.names())
    if hints:
        return ControllerError("sources-unread", sources=sources, hints=" ".join(hints))
    driver = "Load RAPL's driver with `sudo modprobe intel_rapl_msr`. " if on_x86() else ""
    return ControllerError("no-source", sources=sources, driver=driver)
