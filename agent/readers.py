"""pyRAPL and perf_event beside our own counters, over a whole run: data for their agreement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.marks import Counters, Readings, reading_document
from instrumentation.clock import monotonic_ns
from instrumentation.sources.counter import ReadFailure, Reading
from instrumentation.sources.perf import SYS, PerfSource
from instrumentation.sources.pyrapl import PyraplSource
from instrumentation.sources.registry import SourceError


class OtherReaders:
    """Reads every other source that is there at the run's begin and end, each next to our own.

    The order is own, perf, pyRAPL, and backwards at the end, so that ours encloses theirs.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._pyrapl = PyraplSource.open()
        self._perf, self._perf_error = _perf()
        self._start: tuple[Readings, Readings, int, int] | None = None

    def begin(self) -> None:
        """Read all at the begin of a run."""
        own = self._counters.read()
        perf = self._perf.read() if self._perf else {}
        perf_done_ns = monotonic_ns()
        self._pyrapl.begin()
        self._start = own, perf, perf_done_ns, monotonic_ns()

    def end(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """`pyrapl` and `perf` of run.json (data/README.md)."""
        assert self._start is not None
        own_start, perf_start, perf_done_ns, pyrapl_done_ns = self._start
        pyrapl_from_ns = monotonic_ns()
        result = self._pyrapl.end()
        perf_from_ns = monotonic_ns()
        perf_end = self._perf.read() if self._perf else {}
        perf_ended_ns = monotonic_ns()
        edges = own_start, self._counters.read()
        if "error" in result:
            # pyRAPL keeps its first error for good: the next run gets a fresh start.
            self._pyrapl = PyraplSource.open()
            pyrapl = result
        else:
            stretch = (perf_done_ns, pyrapl_done_ns, pyrapl_from_ns, perf_from_ns)
            pyrapl = _document("pyrapl_uj", result["zones"], edges, stretch)
            pyrapl["duration_us"] = result["duration_us"]
        if self._perf is None:
            return pyrapl, {"error": self._perf_error} if self._perf_error else None
        stretch = (_first_ns(perf_start), perf_done_ns, perf_from_ns, perf_ended_ns)
        return pyrapl, _document("perf_uj", _used_uj(perf_start, perf_end), edges, stretch)


def _perf() -> tuple[PerfSource | None, str]:
    """The source, or why it cannot be used; both empty where the kernel has none."""
    if not (SYS / "bus/event_source/devices/power").exists():
        return None, ""
    try:
        return PerfSource.open(SYS), ""
    except SourceError as error:
        return None, str(error)


def _used_uj(start: Readings, end: Readings) -> dict[str, int | None]:
    pairs = {zone: (start[zone], end[zone]) for zone in start}
    return {
        zone: b.energy_uj - a.energy_uj
        if isinstance(a, Reading) and isinstance(b, Reading)
        else None
        for zone, (a, b) in pairs.items()
    }


def _first_ns(readings: Readings) -> int:
    return min(reading.t_before_ns for reading in readings.values())


def _document(
    key: str,
    used_uj: Mapping[str, float | None],
    own: tuple[Readings, Readings],
    stretch: tuple[int, int, int, int],
) -> dict[str, Any]:
    """One other reader's figures. `stretch`: it read between the first two stamps and between the
    last two. `apart_ns`: our reads at both edges and its own are at most this far apart, added."""
    begun_ns, begun_until_ns, ended_from_ns, ended_ns = stretch
    starts, ends = own
    zones = []
    for zone, uj in used_uj.items():
        first, last = starts.get(zone), ends.get(zone)
        apart_ns = None
        if isinstance(first, Reading) and isinstance(last, Reading):
            before_ns = max(begun_until_ns, first.t_after_ns) - min(begun_ns, first.t_before_ns)
            after_ns = max(ended_ns, last.t_after_ns) - min(ended_from_ns, last.t_before_ns)
            apart_ns = before_ns + after_ns
            if first.epoch != last.epoch:  # gone in between: what it counted is not known
                last = ReadFailure(last.t_before_ns, "opened again")
        zones.append(
            {
                "zone": zone,
                key: uj,
                "own_start": reading_document(first),
                "own_end": reading_document(last),
                "apart_ns": apart_ns,
            }
        )
    return {
        "t_start_ns": begun_ns,
        "t_end_ns": ended_ns,
        "duration_us": (ended_ns - begun_ns) / 1e3,
        "zones": zones,
    }
