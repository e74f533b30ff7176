"""All energy sources of this machine together: joules between two reads, and objections to them.

A source of the registry has `zones` if it is RAPL, `omitted` if it could not read everything, and
`only_w` if it polls powers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

from contract.extensions import ExtensionError
from instrumentation.sources import coverage, registry, standing
from instrumentation.sources.accuracy import counter_uncertainty_j
from instrumentation.sources.battery import GAUGE, POWER
from instrumentation.sources.counter import (
    BEYOND_BOUND,
    PLATFORM_MAX_POWER_W,
    READ_FAILED,
    REOPENED,
    ReadFailure,
    Reading,
    Readings,
    total,
    unit_nj,
)
from instrumentation.sources.polled import PolledSource
from instrumentation.sources.registry import SourceError
from instrumentation.sources.standing import CPU, DID_NOT_MOVE, Objection, Stretch
from instrumentation.sources.updates import Line, carry_forward, wait_for_lines
from instrumentation.sources.zones import Zone, kind_of, summands

# Two readers of the same counters, the cheaper first: the first that opens is used. pyRAPL, a
# third, corrects no wraps.
RAPL_READERS = ("powercap", "perf")
_SAME_COUNTERS = "pyrapl"
# A counter that wraps is read this often meanwhile, so that it cannot wrap twice unnoticed.
GUARD_S = 5.0
_NO_FIGURE = {REOPENED, BEYOND_BOUND, READ_FAILED}
_ENDLESS_UJ = 2**63  # of a counter that never wraps
COARSE = "coarser-than-the-run"
CPU_AND_MEMORY = "cpu+memory"

Outcome = TypeVar("Outcome")
Openers = Mapping[str, Callable[[], Any]]


@dataclass(frozen=True)
class Used:
    """Joules over the seconds between two reads; None if they are unknown, with flags.

    `coverage` is the measured share of the time, `errors` the system's messages on failed reads,
    `error_j` the standard uncertainty from the counter's steps and updates.
    """

    energy_j: float | None
    seconds: float
    flags: tuple[str, ...] = ()
    coverage: float = 1.0
    errors: tuple[str, ...] = ()
    error_j: float = 0.0


@dataclass
class LocalSources:
    """All sources that could be opened, and for each other one the reason in a sentence."""

    opened: Mapping[str, Any]
    refused: Mapping[str, str]
    _sums: dict[str, Sequence[str]] = field(default_factory=dict)
    _zones: dict[str, Zone] = field(default_factory=dict)
    _highest_uj: dict[str, int] = field(default_factory=dict)

    @classmethod
    def open(cls, openers: Openers | None = None) -> LocalSources:
        """Open all available sources, or only those of `openers` in their order."""
        if openers is None:
            names = dict.fromkeys((*RAPL_READERS, *registry.names()))
            openers = {n: partial(registry.open_source, n) for n in names if n != _SAME_COUNTERS}
        opened: dict[str, Any] = {}
        refused: dict[str, str] = {}
        for name, opener in openers.items():
            if name in RAPL_READERS and any(reader in opened for reader in RAPL_READERS):
                continue
            try:
                opened[name] = opener()
            except (SourceError, ExtensionError) as error:
                refused[name] = str(error)
        zones = {z.name: z for source in opened.values() for z in getattr(source, "zones", ())}
        parts = summands(name for name, zone in zones.items() if zone.mirror_of is None)
        # A sum without one of the sockets is not that of the processor, or of all memory.
        for name in (n for s in opened.values() for n in getattr(s, "uncounted", ())):
            parts[kind_of(name)] = []
        packages, memory = parts["package"], parts["dram"]
        sums: dict[str, Sequence[str]] = {}
        if packages:
            sums = {CPU_AND_MEMORY: [*packages, *memory], CPU: packages}
        if {zones[n].package for n in packages} != {zones[n].package for n in memory}:
            sums.pop(CPU_AND_MEMORY, None)
        quantities = [name for source in opened.values() for name in source.names]
        return cls(opened, refused, sums | coverage.table().sums(quantities), zones)

    def _reader_of(self, name: str) -> Any:
        return next(source for source in self.opened.values() if name in source.names)

    @cached_property
    def source_of(self) -> dict[str, str]:
        """The source of each quantity by name; "RAPL" for both of its readers."""
        sources = {
            name: "RAPL" if source in RAPL_READERS else source
            for source, reader in self.opened.items()
            for name in reader.names
        }
        return {name: sources[parts[0]] for name, parts in self._sums.items()} | sources

    def held_s(self, name: str) -> float | None:
        """Return for how long a polled power was the same at most, in s; None of a counter."""
        polled = [s for s in self.opened.values() if isinstance(s, PolledSource)]
        part = self._sums.get(name, [name])[0]
        return next((s.sums[part].held_s for s in polled if part in s.sums), None)

    def label(self, name: str) -> str:
        """Return the parts of a quantity and their source, for people."""
        return f"{' + '.join(self._sums.get(name, [name]))} ({self.source_of[name]})"

    def read(self) -> Readings:
        """Read every counter."""
        return {n: r for source in self.opened.values() for n, r in source.read().items()}

    def edges(self) -> tuple[Readings, Readings]:
        """Read every counter at the end of one stretch and at the start of the next.

        Slow counters are extrapolated to both moments through two updates, for which it waits in
        between; without a slow counter both are the same read.
        """
        end = self.read()
        lines: dict[str, Line] = {}
        for source in self.opened.values():
            counters = {name: end[name] for name in source.names if self.held_s(name) is None}
            lines |= wait_for_lines(counters, source.read)
        return carry_forward(end, lines), carry_forward(self.read(), lines) if lines else end

    def during(
        self, work: Callable[[], Outcome], start: Readings
    ) -> tuple[Outcome, dict[str, Used], Readings]:
        """Run `work`; return its outcome, the joules since `start`, and the next start.

        The counters are also read meanwhile, because some wrap.
        """
        series, is_over = [start], threading.Event()

        def guard() -> None:
            while not is_over.wait(GUARD_S):
                series.append(self.read())

        thread = threading.Thread(target=guard, daemon=True)
        thread.start()
        try:
            outcome = work()
        finally:
            is_over.set()
            thread.join()
        end, following = self.edges()
        return outcome, self.between([*series, end]), following

    def between(self, series: Sequence[Readings]) -> dict[str, Used]:
        """Return the joules of each component from the first to the last of some readings."""
        joules = {
            name: self._between(name, [readings[name] for readings in series])
            for name in series[-1]
        }
        sums = {n: add_up([joules[part] for part in parts]) for n, parts in self._sums.items()}
        return joules | sums

    def _between(self, name: str, readings: Sequence[Reading | ReadFailure]) -> Used:
        zone = self._zones.get(name)
        range_uj, power_w = (zone.max_range_uj, zone.max_power_w) if zone else (None, None)
        energy = total(readings, range_uj or _ENDLESS_UJ, power_w or PLATFORM_MAX_POWER_W)
        errors = [reading.error for reading in readings if isinstance(reading, ReadFailure)]
        first, last = readings[0], readings[-1]
        if range_uj is None:  # a counter that was away shows less, and then its old count again
            counts = [reading.energy_uj for reading in readings if isinstance(reading, Reading)]
            highest_uj = self._highest_uj.get(name, 0)
            self._highest_uj[name] = max([highest_uj, *counts])
            if counts and 2 * counts[0] < highest_uj <= counts[-1]:
                energy = replace(energy, energy_uj=None, flags=(*energy.flags, BEYOND_BOUND))
        if (
            energy.energy_uj is None
            or _NO_FIGURE & set(energy.flags)
            or not isinstance(first, Reading)
            or not isinstance(last, Reading)
        ):
            return Used(None, 0.0, energy.flags, errors=tuple(dict.fromkeys(errors)))
        least_uj = getattr(self._reader_of(name), "least_uj", {}).get(name, 0)
        if energy.energy_uj < least_uj:  # it counts in steps
            return Used(None, 0.0, (*energy.flags, COARSE))
        first_ns, last_ns = ((r.t_before_ns + r.t_after_ns) / 2 for r in (first, last))
        seconds, energy_j = (last_ns - first_ns) * 1e-9, energy.energy_uj / 1e6
        update_s = max(first.window_ns, last.window_ns) * 1e-9
        edge = energy_j / max(seconds, 1e-9), update_s
        error_j = counter_uncertainty_j([edge, edge], self._step_j(name))
        return Used(energy_j, seconds, energy.flags, error_j=error_j)

    def _step_j(self, name: str) -> float:
        zone = self._zones.get(name)
        return (unit_nj(zone.max_range_uj or 0) or 0) * 1e-9 if zone else 0.0

    def objections(
        self, stretches: Mapping[str, Sequence[Stretch]], busy_s: float
    ) -> dict[str, Objection]:
        """Return the objections to the joules of each quantity, by all its rests and runs.

        `busy_s` are seconds of the processor's work in them. A sum with a part that stands still
        has no joules either, with the part's code; a part that did not move in too short a time
        adds nothing to the others.
        """
        objections: dict[str, Objection] = {}
        for name, source in self.source_of.items():
            if name not in self._sums:
                objection = self._objection(name, source, stretches[name], busy_s)
                objections |= {name: objection} if objection else {}
        totals = getattr(self.opened.get("battery"), "totals", None)
        labels = {name: self.label(name) for name in self.source_of}
        if totals:
            contradictions = standing.object_to_gauge((labels[GAUGE], labels[POWER]), *totals)
            objections |= zip((GAUGE, POWER), contradictions, strict=False)
        objections |= standing.object_to_twins(labels, stretches)
        for name, parts in self._sums.items():
            still = [objections[part].code for part in parts if part in objections]
            if still and (set(still) != {DID_NOT_MOVE} or len(still) == len(parts)):
                objections[name] = Objection(still[0], "", "")
        return objections

    def _objection(
        self, name: str, source: str, stretches: Sequence[Stretch], busy_s: float
    ) -> Objection | None:
        reader, label = self._reader_of(name), self.label(name)
        patience = standing.patience_s(source)
        if self.held_s(name) is not None:
            only_w = reader.only_w.get(name)
            if source in ("nvml", "nvme") and only_w != 0:
                return None  # the power of a card or drive does not follow the processor's work
            return standing.object_to_sensor(label, only_w, stretches, busy_s, patience)
        if kind_of(name) == "uncore":  # a sleeping graphics processor takes no power
            energies_j = [stretch.energy_j for stretch in stretches if stretch.energy_j is not None]
            total_s = sum(stretch.seconds for stretch in stretches)
            stretches = [Stretch(total_s, sum(energies_j))] if energies_j else ()
        # At 1 W a step takes as many seconds as it has joules.
        return standing.object_to_counter(label, stretches, patience + self._step_j(name))

    @property
    def only_w(self) -> dict[str, float]:
        """Powers of the polled components that have shown only one power, by name."""
        polled = [s.only_w for s in self.opened.values() if isinstance(s, PolledSource)]
        return {name: power_w for only_w in polled for name, power_w in only_w.items()}

    def unread(self) -> Iterator[str]:
        """Yield a sentence on each source that exists here and could not be read."""
        yield from filter(None, (getattr(s, "omitted", "") for s in self.opened.values()))
        rapl = any(reader in self.opened for reader in RAPL_READERS)
        for name, reason in self.refused.items():
            is_here = registry.is_present(name) or "by root only" in reason
            if is_here and not (rapl and name in RAPL_READERS):
                yield f"Not read: {reason}"

    def close(self) -> None:
        for source in self.opened.values():
            source.close()


def add_up(parts: Sequence[Used]) -> Used:
    """Add up the joules of several counters."""
    energies = [part.energy_j for part in parts if part.energy_j is not None]
    return Used(
        sum(energies) if len(energies) == len(parts) else None,
        max(part.seconds for part in parts),
        tuple(dict.fromkeys(flag for part in parts for flag in part.flags)),
        errors=tuple(dict.fromkeys(error for part in parts for error in part.errors)),
        error_j=sum(part.error_j for part in parts),
    )
