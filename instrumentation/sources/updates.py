"""Update intervals of counters, observed by reading them repeatedly for a moment.

The count of a counter that is updated every tenth of a second is up to that much older than the
read. If its power is level, as in the rest before a command, two updates in a row give the line on
which the energy at the read is (`wait_for_lines`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic_ns

from instrumentation.sources.counter import ReadFailure, Reading

WATCH_S = 0.1
ENOUGH = 16  # updates of every counter that end a watch early
FEW, SLOW = 2, 5  # a counter with fewer updates is watched this many times as long
PAUSE_S = 0.0005
# Counters with an update interval between these are extrapolated to the moment of a read. The
# jitter of an update remains, up to a tenth as observed.
SLOW_NS, ENDLESS_NS, JITTER = 20_000_000, 1_000_000_000, 10
# Not shorter: with 500 reads a second next to another monitor, a graphics driver delayed the next
# command by half a second.
LINE_PAUSE_S = 0.01


@dataclass
class UpdateWatch:
    """Updates of one counter while it is watched.

    The time without an update is from the first read of a count to its last, so that it is not
    longer for a watcher that does not get the processor.
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
        """Longest time without an update so far; None without any update."""
        return self.longest_ns + self.pause_ns if self.updates else None


def longest_intervals_ns(
    reads: Sequence[Callable[[], int | None]],
    watch_s: float = WATCH_S,
    enough: int = ENOUGH,
    clock_ns: Callable[[], int] = monotonic_ns,
    pause: Callable[[], object] = lambda: time.sleep(PAUSE_S),
    *,
    watches: Sequence[UpdateWatch] | None = None,
) -> list[int | None]:
    """Return the longest time without an update of each counter; None if it stood still.

    The precision is the pause between two reads. `reads` return the count, None if it cannot be
    read. The watch lasts for `watch_s`, and `SLOW` times as long if a counter had fewer than `FEW`
    updates by then. It ends early once each counter had `enough` updates, or if `pause` returns
    true. `watches`, one for each counter, show the updates meanwhile.
    """
    watches = [UpdateWatch() for _ in reads] if watches is None else watches
    begin_ns, watch_ns = clock_ns(), round(watch_s * 1e9)
    while (passed_ns := clock_ns() - begin_ns) < SLOW * watch_ns:
        if all(watch.updates >= (enough if passed_ns < watch_ns else FEW) for watch in watches):
            break
        for watch, read in zip(watches, reads, strict=True):
            watch.read(read(), clock_ns())
        if pause():
            break
    return [watch.interval_ns for watch in watches]


@dataclass(frozen=True)
class Line:
    """Energy of a counter through two of its updates, in µJ, at constant power."""

    first: Reading
    second: Reading

    def at(self, reading: Reading) -> Reading:
        """Return the reading with the energy at its time, never less than the count."""
        lasted_ns = _middle_ns(self.second) - _middle_ns(self.first)
        power_mw = (self.second.energy_uj - self.first.energy_uj) / lasted_ns * 1e6
        since_ns = _middle_ns(reading) - _middle_ns(self.first)
        energy_uj = self.first.energy_uj + round(power_mw * since_ns * 1e-6)
        most_uj = max(energy_uj, reading.energy_uj)
        return replace(reading, energy_uj=most_uj, window_ns=reading.window_ns // JITTER)


def _middle_ns(reading: Reading) -> float:
    return (reading.t_before_ns + reading.t_after_ns) / 2


def wait_for_lines(
    counters: Mapping[str, Reading | ReadFailure],
    read: Callable[[], Mapping[str, Reading | ReadFailure]],
    pause: Callable[[], object] = lambda: time.sleep(LINE_PAUSE_S),
) -> dict[str, Line]:
    """Wait for two updates of each slow counter; return the lines through them.

    `counters` are as they were just read; if none of them is slow, nothing is read. A counter has
    no line if its updates were not observed, or if it fails, falls, or stands still meanwhile.
    """
    begin = {
        name: reading
        for name, reading in counters.items()
        if isinstance(reading, Reading) and SLOW_NS <= reading.window_ns <= ENDLESS_NS
    }
    changes: dict[str, list[Reading]] = {name: [reading] for name, reading in begin.items()}
    waiting = set(changes)
    while waiting:
        pause()
        shown = read()
        for name in sorted(waiting):
            reading, before = shown[name], changes[name][-1]
            if not isinstance(reading, Reading) or reading.energy_uj < before.energy_uj:
                waiting.remove(name)
            elif reading.energy_uj > before.energy_uj:
                changes[name].append(reading)
            waited_ns = reading.t_before_ns - changes[name][0].t_after_ns
            if len(changes[name]) > 2 or waited_ns > 3 * begin[name].window_ns:
                waiting.discard(name)
    return {name: Line(*row[1:]) for name, row in changes.items() if len(row) > 2}


def carry_forward(
    readings: Mapping[str, Reading | ReadFailure], lines: Mapping[str, Line]
) -> dict[str, Reading | ReadFailure]:
    """Return the readings, extrapolated to the moment of the read for counters with a line."""
    return {
        name: lines[name].at(reading) if name in lines and isinstance(reading, Reading) else reading
        for name, reading in readings.items()
    }
