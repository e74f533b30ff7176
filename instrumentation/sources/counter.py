"""Energy between two readings of a counter that wraps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

# No package, memory or platform zone of one machine draws more than this for long. It only decides
# from which time between two reads on a second wrap is held possible.
MAX_POWER_W = 1000.0

DOUBLE_WRAP = "possible-double-wrap"
READ_FAILED = "read-failed"
UNKNOWN_RANGE = "unknown-range"


@dataclass(frozen=True, slots=True)
class Reading:
    """A counter in µJ, read at some moment between two monotonic stamps."""

    t_before_ns: int
    t_after_ns: int
    energy_uj: int


@dataclass(frozen=True, slots=True)
class ReadFailure:
    """A read that failed: when, and the system's reason."""

    t_before_ns: int
    error: str


@dataclass(frozen=True, slots=True)
class EnergyDifference:
    """Energy since the reading before.

    `kind` is `first` (nothing before it: `energy_uj` is 0), `difference`, `corrected` (the counter
    had wrapped) or `lost` (`energy_uj` is None: a read failed, or it wrapped and its range is
    unknown).
    """

    kind: str
    energy_uj: int | None
    flags: tuple[str, ...] = ()


def difference(
    start: Reading | ReadFailure | None,
    end: Reading | ReadFailure,
    max_range_uj: int | None,
    max_power_w: float = MAX_POWER_W,
) -> EnergyDifference:
    """Energy between two readings of one counter, in µJ.

    After `max_range_uj` the counter starts again at 0, so one wrap is corrected by adding
    `max_range_uj + 1`. (On Intel hardware one more unit of the counter, 61 µJ at most, goes with
    each wrap: that is its resolution.) More wraps cannot be seen in the counter: where
    `max_power_w` over the longest time the two readings can be apart allows for another, the flag
    `possible-double-wrap` says so.
    """
    if isinstance(end, ReadFailure) or isinstance(start, ReadFailure):
        return EnergyDifference("lost", None, (READ_FAILED,))
    if start is None:
        return EnergyDifference("first", 0)
    energy_uj = end.energy_uj - start.energy_uj
    if not max_range_uj:
        if energy_uj < 0:
            return EnergyDifference("lost", None, (UNKNOWN_RANGE,))
        return EnergyDifference("difference", energy_uj, (UNKNOWN_RANGE,))
    kind = "difference"
    if energy_uj < 0:
        kind = "corrected"
        energy_uj += max_range_uj + 1
    most_uj = max_power_w * (end.t_after_ns - start.t_before_ns) * 1e-3
    flags = (DOUBLE_WRAP,) if energy_uj + max_range_uj + 1 <= most_uj else ()
    return EnergyDifference(kind, energy_uj, flags)


def total(
    readings: Iterable[Reading | ReadFailure],
    max_range_uj: int | None,
    max_power_w: float = MAX_POWER_W,
) -> EnergyDifference:
    """Energy from the first to the last of a series of readings, in µJ, wraps corrected one by one.

    Samples between two edges bound the wraps: the sum of their differences is exact where each step
    is. A failed read within the series is stepped over; one at an end makes the total `lost`.
    """
    series = list(readings)
    if not series:
        return EnergyDifference("lost", None, (READ_FAILED,))
    good = [reading for reading in series if isinstance(reading, Reading)]
    if not good or isinstance(series[0], ReadFailure) or isinstance(series[-1], ReadFailure):
        return EnergyDifference("lost", None, (READ_FAILED,))
    if len(good) == 1:
        return EnergyDifference("first", 0)
    steps = [difference(a, b, max_range_uj, max_power_w) for a, b in pairwise(good)]
    flags = tuple(dict.fromkeys(flag for step in steps for flag in step.flags))
    if any(step.energy_uj is None for step in steps):
        return EnergyDifference("lost", None, flags)
    kind = "corrected" if any(step.kind == "corrected" for step in steps) else "difference"
    return EnergyDifference(kind, sum(step.energy_uj or 0 for step in steps), flags)
