"""The SmartPower3's own milliseconds: unwrapped, its interval found, what is missing noticed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from instrumentation.meters.rows import Ints

INTERVALS_MS = (5, 10, 50, 100, 500, 1000)
_WRAP_MS = 1 << 32
# A step back by less than half the range is a restart, not a wrap.
_HALF_MS = _WRAP_MS // 2
# So many steps alike are the meter's interval: one alone may be jitter, or the first after a gap.
_AGREEING = 3
# A step longer than this many intervals has records missing.
_GAP_INTERVALS = 1.5


@dataclass(frozen=True)
class Step:
    """One line's time: unwrapped; the window it is the mean of, None where unknown; ms missing."""

    t_device_ms: int
    window_ms: int | None
    missing_ms: int
    restarted: bool


class DeviceTime:
    """Follows the times of successive lines, from the opening of the port on."""

    def __init__(self) -> None:
        self._last_ms: int | None = None
        self._interval_ms: int | None = None
        self._candidate_ms = 0
        self._agreed = 0

    def step(self, raw_ms: int) -> Step:
        """Take the time of the next line."""
        if self._last_ms is None:
            self._last_ms = raw_ms
            return Step(raw_ms, None, 0, False)
        delta_ms = (raw_ms - self._last_ms) % _WRAP_MS
        if delta_ms >= _HALF_MS or delta_ms == 0:
            self._last_ms = raw_ms
            return Step(raw_ms, self._interval_ms, 0, True)
        self._last_ms += delta_ms
        interval_ms = self._interval(delta_ms)
        if delta_ms <= _GAP_INTERVALS * interval_ms:
            return Step(self._last_ms, delta_ms, 0, False)
        return Step(self._last_ms, interval_ms, delta_ms - interval_ms, False)

    def even(self, raw_ms: Ints) -> tuple[Ints, Ints]:
        """Take the times of the next lines as far as they go on evenly at the known interval.

        For each of those the time since the one before, which is its window, and its time: what
        `step` would say of them.
        """
        interval_ms = self._interval_ms
        if self._last_ms is None or interval_ms is None or self._candidate_ms != interval_ms:
            return raw_ms[:0], raw_ms[:0]
        delta_ms = np.diff(raw_ms, prepend=self._last_ms % _WRAP_MS) % _WRAP_MS
        longer_ms = [ms for ms in INTERVALS_MS if ms > interval_ms]
        good = (delta_ms * _GAP_INTERVALS >= interval_ms) & (
            delta_ms <= _GAP_INTERVALS * interval_ms
        )
        if longer_ms:
            good &= delta_ms * _GAP_INTERVALS < longer_ms[0]
        count = len(good) if good.all() else int(np.argmin(good))
        delta_ms = delta_ms[:count]
        t_ms = self._last_ms + np.cumsum(delta_ms)
        if count:
            self._last_ms = int(t_ms[-1])
            self._agreed += count
        return delta_ms, t_ms

    def _interval(self, delta_ms: int) -> int:
        """The meter's interval as far as it is known: the longest possible, then what three
        agree on.
        """
        fitting = [ms for ms in INTERVALS_MS if ms <= _GAP_INTERVALS * delta_ms]
        seen_ms = fitting[-1] if fitting else INTERVALS_MS[0]
        self._agreed = self._agreed + 1 if seen_ms == self._candidate_ms else 1
        self._candidate_ms = seen_ms
        if self._interval_ms is None or self._agreed >= _AGREEING:
            self._interval_ms = seen_ms
        return self._interval_ms
