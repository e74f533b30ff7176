"""Compare readers of the RAPL counters over whole runs, and explain their differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise

from analysis.suite.records import Run, Suite
from analysis.suite.suite_folder import rapl_samples
from contract.documents import OtherZone
from instrumentation.sources.counter import difference, reading_at, unit_shortfall

# Between two updates of a counter: a reading may be this much older than its time (kernel,
# arch/x86/events/rapl.c: about a millisecond).
UPDATE_NS = 1_000_000
# Each of the four readings in a comparison is rounded down to µJ.
_ROUNDING_UJ = 2.0
_PERF = "perf"
_NAMES = {"pyrapl": "pyRAPL", _PERF: "perf_event"}
Highest = Callable[[], Mapping[str, float]]


@dataclass(frozen=True)
class Pair:
    """One figure of another reader, and ours.

    They are `unexplained` if they differ by more than the sum of three effects: the time between
    the reads (`apart_ms`, both edges) at the highest power that was sampled in the suite (reading
    wakes a machine at rest), an update of the counter at each edge, and the kernel's rounding of
    its unit. False if the time between is unknown.
    """

    own_uj: float
    other_uj: float
    apart_ms: float | None
    unexplained: bool

    @property
    def apart_uj(self) -> float:
        """The size of the difference."""
        return abs(self.other_uj - self.own_uj)


@dataclass(frozen=True)
class Agreement:
    """Another reader's figures against ours, over whole runs.

    `compared` counts pairs of figures; then the largest differences in µJ and as a share of our
    figure, and the longest time between the reads. `unexplained` counts pairs that differ by more
    than that explains, `wrapped` pairs left out because our counter was not read or wrapped
    unnoticed, `failed` figures that the other reader did not give, for the `reasons`.
    """

    reader: str
    compared: int
    worst_uj: int | None
    worst_share: float | None
    apart_ms: float | None
    unexplained: int
    wrapped: int
    failed: int
    reasons: tuple[str, ...]


def agreements(suite: Suite) -> tuple[Agreement, ...]:
    """Compare every other source of the same zones with our reader; pyRAPL even if no run has it.

    They read between our own two reads, so their figures may be smaller by the energy in between.
    """
    highest = cache(partial(_highest_uj_ns, suite))  # reads all samples, if a pair needs it
    sources = dict.fromkeys(["pyrapl", *(name for run in suite.runs for name in run.other_sources)])
    return tuple(
        _agreement(highest, source, suite.runs)
        for source in sources
        if not measures_other_zones(source, suite.runs)
    )


def measures_other_zones(source: str, runs: Sequence[Run]) -> bool:
    """Return whether a source only has zones that our reader lacks, such as a battery."""
    zones = [zone for run in runs for zone in run.zones_of(source)]
    return bool(zones) and not any(zone.own_start or zone.own_end for zone in zones)


def _agreement(highest_uj_ns: Highest, source: str, runs: Sequence[Run]) -> Agreement:
    pairs: list[Pair] = []
    wrapped = failed = 0
    reasons: dict[str, None] = {}
    for run in runs:
        if (record := run.other_sources.get(source)) is None:
            continue
        if record.zones is None or record.error is not None:
            failed += 1
            reasons[record.error or "no reason given."] = None
            continue
        for zone in record.zones:
            pair = _pair(highest_uj_ns, run, zone, source)
            if pair is not None:
                pairs.append(pair)
            elif zone.energy_uj is None:
                failed += 1
            else:
                wrapped += 1
    shares = [pair.apart_uj / pair.own_uj for pair in pairs if pair.own_uj > 0]
    apart = [pair.apart_ms for pair in pairs if pair.apart_ms is not None]
    return Agreement(
        reader=_NAMES.get(source, source),
        compared=len(pairs),
        worst_uj=round(max(pair.apart_uj for pair in pairs)) if pairs else None,
        worst_share=max(shares, default=None),
        apart_ms=max(apart, default=None),
        unexplained=sum(pair.unexplained for pair in pairs),
        wrapped=wrapped,
        failed=failed,
        reasons=tuple(reasons),
    )


def _pair(highest_uj_ns: Highest, run: Run, zone: OtherZone, source: str) -> Pair | None:
    """Return both figures; None where one is missing or wraps.

    Only perf_event is known to follow a wrap.
    """
    start, end, name = zone.own_start, zone.own_end, zone.zone
    if start is None or end is None or zone.energy_uj is None:
        return None
    counters = (c for phase in run.phases for c in phase.counters if c.zone == name)
    max_range_uj = next((c.max_range_uj for c in counters if c.max_range_uj), None)
    ours = difference(reading_at(start), reading_at(end), max_range_uj)
    certain = ours.kind == "difference" or (ours.kind == "corrected" and source == _PERF)
    if ours.energy_uj is None or not certain:
        return None
    apart_ns, other_uj = zone.apart_ns, zone.energy_uj
    if apart_ns is None:
        return Pair(ours.energy_uj, other_uj, None, False)
    rounding = ours.energy_uj * unit_shortfall(max_range_uj or 0) * (source == _PERF)

    def beyond(power_uj_ns: float) -> bool:
        explained_uj = power_uj_ns * (apart_ns + 2 * UPDATE_NS) + rounding + _ROUNDING_UJ
        return bool(abs(other_uj - own_uj) > explained_uj)

    own_uj = ours.energy_uj
    mean_uj_ns = own_uj / max(1, end.t_after_ns - start.t_before_ns)
    unexplained = beyond(mean_uj_ns) and beyond(highest_uj_ns().get(name, 0.0))
    return Pair(own_uj, other_uj, apart_ns / 1e6, unexplained)


def _highest_uj_ns(suite: Suite) -> dict[str, float]:
    """Return the highest power between two samples, by zone; a step back is a wrap and ignored."""
    highest: dict[str, float] = {}
    for run in suite.runs:
        for zone, readings in rapl_samples(suite, run.run_id).items():
            for before, after in pairwise(readings):
                passed_ns = after.t_before_ns - before.t_before_ns
                if passed_ns > 0:
                    power = (after.energy_uj - before.energy_uj) / passed_ns
                    highest[zone] = max(highest.get(zone, 0.0), power)
    return highest
