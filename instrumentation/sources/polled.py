"""Energy of sources that only show a power, which is polled and added up window by window.

A reading of power applies to the window that ends with it, as a gauge or a sensor shows a mean of
the past. A window longer than some periods, or cut by a failed read, is a gap: nothing is added for
it, and the epoch of the readings rises, so that no difference across it is taken for complete
(instrumentation.sources.counter).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from contract.counts import Gap
from instrumentation.clock import monotonic_ns
from instrumentation.sources.counter import LONE, LONE_FLOOR_W, ReadFailure, Reading, reason
from instrumentation.sources.updates import UpdateWatch, longest_intervals_ns

# A busy machine polls late; beyond this many periods the power in between is unknown.
GAP_PERIODS = 4
STOP_LIMIT_S = 5.0
# Time for which counters are watched after the opening (see `longest_intervals_ns`), and the pause
# between two reads.
COUNTERS_WATCH_S, COUNTERS_PAUSE_S = 1.0, 0.005
_CHANGES, _FEW_CHANGES = 64, 8  # of a power: how many to remember, and how many are too few
FEW_POLLS = 5
RENEWAL_NS = 1_000_000_000  # drivers of hwmon read their chips once a second

PowerUw = Callable[[], int]


class PowerSum:
    """The energy of one quantity since its first reading, in µJ."""

    def __init__(self, longest_ns: int, averaged_ns: int = 0) -> None:
        self.gaps: list[Gap] = []
        self._changed_ns = 0  # when the power changed last; 0 if it never did
        self.polls = 0
        self._total_ns = self._longest_level_ns = 0  # all, and of the longest time without a change
        self._longest_ns = longest_ns
        self._averaged_ns = averaged_ns
        self._held_ns: deque[int] = deque(maxlen=_CHANGES)  # times between changes
        self._energy_nj = 0
        self._last_ns: int | None = None
        self._last_uw: int | None = None
        self._before_uw: int | None = None  # the power before the last change
        self._level_ns = self._lone_nj = 0  # time since that change; energy of lone readings

    def add(self, t_before_ns: int, t_after_ns: int, power_uw: int) -> Reading:
        """Add a power that was read between two stamps; return the energy up to then."""
        if self._last_ns is not None and t_after_ns - self._last_ns > self._longest_ns:
            self.gaps.append(Gap(self._last_ns, t_after_ns, "no reading"))
            lasted_ns = 0
        else:
            lasted_ns = t_after_ns - (t_after_ns if self._last_ns is None else self._last_ns)
            self._energy_nj += power_uw * lasted_ns // 10**6
        if self._last_uw is not None and power_uw != self._last_uw:
            self._lone_nj += self._excess_nj(power_uw)
            self._before_uw, self._level_ns = self._last_uw, 0
            self._held_ns.extend([t_after_ns - self._changed_ns] if self._changed_ns else [])
            self._changed_ns = t_after_ns
        self._last_ns, self._last_uw = t_after_ns, power_uw
        self._level_ns += lasted_ns
        self._total_ns += lasted_ns
        self._longest_level_ns = max(self._longest_level_ns, self._level_ns)
        self.polls += 1
        energy_uj, epoch = self._energy_nj // 1000, len(self.gaps)
        lone_uj = (self._lone_nj + self._excess_nj(0)) // 1000  # if no other follows
        return Reading(t_before_ns, t_after_ns, energy_uj, epoch, self.window_ns, lone_uj)

    def _excess_nj(self, next_uw: int) -> int:
        """Return the energy by which a lone reading exceeds its neighbours; 0 if it is not lone."""
        if self._before_uw is None or self._last_uw is None:
            return 0
        neighbour_uw = max(self._before_uw, next_uw, round(LONE_FLOOR_W * 1e6))
        if self._last_uw <= LONE * neighbour_uw:
            return 0
        # A sensor that is renewed more rarely than it is polled shows a reading several times.
        is_long = 2 * self._level_ns > 3 * max(RENEWAL_NS, self.window_ns)
        return 0 if is_long else (self._last_uw - neighbour_uw) * self._level_ns // 10**6

    def fail(self, t_ns: int, error: str) -> ReadFailure:
        """Add a failed read: the window that ends with it is a gap."""
        if self._last_ns is None and self.gaps:
            self.gaps[-1] = replace(self.gaps[-1], until_ns=t_ns)
        else:
            self.gaps.append(Gap(t_ns if self._last_ns is None else self._last_ns, t_ns, error))
        self._last_ns = None
        return ReadFailure(t_ns, error)

    @property
    def energy_j(self) -> float:
        """Energy since the first reading, without gaps."""
        return self._energy_nj * 1e-9

    @property
    def window_ns(self) -> int:
        """Stated averaging time of a power, or the time between its updates if that is longer.

        0 if neither is known. Updates come at a steady rate, changes of a coarse digit do not.
        """
        held = sorted(self._held_ns)
        if len(held) < _FEW_CHANGES:
            return self._averaged_ns
        shortest, usual = held[len(held) // 20], held[len(held) // 2]
        steady = 2 * shortest >= usual and 2 * GAP_PERIODS * usual > 3 * self._longest_ns
        return max(self._averaged_ns, usual if steady else 0)

    @property
    def held_s(self) -> float:
        """The longest time in which the power was the same, in s."""
        return self._longest_level_ns * 1e-9

    @property
    def held_share(self) -> float:
        """The share of the time in which the power was the same for longest."""
        return self._longest_level_ns / max(1, self._total_ns)

    @property
    def only_w(self) -> float | None:
        """The power that all polls showed; None if they differ or are few."""
        few = self._last_uw is None or self.polls < FEW_POLLS
        return None if few or self._changed_ns else (self._last_uw or 0) * 1e-6


class PolledSource:
    """A source of powers polled by a thread, and of counters read only at the caller's edges.

    Powers are in µW; one that cannot be read raises OSError. `names` are those of both, in the
    order of `read`; `averaged_ns` are the stated averaging times of powers. Without
    `watches_updates` the counters' updates are not observed: those of a battery's gauge follow the
    load, and each read of it asks the firmware.
    """

    def __init__(
        self,
        powers: Mapping[str, PowerUw],
        counters: Mapping[str, Callable[[], Reading | ReadFailure]],
        period_s: float,
        names: Sequence[str],
        averaged_ns: Mapping[str, int] = MappingProxyType({}),
        *,
        watches_updates: bool = True,
    ) -> None:
        self.names = names
        self._powers, self._counters = powers, counters
        self.period_s = period_s
        longest_ns = round(GAP_PERIODS * period_s * 1e9)
        self.sums = {n: PowerSum(longest_ns, averaged_ns.get(n, 0)) for n in powers}
        self._watches = {name: UpdateWatch() for name in counters}
        self._poll_lock, self._closing = threading.Lock(), threading.Event()
        self._threads = []
        if powers:
            self._threads.append(threading.Thread(target=self._poll, daemon=True))
        if counters and watches_updates:
            self._threads.append(threading.Thread(target=self._watch_counters, daemon=True))
        for thread in self._threads:
            thread.start()

    @property
    def gaps(self) -> Mapping[str, Sequence[Gap]]:
        return {name: polled_sum.gaps for name, polled_sum in self.sums.items()}

    @property
    def only_w(self) -> Mapping[str, float]:
        """Powers of the polled quantities that have shown only one power, by name."""
        powers_w = {name: polled_sum.only_w for name, polled_sum in self.sums.items()}
        return {name: power_w for name, power_w in powers_w.items() if power_w is not None}

    def read(self) -> dict[str, Reading | ReadFailure]:
        """Return the energy of each quantity since the first poll, or why it cannot be read.

        Powers are polled once more, so that a window ends at the caller's edge.
        """
        readings = self._read_powers()
        for name, counter in self._counters.items():
            count = readings[name] = counter()
            if isinstance(count, Reading):
                readings[name] = replace(count, window_ns=self._watches[name].interval_ns or 0)
        return {name: readings[name] for name in self.names}

    def _read_powers(self) -> dict[str, Reading | ReadFailure]:
        readings: dict[str, Reading | ReadFailure] = {}
        with self._poll_lock:
            for name, power in self._powers.items():
                t_before_ns = monotonic_ns()
                try:
                    power_uw = power()
                except OSError as error:
                    readings[name] = self.sums[name].fail(t_before_ns, reason(error))
                else:
                    readings[name] = self.sums[name].add(t_before_ns, monotonic_ns(), power_uw)
        return readings

    def _poll(self) -> None:
        while True:
            self._read_powers()
            if self._closing.wait(self.period_s):
                return

    def _watch_counters(self) -> None:
        def count(read: Callable[[], Reading | ReadFailure]) -> int | None:
            reading = read()
            return reading.energy_uj if isinstance(reading, Reading) else None

        longest_intervals_ns(
            [partial(count, read) for read in self._counters.values()],
            COUNTERS_WATCH_S,
            pause=partial(self._closing.wait, COUNTERS_PAUSE_S),
            watches=list(self._watches.values()),
        )

    def close(self) -> None:
        """End the polling."""
        self._closing.set()
        for thread in self._threads:
            thread.join(STOP_LIMIT_S)
