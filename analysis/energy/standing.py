"""Find zones and channels that stood still in a suite, which get no joules and no verdict.

Readings are compared with whole runs, most of which do work. A constant reading for a while is not
evidence; one over several runs of work is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import polars as pl

from analysis.energy.metered import Energy, Metered
from analysis.suite.records import SYSTEM, Run
from instrumentation.sources import standing
from instrumentation.sources.counter import unit_nj
from instrumentation.sources.standing import SHARE, STANDS_STILL, Stretch
from instrumentation.sources.zones import kind_of

# Seconds and energy of a run's phases, as in the energy table.
Energies = Mapping[str, tuple[float, Energy]]
WHOLE_S = standing.patience_s("RAPL")
IDLE = "idle"  # the workload that does nothing
BUSY = 0.25  # busy processors from which on a machine's power differs from that at rest
WRITTEN_BYTES = 2**20  # from which on a disk's power differs from that at rest
LONE_S = 10.0  # of one value in a single run, if no other run has half as long a stretch
LONGEST_S = 1.0  # for which a counter's samples, ten and more, may show one count


def still_zones(
    runs: Sequence[Run],
    energies: Mapping[str, Mapping[str, Energies]],
    samples: Callable[[str], pl.DataFrame],
) -> set[tuple[str, str]]:
    """Return the pairs of run and zone whose joules are invalid because the zone stood still.

    `energies` are by run and zone; `samples` returns the table of a run's samples. The runs before
    and after one with a zone that stood still are included; if there are more than `SHARE` of such
    runs, all are.
    """
    pairs: set[tuple[str, str]] = set()
    stopped_s = {
        (run.run_id, zone): seconds
        for run in runs
        for zone, seconds in _longest_s(samples(run.run_id))
    }
    for zone in dict.fromkeys(zone for by_zone in energies.values() for zone in by_zone):
        zone_runs = sorted(
            (run for run in runs if zone in energies[run.run_id]),
            key=lambda run: (run.boot_id, run.t_start_ns),
        )
        every = [
            [
                Stretch(seconds, energy.energy_j)
                for name, (seconds, energy) in energies[run.run_id][zone].items()
                if name != "all"  # the sum of the others
            ]
            for run in zone_runs
        ]
        joules = [stretch.energy_j for stretches in every for stretch in stretches]
        if not any(joules) and joules != [None] * len(joules):
            pairs |= {(run.run_id, zone) for run in zone_runs}
        if not any(joules) or kind_of(zone) == "uncore":  # a sleeping GPU takes no energy
            continue
        counters = (
            c for run in zone_runs for p in run.phases for c in p.counters if c.zone == zone
        )
        # A step of the counter at 1 W.
        patience = WHOLE_S + max((unit_nj(c.max_range_uj or 0) or 0) * 1e-9 for c in counters)
        still = [
            any(stretch.energy_j == 0 and stretch.seconds >= patience for stretch in stretches)
            or stopped_s.get((run.run_id, zone), 0.0) >= LONGEST_S + patience
            for run, stretches in zip(zone_runs, every, strict=True)
        ]
        if sum(still) > SHARE * len(zone_runs):
            pairs |= {(run.run_id, zone) for run in zone_runs}
            continue
        near = [False, *still, False]
        pairs |= {(run.run_id, zone) for k, run in enumerate(zone_runs) if any(near[k : k + 3])}
    return pairs


def _longest_s(samples: pl.DataFrame) -> Iterator[tuple[str, float]]:
    """Yield for each zone the longest time for which a run's samples showed one count."""
    ordered = samples.sort("zone", "t_before_ns")
    changed = pl.struct("zone", "energy_uj").rle_id()
    lasted_ns = pl.col("t_before_ns").last() - pl.col("t_after_ns").first()
    counts = ordered.group_by("zone", changed.alias("count")).agg(lasted_ns.alias("lasted_ns"))
    for zone, most_ns in counts.group_by("zone").agg(pl.col("lasted_ns").max()).iter_rows():
        yield zone, most_ns * 1e-9


def still_runs(
    runs: Sequence[Run],
    spans: Mapping[str, tuple[int, int]],
    metered: Metered,
    channel: str,
    idle: Collection[str],
) -> set[str]:
    """Return the runs in which a meter's channel stood still.

    `spans` are the runs' on the controller's clock, `idle` the workloads without work. A channel
    stood still if it had one value, within its last digit, over at least two whole runs of work,
    over one run if that never happened otherwise, or in all records. If there are more than `SHARE`
    of such runs, all are returned.
    """
    placed = [run for run in runs if run.run_id in spans]
    working = {run.run_id for run in placed if _works(run, channel, idle)}
    if not working:
        return set()
    only_w = metered.only_w.get(channel)
    if only_w is not None and (len(working) > 1 or only_w == 0):
        return {run.run_id for run in runs}
    stood_still: set[str] = set()
    constant = metered.constant_ns[channel]
    # The longest part of each stretch, in ns, within one run of work.
    at_work = [
        max(0, *(min(end, spans[r][1]) - max(begin, spans[r][0]) for r in working))
        for begin, end in constant
    ]
    for k, (start_ns, end_ns) in enumerate(constant):
        met = {
            run_id
            for run_id, (begin, end) in spans.items()
            if min(end, end_ns) - max(begin, start_ns) > LONGEST_S * 1e9
        }
        within = {r for r in met if start_ns <= spans[r][0] and spans[r][1] <= end_ns}
        others = max((*at_work[:k], *at_work[k + 1 :]), default=0)
        lone = len(working) > 1 and at_work[k] >= max(LONE_S * 1e9, 2 * others)
        if len(within & working) >= 2 or (lone and (within or channel == SYSTEM)):
            stood_still |= met
    if len(stood_still & working) > SHARE * len(working):
        return {run.run_id for run in runs}
    return stood_still


def _works(run: Run, channel: str, idle: Collection[str]) -> bool:
    """Return whether a run's work affects this channel, also if its amounts are unknown."""
    phases = run.measured_phases
    if channel.startswith("drive"):
        amounts, least = [phase.disk_written_bytes for phase in phases], float(WRITTEN_BYTES)
    else:
        amounts = [phase.cpu_busy_s for phase in phases]
        least = BUSY * sum(phase.duration_s for phase in phases)
    recorded = [amount for amount in amounts if amount is not None]
    return run.workload not in idle and (len(recorded) < len(amounts) or sum(recorded) > least)


def without_joules(energies: Energies) -> dict[str, tuple[float, Energy]]:
    """Remove joules and add the flag; coverage stays, as repeating such runs would not help."""
    return {
        name: (seconds, Energy(None, None, energy.coverage, (*energy.flags, STANDS_STILL)))
        for name, (seconds, energy) in energies.items()
    }
