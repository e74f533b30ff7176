"""Joules between the edges of a counter, wraps corrected, with their uncertainty."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from analysis.energy.metered import Energy
from analysis.energy.uncertainty import RAPL_STEP_J, RAPL_UPDATE_S, counter_uncertainty_j
from analysis.suite.records import Counter, Phase
from instrumentation.sources import counter as rapl
from instrumentation.sources.counter import Reading
from instrumentation.sources.zones import default_max_power_w


def counted(counter: Counter, samples: Iterable[Reading] = ()) -> Energy:
    """Energy between a counter's edges, wraps corrected; `samples` between them bound the wraps.

    The edges alone are exact to the counter's resolution; the samples only tell how often it went
    round where more than one wrap is possible.
    """
    if counter.start is None or counter.end is None:
        return Energy(None, None, 0.0, _words(counter, (rapl.READ_FAILED,)))
    after, before = counter.start.t_after_ns, counter.end.t_before_ns
    between = [s for s in samples if after <= s.t_before_ns and s.t_after_ns <= before]
    readings = [counter.start, *between, counter.end]
    found = rapl.total(readings, counter.max_range_uj, default_max_power_w(counter.zone))
    if found.energy_uj is None:
        return Energy(None, None, 0.0, _words(counter, found.flags))
    known = [flag for flag in counter.flags if not between or flag != rapl.DOUBLE_WRAP]
    wrapped = ("wrap-corrected",) if found.kind == "corrected" else ()
    flags = tuple(dict.fromkeys([*known, *found.flags, *wrapped]))
    energy_j = found.energy_uj / 1e6
    return Energy(energy_j, _statistical_j(counter.start, counter.end, energy_j), 1.0, flags)


def _statistical_j(start: Reading, end: Reading, energy_j: float) -> float:
    """A read lies somewhere between its stamps, and tells the count of the last update before it.

    The power at both edges is taken as the mean between them: nothing else is known of it.
    """
    elapsed_s = max((end.t_before_ns - start.t_after_ns) * 1e-9, 1e-9)
    edges = [
        (energy_j / elapsed_s, (reading.t_after_ns - reading.t_before_ns) * 1e-9 + RAPL_UPDATE_S)
        for reading in (start, end)
    ]
    return counter_uncertainty_j(edges, RAPL_STEP_J)


def pauses(phases: Iterable[Phase], zone: str) -> Iterator[Counter]:
    """The counter of a zone between each phase and the next, from end to start."""
    last: Counter | None = None
    for phase in phases:
        counter = next((c for c in phase.counters if c.zone == zone), None)
        if last is not None and counter is not None:
            flags = tuple(flag for flag in counter.flags if flag != rapl.DOUBLE_WRAP)
            yield Counter(
                counter.source, zone, last.end, counter.start, counter.max_range_uj, flags
            )
        last = counter


def one_per_zone(counters: Iterable[Counter]) -> Iterator[Counter]:
    """The first reading of each zone: two sources of one counter must not count twice."""
    seen: set[str] = set()
    for counter in counters:
        if counter.zone not in seen:
            seen.add(counter.zone)
            yield counter


def _words(counter: Counter, more: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*counter.flags, *more]))
