"""Readings of every energy source other than our counters, over a whole run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from contract.counts import Gap
from contract.documents import OtherSource, OtherZone
from instrumentation.clock import monotonic_ns
from instrumentation.sources import registry
from instrumentation.sources.counter import (
    LONE_FLAG,
    ReadFailure,
    Reading,
    Readings,
    edge_at,
    has_lone,
)
from instrumentation.sources.powercap import PowercapSource


class Source(Protocol):
    """An open source of the registry.

    A source with `begin` counts from its last call; one that adds up polled powers has `gaps` by
    zone, times without a poll.
    """

    def read(self) -> Readings: ...
    def close(self) -> None: ...


Openers = Mapping[str, Callable[[], Source]]


def registered() -> Openers:
    """Map each source but our own to the function that opens it.

    Sources that this machine does not have, and those that disturb disks, are left out.
    """
    candidates = (name for name in registry.names() if name != PowercapSource.name)
    names = (n for n in candidates if not registry.disturbs_disks(n) and registry.is_present(n))
    return {name: partial(registry.open_source, name) for name in names}


class OtherReaders:
    """Reads every other source at the run's begin and end, each next to our own.

    Our own is read first, and last at the end, so that it encloses the others.
    """

    def __init__(self, counters: PowercapSource, openers: Openers | None = None) -> None:
        self._counters = counters
        openers = registered() if openers is None else openers
        self._readers = [_Reader(name, opener) for name, opener in openers.items()]
        self._own_start: Readings = {}

    def begin(self) -> None:
        """Read all at the begin of a run."""
        self._own_start = self._counters.read()
        for reader in self._readers:
            reader.begin()

    def end(self) -> dict[str, OtherSource]:
        """Return the readings since `begin`, by source."""
        for reader in reversed(self._readers):
            reader.end()
        enclosing = self._own_start, self._counters.read()
        return {reader.name: reader.record(enclosing) for reader in self._readers}


@dataclass(frozen=True)
class _Edge:
    """`readings` were taken between the two stamps."""

    from_ns: int
    readings: Readings
    until_ns: int


class _Reader:
    """One other source, perhaps of another package; its errors void no run."""

    def __init__(self, name: str, opener: Callable[[], Source]) -> None:
        self.name = name
        self._opener = opener
        self._source: Source | None = None
        self._error = ""
        self._open()

    def _open(self) -> None:
        self._error = ""
        self._source = self._contained(self._opener, None)

    def begin(self) -> None:
        self._start = self._edge(getattr(self._source, "begin", None))

    def end(self) -> None:
        self._end = self._edge(None)

    def _edge(self, begin: Callable[[], object] | None) -> _Edge:
        from_ns = monotonic_ns()
        readings: Readings = {}
        if begin is not None:
            self._contained(begin, None)
        elif self._source is not None:
            readings = self._contained(self._source.read, readings)
        return _Edge(from_ns, readings, monotonic_ns())

    def record(self, enclosing: tuple[Readings, Readings]) -> OtherSource:
        """Return the run's figures, or the error.

        After an error the source is opened again for the next run.
        """
        error = self._error or getattr(self._source, "error", None)
        if not error and self._end.readings:
            return _record(self._start, self._end, enclosing, getattr(self._source, "gaps", {}))
        if self._source is not None:
            self._contained(self._source.close, None)
        self._open()
        return OtherSource(error=error or f"The source {self.name} has no counter.")

    def _contained(self, step: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return step()
        except Exception as error:  # noqa: BLE001  whatever a source raises
            self._error = str(error) or type(error).__name__
            return otherwise


def _used_uj(start: Readings, end: Readings, zone: str) -> int | None:
    """Return the energy; None if unknown. `start` is empty if the source counts from there."""
    first, last = start.get(zone), end[zone]
    if not isinstance(last, Reading) or (start and not isinstance(first, Reading)):
        return None
    if not isinstance(first, Reading):
        return last.energy_uj
    return last.energy_uj - first.energy_uj if last.epoch == first.epoch else None


def _record(
    start: _Edge,
    end: _Edge,
    enclosing: tuple[Readings, Readings],
    gaps: Mapping[str, Sequence[Gap]],
) -> OtherSource:
    zones = []
    for zone in end.readings:
        first, last = (readings.get(zone) for readings in enclosing)
        apart_ns = None
        if isinstance(first, Reading) and isinstance(last, Reading):
            before_ns = max(start.until_ns, first.t_after_ns)
            before_ns -= min(start.from_ns, first.t_before_ns)
            after_ns = max(end.until_ns, last.t_after_ns) - min(end.from_ns, last.t_before_ns)
            apart_ns = before_ns + after_ns
            if first.epoch != last.epoch:  # gone in between: what it counted is not known
                last = ReadFailure(last.t_before_ns, "opened again")
        missed = [gap for gap in gaps.get(zone, ()) if gap.until_ns > start.from_ns]
        energy_uj = _used_uj(start.readings, end.readings, zone)
        a, b = start.readings.get(zone), end.readings[zone]
        if isinstance(a, Reading) and isinstance(b, Reading) and has_lone(a, b, energy_uj or 0):
            missed.append(Gap(start.from_ns, end.until_ns, LONE_FLAG))
            energy_uj = None
        zones.append(
            OtherZone(
                zone,
                energy_uj=energy_uj,
                own_start=edge_at(first),
                own_end=edge_at(last),
                apart_ns=apart_ns,
                gaps=tuple(missed) if zone in gaps else None,
            )
        )
    return OtherSource(
        tuple(zones),
        t_start_ns=start.from_ns,
        t_end_ns=end.until_ns,
        duration_us=(end.until_ns - start.from_ns) / 1e3,
    )
