"""How often a counter is brought up to date, seen by reading it again and again for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic_ns

WATCH_S = 0.1
ENOUGH = 16  # updates of every counter that end a watch early
FEW, SLOW = 2, 5  # a counter with fewer updates is watched this many times as long
PAUSE_S = 0.0005


@dataclass
class Watched:
    """Follow one counter while it is watched.

    A hold lasts from its first read to its last, so that a watcher that does not get the processor
    makes none longer.
    """

    value: int | None = None
    first_ns: int = 0
    last_ns: int = 0
    longest_ns: int = 0
    pause_ns: int = 0  # between the last two reads of one count
    updates: int = 0

    def read(self, value: int | None, now_ns: int) -> None:
        if value != self.value:
            self.updates += self.value is not None
            self.value, self.first_ns = value, now_ns
        else:
            self.pause_ns = now_ns - self.last_ns
        self.last_ns = now_ns
        self.longest_ns = max(self.longest_ns, now_ns - self.first_ns)

    @property
    def interval_ns(self) -> int | None:
        """Return the longest time without an update so far; None where none came."""
        return self.longest_ns + self.pause_ns if self.updates else None


def longest_intervals_ns(
    reads: Sequence[Callable[[], int | None]],
    watch_s: float = WATCH_S,
    enough: int = ENOUGH,
    clock_ns: Callable[[], int] = monotonic_ns,
    pause: Callable[[], object] = lambda: time.sleep(PAUSE_S),
    *,
    watched: Sequence[Watched] | None = None,
) -> list[int | None]:
    """Return the longest time without an update of each counter; None where it stood still.

    The time is known to the pause between two reads.

    `reads` return the count, None where it cannot be read. The watch lasts for `watch_s`, and
    `SLOW` times as long where a counter had fewer than `FEW` updates by then. It ends early once
    each counter had `enough` updates, or where `pause` returns true. `watched`, one for each
    counter, show meanwhile what was seen so far.
    """
    watched = [Watched() for _ in reads] if watched is None else watched
    begin_ns, watch_ns = clock_ns(), round(watch_s * 1e9)
    while (passed_ns := clock_ns() - begin_ns) < SLOW * watch_ns:
        if all(each.updates >= (enough if passed_ns < watch_ns else FEW) for each in watched):
            break
        for each, read in zip(watched, reads, strict=True):
            each.read(read(), clock_ns())
        if pause():
            break
    return [each.interval_ns for each in watched]
