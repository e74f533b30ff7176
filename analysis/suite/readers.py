"""How far the readers of the RAPL counters agree over whole runs, and why where they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from analysis.suite.records import Run, Suite
from analysis.suite.suite_folder import rapl_samples
from instrumentation.sources.counter import Reading, difference, unit_shortfall

# Between two updates of a counter: a reading may be this much older than its time (kernel,
# arch/x86/events/rapl.c: about a millisecond).
UPDATE_NS = 1_000_000
# Each of the four readings in a comparison is rounded down to µJ.
_ROUNDING_UJ = 2.0


@dataclass(frozen=True)
class Pair:
    """One figure of another reader beside ours. `explained_uj`: so much they may differ by the time
    between the reads (`apart_ms`, both edges) at the highest power that was sampled in the suite
    (reading itself wakes a machine at rest), an update of the counter at each edge, and the
    kernel's rounding of its unit; None where the time between is unknown.
    """

    own_uj: float
    other_uj: float
    apart_ms: float | None
    explained_uj: float | None

    @property
    def apart_uj(self) -> float:
        """The size of the difference."""
        return abs(self.other_uj - self.own_uj)


@dataclass(frozen=True)
class Agreement:
    """Another reader's figures against ours, over whole runs.

    `compared` pairs of figures; the largest differences in µJ and as a share of our figure; the
    longest time between the reads; `unexplained` pairs differ by more than that explains. `wrapped`
    counts pairs left out because our counter went round where that could not be followed, or was
    not read; `failed` figures that the other reader did not give, for the `reasons`.
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
    """pyRAPL against our reader, and perf_event where the kernel has it.

    Their reads lie between our own two, so their figures may be smaller by what was used in
    between.
    """
    pyrapl = [(run, run.pyrapl) for run in suite.runs if run.pyrapl]
    perf = [(run, run.perf) for run in suite.runs if run.perf]
    highest = _highest_uj_ns(suite)
    found = [_agreement(highest, "pyRAPL", "pyrapl_uj", pyrapl)]
    if perf:
        found.append(_agreement(highest, "perf_event", "perf_uj", perf))
    return tuple(found)


def _agreement(
    highest_uj_ns: Mapping[str, float],
    reader: str,
    key: str,
    records: Sequence[tuple[Run, Mapping[str, Any]]],
) -> Agreement:
    pairs: list[Pair] = []
    wrapped = failed = 0
    reasons: dict[str, None] = {}
    for run, record in records:
        zones = record.get("zones") if "error" not in record else None
        if not isinstance(zones, list):
            failed += 1
            reasons[str(record.get("error") or "no reason given.")] = None
            continue
        for zone in zones:
            pair = _pair(highest_uj_ns, run, zone, key)
            if pair is not None:
                pairs.append(pair)
            elif zone.get(key) is None:
                failed += 1
            else:
                wrapped += 1
    shares = [pair.apart_uj / pair.own_uj for pair in pairs if pair.own_uj > 0]
    apart = [pair.apart_ms for pair in pairs if pair.apart_ms is not None]
    return Agreement(
        reader=reader,
        compared=len(pairs),
        worst_uj=round(max(pair.apart_uj for pair in pairs)) if pairs else None,
        worst_share=max(shares, default=None),
        apart_ms=max(apart, default=None),
        unexplained=sum(
            pair.explained_uj is not None and pair.apart_uj > pair.explained_uj for pair in pairs
        ),
        wrapped=wrapped,
        failed=failed,
        reasons=tuple(reasons),
    )


def _pair(
    highest_uj_ns: Mapping[str, float], run: Run, zone: Mapping[str, Any], key: str
) -> Pair | None:
    """Both figures; None where one is missing. pyRAPL does not follow a wrap, so that its figure is
    not held against ours where ours went round."""
    start, end = _reading(zone.get("own_start")), _reading(zone.get("own_end"))
    if start is None or end is None or zone.get(key) is None:
        return None
    max_range_uj = next(_ranges(run, str(zone["zone"])), None)
    own = difference(start, end, max_range_uj)
    certain = own.kind == "difference" or (own.kind == "corrected" and key == "perf_uj")
    if own.energy_uj is None or not certain:
        return None
    apart_ns = zone.get("apart_ns")
    explained_uj = None
    if apart_ns is not None:
        mean_uj_ns = own.energy_uj / max(1, end.t_after_ns - start.t_before_ns)
        power_uj_ns = max(mean_uj_ns, highest_uj_ns.get(str(zone["zone"]), 0.0))
        rounding = own.energy_uj * unit_shortfall(max_range_uj or 0) * (key == "perf_uj")
        explained_uj = power_uj_ns * (apart_ns + 2 * UPDATE_NS) + rounding + _ROUNDING_UJ
    apart_ms = None if apart_ns is None else apart_ns / 1e6
    return Pair(own.energy_uj, float(zone[key]), apart_ms, explained_uj)


def _highest_uj_ns(suite: Suite) -> dict[str, float]:
    """By zone, the highest power between two samples; a step back is a wrap and is left out."""
    highest: dict[str, float] = {}
    for run in suite.runs:
        for zone, readings in rapl_samples(suite, run.run_id).items():
            for before, after in pairwise(readings):
                passed_ns = after.t_before_ns - before.t_before_ns
                if passed_ns > 0:
                    power = (after.energy_uj - before.energy_uj) / passed_ns
                    highest[zone] = max(highest.get(zone, 0.0), power)
    return highest


def _ranges(run: Run, zone: str) -> Iterator[int]:
    for phase in run.phases:
        for counter in phase.counters:
            if counter.zone == zone and counter.max_range_uj:
                yield counter.max_range_uj


def _reading(value: Any) -> Reading | None:
    """A reading of run.json, if it is a whole one."""
    try:
        return Reading(int(value["t_before_ns"]), int(value["t_after_ns"]), int(value["energy_uj"]))
    except (KeyError, TypeError, ValueError):
        return None
