"""Counters that wrap: random traces of a simulated kernel counter, differences by the real code.

The truth is the simulation's own count of hardware units, which never wraps. The kernel's view of
it is worked out here by its own rule (32 bits, unit in whole nJ, both rounded down: see
instrumentation.sources.counter), not by the code under test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from instrumentation.sources.counter import DOUBLE_WRAP, MAX_POWER_W, Reading, difference, total
from validation.bench import Figure, at_least, at_most

WRAP = 2**32
# 2^-14 J, 2^-16 J, and the memory of servers, in the kernel's nJ.
UNITS_NJ = np.array([61_035, 15_258, 15_300], dtype=np.int64)
READ_NS = 2_000  # between the stamps of one reading
SAMPLES = 3  # between the two edges of a trace
_CHUNK = 100_000

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Traces:
    """Row by row: the unit, the stamps before each reading, the true counts, the power bound."""

    unit_nj: Ints
    t_ns: Ints
    counts: Ints
    bound_w: NDArray[np.float64]

    def shown_uj(self) -> Ints:
        """Return the kernel's view of the counts."""
        shown: Ints = (self.counts % WRAP) * self.unit_nj[:, None] // 1000
        return shown

    def ranges_uj(self) -> Ints:
        """Return the kernel's view of the range."""
        ranges: Ints = (WRAP - 1) * self.unit_nj // 1000
        return ranges


def measure(quick: bool = False) -> list[Figure]:
    """Measure shares of single wraps corrected and of possible double wraps flagged."""
    traces = 10_000 if quick else 1_000_000
    rng = np.random.default_rng(20)
    exact, uncertain, possible, flagged, wrong, silent = 0, 0, 0, 0, 0, 0
    worst_uj = 0.0
    for start in range(0, traces, _CHUNK):
        n = min(_CHUNK, traces - start)
        for right, marked, error_uj in _singles(wrapping_once(rng, n)):
            exact += right
            uncertain += marked
            worst_uj = max(worst_uj, error_uj)
        for can, marked, right in _doubles(wrapping_often(rng, n)):
            possible += can
            flagged += can and marked
            wrong += not right
            silent += not right and not marked
    return [
        at_least("single wraps corrected, error 0 counts", exact / traces, "share", 1.0),
        at_most("their largest error, the kernel's roundings in", worst_uj, "µJ", 1.5),
        Figure("of them flagged, as 1000 W would allow two", uncertain / traces, "share"),
        at_least("possible double wraps flagged", flagged / possible, "share", 1.0),
        at_most(f"unflagged among {wrong:,} wrong figures", silent, "traces", 0),
    ]


def wrapping_once(rng: np.random.Generator, n: int) -> Traces:
    """Draw traces with samples between the edges that wrap exactly once, at 5 to 400 W."""
    unit_nj = rng.choice(UNITS_NJ, n)
    units = rng.integers(1, WRAP, n)
    start = rng.integers(1, 2**20, n) * WRAP - rng.integers(1, units + 1)
    inner = np.sort(rng.integers(0, units[:, None] + 1, (n, SAMPLES)), axis=1)
    counts = start[:, None] + np.column_stack([np.zeros(n, np.int64), inner, units])
    step_nj = np.diff(counts, axis=1) * unit_nj[:, None].astype(float)
    step_ns = (step_nj / rng.uniform(5, 400, step_nj.shape)).astype(np.int64) + READ_NS
    t_ns = np.column_stack([np.zeros(n, np.int64), np.cumsum(step_ns, axis=1)])
    return Traces(unit_nj, t_ns, counts, np.full(n, MAX_POWER_W))


def wrapping_often(rng: np.random.Generator, n: int) -> Traces:
    """Draw edges up to three hours apart at any power below a bound: no wrap, one, hundreds."""
    unit_nj = rng.choice(UNITS_NJ, n)
    bound_w = np.where(rng.random(n) < 0.5, MAX_POWER_W, rng.uniform(50, 2000, n))
    elapsed_ns = (10 ** rng.uniform(9, 13.03, n)).astype(np.int64)
    units = (rng.random(n) * bound_w * elapsed_ns / unit_nj).astype(np.int64)
    start = rng.integers(0, 2**40, n)
    t_ns = np.column_stack([np.zeros(n, np.int64), elapsed_ns])
    return Traces(unit_nj, t_ns, np.column_stack([start, start + units]), bound_w)


def _singles(traces: Traces) -> Iterator[tuple[bool, bool, float]]:
    """Yield for each trace: corrected to the count; flagged; its error in µJ."""
    units = traces.counts[:, -1] - traces.counts[:, 0]
    rows = zip(_readings(traces), traces.ranges_uj().tolist(), traces.unit_nj.tolist(), strict=True)
    for (series, range_uj, unit), true in zip(rows, units.tolist(), strict=True):
        counted = total(series, range_uj)
        if counted.energy_uj is None:
            yield False, True, 0.0
            continue
        right = counted.kind == "corrected" and round(counted.energy_uj * 1000 / unit) == true
        yield right, DOUBLE_WRAP in counted.flags, abs(counted.energy_uj - true * unit / 1000)


def _doubles(traces: Traces) -> Iterator[tuple[bool, bool, bool]]:
    """Yield for each trace: whether the bound allows another wrap; flagged; right."""
    units = traces.counts[:, 1] - traces.counts[:, 0]
    longest_ns = traces.t_ns[:, 1] + READ_NS
    possible = (units % WRAP + WRAP) * traces.unit_nj <= traces.bound_w * longest_ns
    rows = zip(_readings(traces), traces.ranges_uj().tolist(), traces.bound_w.tolist(), strict=True)
    truth = zip(units.tolist(), traces.unit_nj.tolist(), possible.tolist(), strict=True)
    for ((start, end), range_uj, bound_w), (true, unit, can) in zip(rows, truth, strict=True):
        corrected = difference(start, end, range_uj, bound_w)
        energy_uj = corrected.energy_uj
        right = energy_uj is not None and round(energy_uj * 1000 / unit) == true
        yield can, DOUBLE_WRAP in corrected.flags, right


def _readings(traces: Traces) -> Iterator[list[Reading]]:
    for times, shown in zip(traces.t_ns.tolist(), traces.shown_uj().tolist(), strict=True):
        yield [Reading(t, t + READ_NS, uj) for t, uj in zip(times, shown, strict=True)]
