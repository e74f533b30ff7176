"""Energy between two readings of a counter that wraps.

The kernel's figures (drivers/powercap/intel_rapl_common.c, `rapl_unit_xlate`): the hardware counts
32 bits of a unit, most often 2^-14 or 2^-16 J. The kernel rounds the unit down to whole nJ and
shows `energy_uj` = raw x unit / 1000 and `max_energy_range_uj` = (2^32 - 1) x unit / 1000,
both rounded down to µJ. So the shown counter starts again not after range + 1 µJ but after 2^32
units, up to 61 µJ more. The range determines the unit, and with it the size of a wrap
(`modulus_uj`).

Accuracy: against raw counts times the kernel's unit, a difference is wrong by less than 1 µJ (two
roundings down), and by 0.5 µJ more for each wrap. The unit is too small by less than 1 nJ: 2.6 ppm
at 2^-14 J, 52 ppm at 2^-16 J (`unit_shortfall`). The figures are not corrected for this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import ceil

from contract.counts import Edge
from instrumentation.clock import monotonic_ns

# Highest power of one package, die or memory zone over the time of a wrap (at least a minute): the
# largest processors are sold with limits of 500 W, which may be exceeded for milliseconds only. It
# decides from which time between two reads on a second wrap is possible: too high a bound costs a
# flag, too low a bound gives a wrong figure.
MAX_POWER_W = 1000.0
# The platform zone (psys) counts the whole machine, accelerators too.
PLATFORM_MAX_POWER_W = 10_000.0
# A counter is updated about every millisecond: its count may be this much older than the read,
# with a margin.
UPDATE_NS = 10_000_000

DOUBLE_WRAP = "possible-double-wrap"
READ_FAILED = "read-failed"
MIRROR = "mirror"
UNKNOWN_RANGE = "unknown-range"
REOPENED = "counter-reopened"
BEYOND_BOUND = "beyond-power-bound"
# Flags by the time between two updates of a source, or over which a reading is averaged.
COARSE, SHORTER = "coarse-updates", "shorter-than-window"
# A faulty reading of a sensor, or one with all bits set, exceeds those on both sides by this factor
# and adds more than a share of the energy around it.
LONE_FLAG, LONE, LONE_FLOOR_W, LONE_SHARE = "lone-reading", 20, 1.0, 0.01
COARSE_SHARE = 0.02  # of a stretch or its energy, from which on one update or step is coarse

_RAW_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Reading(Edge):
    """A counter in µJ, read at some moment between two monotonic stamps.

    `epoch` rises when the counter vanished and was opened again; its history in between is unknown.
    The count may be `window_ns` older than the read, or grow by a mean over that time; 0 if that
    was not observed. `lone_uj` is the energy that lone readings of a power have added so far.
    """

    epoch: int = 0
    window_ns: int = 0
    lone_uj: int = 0


@dataclass(frozen=True, slots=True)
class ReadFailure:
    """A failed read: its time, and the system's reason."""

    t_before_ns: int
    error: str


Readings = Mapping[str, Reading | ReadFailure]


def read_stamped(energy_uj: Callable[[], int], window_ns: int = 0) -> Reading | ReadFailure:
    """Read a counter between two stamps; return the reason if `energy_uj` raises OSError."""
    t_before_ns = monotonic_ns()
    try:
        count_uj = energy_uj()
    except OSError as error:
        return ReadFailure(t_before_ns, reason(error))
    return Reading(t_before_ns, monotonic_ns(), count_uj, window_ns=window_ns)


def has_lone(start: Reading, end: Reading, energy_uj: int) -> bool:
    """Return whether lone readings make more than `LONE_SHARE` of the energy between two reads."""
    return end.lone_uj - start.lone_uj > LONE_SHARE * energy_uj


def reason(error: OSError) -> str:
    """Return the system's reason without numbers and paths."""
    return error.strerror or str(error)


def reading_at(edge: Edge) -> Reading:
    """Return an edge of run.json as a reading."""
    return Reading(edge.t_before_ns, edge.t_after_ns, edge.energy_uj)


def edge_at(reading: Reading | ReadFailure | None) -> Edge | None:
    """Return a reading as an edge for run.json; None if the read failed."""
    if not isinstance(reading, Reading):
        return None
    return Edge(reading.t_before_ns, reading.t_after_ns, reading.energy_uj)


@dataclass(frozen=True, slots=True)
class EnergyDifference:
    """Energy since an earlier reading.

    `kind` is `first` (no earlier reading: `energy_uj` is 0), `difference`, `corrected` (the counter
    had wrapped) or `lost` (`energy_uj` is None: a read failed, or the counter fell and no wrap can
    explain it).
    """

    kind: str
    energy_uj: int | None
    flags: tuple[str, ...] = ()


def unit_nj(max_range_uj: int) -> int | None:
    """Return the kernel's unit in nJ for a range; None if it is not that of a 32-bit counter."""
    unit = -(-max_range_uj * 1000 // _RAW_MAX)
    return unit if unit and unit * _RAW_MAX // 1000 == max_range_uj else None


@lru_cache(maxsize=64)
def modulus_uj(max_range_uj: int) -> int:
    """Return the size of one wrap in µJ: 2^32 units; range + 1 if it is no 32-bit counter's."""
    unit = unit_nj(max_range_uj)
    return max_range_uj + 1 if unit is None else (unit * 2**32 + 500) // 1000


def unit_shortfall(max_range_uj: int) -> float:
    """Return the share by which the kernel's µJ are too low, as it rounds 2^-k J down to nJ."""
    unit = unit_nj(max_range_uj)
    for power in range(30):  # 2^-30 J are less than one nJ
        if unit == 10**9 >> power:
            return 10**9 / (unit << power) - 1
    return 0.0


def difference(
    start: Reading | ReadFailure | None,
    end: Reading | ReadFailure,
    max_range_uj: int | None,
    max_power_w: float = MAX_POWER_W,
) -> EnergyDifference:
    """Return the energy between two readings of one counter, in µJ, corrected for one wrap.

    A counter does not show further wraps: if `max_power_w` over the longest possible time between
    the two readings allows another, the flag is `possible-double-wrap`. A fall is no wrap if the
    power bound rules it out (`beyond-power-bound`), if the range is unknown (`unknown-range`), or
    if the counter vanished in between (`counter-reopened`: it may have begun again). A rise keeps
    its figure and gets those flags.
    """
    if isinstance(end, ReadFailure) or isinstance(start, ReadFailure):
        return EnergyDifference("lost", None, (READ_FAILED,))
    if start is None:
        return EnergyDifference("first", 0)
    energy_uj = end.energy_uj - start.energy_uj
    flags: tuple[str, ...] = (REOPENED,) if end.epoch != start.epoch else ()
    if not max_range_uj:
        flags += (UNKNOWN_RANGE,)
    if energy_uj < 0 and flags:
        return EnergyDifference("lost", None, flags)
    modulus = modulus_uj(max_range_uj) if max_range_uj else 0
    kind = "corrected" if energy_uj < 0 else "difference"
    if kind == "corrected":
        energy_uj += modulus
    most_uj = ceil(max_power_w * (end.t_after_ns - start.t_before_ns + UPDATE_NS) * 1e-3)
    if energy_uj > most_uj:
        flags += (BEYOND_BOUND,)
        if kind == "corrected":
            return EnergyDifference("lost", None, flags)
        return EnergyDifference(kind, energy_uj, flags)
    if modulus and energy_uj + modulus <= most_uj:
        flags += (DOUBLE_WRAP,)
    return EnergyDifference(kind, energy_uj, flags)


def total(
    readings: Iterable[Reading | ReadFailure],
    max_range_uj: int | None,
    max_power_w: float = MAX_POWER_W,
    *,
    windows: bool = True,
) -> EnergyDifference:
    """Return the energy from the first to the last of some readings, in µJ, corrected for wraps.

    Samples between two edges bound the wraps: the sum of their differences is exact if each step
    is. A failed read within the series is skipped; one at an end makes the total `lost`, and so
    does a stretch that is no longer than the readings' window (`shorter-than-window`), unless
    `windows` is false.
    """
    series = list(readings)
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
    energy_uj = sum(step.energy_uj or 0 for step in steps)
    window_ns = max(good[0].window_ns, good[-1].window_ns) * windows
    lasted_ns = good[-1].t_after_ns - good[0].t_before_ns
    if window_ns and window_ns >= lasted_ns:
        return EnergyDifference("lost", None, (*flags, SHORTER))
    if has_lone(good[0], good[-1], energy_uj):
        flags += (LONE_FLAG,)
    step_uj = (unit_nj(max_range_uj or 0) or 0) / 1000
    coarse = window_ns > COARSE_SHARE * lasted_ns or step_uj > COARSE_SHARE * energy_uj
    if windows and coarse and energy_uj:
        flags += (COARSE,)
    return EnergyDifference(kind, energy_uj, flags)
