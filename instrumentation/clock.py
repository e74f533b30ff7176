"""Offsets between the clocks of two machines, measured by round trips, with an error bound.

Times are integer nanoseconds of CLOCK_MONOTONIC, which belongs to one machine and one boot; the
boot is named by its `boot_id`. `python3 -m instrumentation.clock respond` answers each line it
reads with `<monotonic_ns> <boot_id>`; the controller takes a stamp before it asks and one after the
answer.

The target's stamp was taken somewhere between the two of the controller, so the offset
`t_target - (t_send + t_receive) / 2` is wrong by at most half the round trip (Cristian 1989).
"""

from __future__ import annotations

import sys
import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from contract.journal import boot_id
from contract.problem import ProblemError

monotonic_ns = time.monotonic_ns
# How far a clock's rate may wander from its mean: quartz over some degrees, or NTP's slewing.
WANDER_PPM = 5.0
# How far two clocks may differ in rate when nothing is known: NTP slews by at most 500 ppm.
UNKNOWN_SKEW_PPM = 500.0
_ATTEMPTS = 5
# Two clocks cannot diverge faster: each is off by some 100 ppm, and slewed by NTP by up to 500.
IMPOSSIBLE_PPM = 1_200.0
# Readings closer together than this belong to one burst.
BURST_GAP_NS = 2_000_000_000


class ClockError(ProblemError):
    """Clock readings that are not available or cannot be used; the message has the remedy."""


def ahead_ns(clock: int) -> int:
    """Return a clock of this machine less CLOCK_MONOTONIC, in ns, from the fastest attempt."""
    differences = []
    for _ in range(_ATTEMPTS):  # the process may be preempted between the two reads
        before = time.monotonic_ns()
        clock_ns = time.clock_gettime_ns(clock)
        after = time.monotonic_ns()
        differences.append((after - before, clock_ns - (before + after) // 2))
    return min(differences)[1]


def asleep_ns() -> int:
    """Return how long this machine was suspended since boot, in ns (CLOCK_MONOTONIC stops then)."""
    return ahead_ns(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class ClockReading:
    """One round trip: stamps of the controller around one of the target, in ns.

    `boot_id` is the target's boot, `controller_boot_id` the controller's, empty if it was not
    recorded. `controller_asleep_ns` is how long the controller was suspended since its boot.
    """

    t_send_ns: int
    t_target_ns: int
    t_receive_ns: int
    boot_id: str
    controller_boot_id: str = ""
    controller_asleep_ns: int = 0


def offset_ns(reading: ClockReading) -> int:
    """Return the target's clock minus the controller's, in ns."""
    return reading.t_target_ns - (reading.t_send_ns + reading.t_receive_ns) // 2


def bound_ns(reading: ClockReading) -> int:
    """Return how far `offset_ns` can be off, in ns: half the round trip, rounded up."""
    return (reading.t_receive_ns - reading.t_send_ns) // 2 + 1


def select_best_of_bursts(readings: Iterable[ClockReading]) -> list[ClockReading]:
    """Return the reading with the shortest round trip of each burst, in order of time."""
    bursts: list[list[ClockReading]] = []
    for reading in sorted(readings, key=lambda r: r.t_send_ns):
        if bursts and reading.t_send_ns - bursts[-1][-1].t_receive_ns <= BURST_GAP_NS:
            bursts[-1].append(reading)
        else:
            bursts.append([reading])
    return [min(burst, key=bound_ns) for burst in bursts]


def jump_ns(before: ClockReading, after: ClockReading) -> int:
    """Return how far at least the target's clock jumped against the controller's, in ns.

    Both readings are of the same boots. Negative for a jump back, 0 if drift and the bounds of both
    explain the difference.
    """
    moved = offset_ns(after) - offset_ns(before)
    # The jump is part of what elapsed on one of the two clocks, and is allowed no drift.
    elapsed_ns = min(
        abs(after.t_target_ns - before.t_target_ns), abs(after.t_send_ns - before.t_send_ns)
    )
    allowed = bound_ns(before) + bound_ns(after) + int(elapsed_ns * IMPOSSIBLE_PPM * 1e-6)
    return 0 if abs(moved) <= allowed else moved


@dataclass(frozen=True)
class OffsetModel:
    """Maps times of one boot of the target to the controller's clock.

    `knots` are `(t_target_ns, offset_ns, bound_ns)` in order of time. Between two knots the offset
    is a straight line; before the first and after the last it continues at the mean skew.
    """

    boot_id: str
    knots: tuple[tuple[int, int, int], ...]

    @classmethod
    def pieces(cls, readings: Sequence[ClockReading], boot_id: str) -> tuple[OffsetModel, ...]:
        """Return a model for each stretch of one boot's readings in which neither clock jumped.

        The clock of a suspended machine stops, which is a jump. Empty without readings.
        """
        best = select_best_of_bursts(r for r in readings if r.boot_id == boot_id)
        cuts = [k for k in range(1, len(best)) if jump_ns(best[k - 1], best[k])]
        models = []
        for start, end in pairwise([0, *cuts, len(best)] if best else []):
            stretch = best[start:end]
            knots = {r.t_target_ns: (r.t_target_ns, offset_ns(r), bound_ns(r)) for r in stretch}
            models.append(cls(boot_id, tuple(knots[t] for t in sorted(knots))))
        return tuple(models)

    @property
    def skew_ppm(self) -> float:
        """Mean rate by which the target's clock gains on the controller's; 0 from one burst."""
        (t0, offset0, _), (t1, offset1, _) = self.knots[0], self.knots[-1]
        return 0.0 if t1 == t0 else (offset1 - offset0) / (t1 - t0) * 1e6

    @property
    def skew_bound_ppm(self) -> float:
        """How far `skew_ppm` can be off."""
        (t0, _, bound0), (t1, _, bound1) = self.knots[0], self.knots[-1]
        return UNKNOWN_SKEW_PPM if t1 == t0 else (bound0 + bound1) / (t1 - t0) * 1e6

    def to_controller_ns(self, t_target_ns: int) -> int:
        """Return the same moment on the controller's clock, in ns."""
        return t_target_ns - self._offset_and_bound(t_target_ns)[0]

    def bound_ns(self, t_target_ns: int) -> int:
        """Return how far `to_controller_ns` can be off, in ns."""
        return self._offset_and_bound(t_target_ns)[1]

    def _offset_and_bound(self, t_ns: int) -> tuple[int, int]:
        after = bisect_right(self.knots, t_ns, key=lambda knot: knot[0])
        if 0 < after < len(self.knots):
            (t0, offset0, bound0), (t1, offset1, bound1) = self.knots[after - 1 : after + 1]
            share = (t_ns - t0) / (t1 - t0)
            offset = offset0 + round((offset1 - offset0) * share)
            wander = min(t_ns - t0, t1 - t_ns) * 2 * WANDER_PPM * 1e-6
            return offset, int(bound0 + (bound1 - bound0) * share + wander) + 1
        t0, offset0, bound0 = self.knots[0] if after == 0 else self.knots[-1]
        offset = offset0 + round((t_ns - t0) * self.skew_ppm * 1e-6)
        drift_ns = abs(t_ns - t0) * (self.skew_bound_ppm + 2 * WANDER_PPM) * 1e-6
        return offset, int(bound0 + drift_ns) + 1


def respond() -> None:
    """Answer every line on standard input with the time and the boot id, until it ends."""
    this_boot = boot_id()
    for _ in sys.stdin.buffer:
        sys.stdout.write(f"{monotonic_ns()} {this_boot}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:] != ["respond"]:
        print("usage: python3 -m instrumentation.clock respond", file=sys.stderr)
        sys.exit(2)
    respond()
