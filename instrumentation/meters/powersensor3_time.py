"""The PowerSensor3's time, of which each frame tells only the microseconds modulo 1024.

Between frames that follow one another that is enough. Where frames are missing, how often the time
wrapped meanwhile is taken from the arrival of the bytes, which may be late but never early. What
that leaves wrong (a loss of just the length that looks like none, bytes that came late just then)
shows within seconds, as bytes are late by a changed multiple of 1024 µs ever after, and is mended.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from instrumentation.meters.powersensor3_frames import Ints

WRAP_US = 1024
_BLOCK_NS = 2_000_000_000  # the least delay of two such stretches is compared
_TOLERANCE_US = 10  # between frames; at 1 kHz a lost frame shows as 24


@dataclass(frozen=True, eq=False)
class Timed:
    """n frames: `t_us` [n] unwrapped; `step_us` [n] the time that each stands for; `missing_us` [n]
    what is missing before it, below 0 where the time was set back; `sound` [n] is false where the
    frame's own time cannot be.
    """

    t_us: Ints
    step_us: Ints
    missing_us: Ints
    sound: NDArray[np.bool_]


def _around(us: Ints) -> Ints:
    """Microseconds modulo 1024 as −512…511."""
    return ((us + WRAP_US // 2) & (WRAP_US - 1)) - WRAP_US // 2


def _wraps(least_us: int, before_us: int) -> int:
    """By how many wraps the least delay of two blocks differs."""
    return round((least_us - before_us) / WRAP_US)


class DeviceTime:
    """Follows the time from the start of the stream on. `frame_us` is the time of one frame."""

    def __init__(self, frame_us: int) -> None:
        self._frame_us = frame_us
        self._last_us: int | None = None
        self._shift_us = 0  # to add to the next frame, as its wraps were miscounted
        self._block_ns: int | None = None
        self._least_us: int | None = None  # delay of arrival in this block
        self._before_us: int | None = None  # and in the one before

    def begin(self, t_ns: int) -> None:
        """A piece came at `t_ns`: see whether a block has ended, and what it tells."""
        if self._block_ns is None:
            self._block_ns = t_ns
        if t_ns < self._block_ns + _BLOCK_NS:
            return
        if self._least_us is not None and self._before_us is not None:
            wraps = _wraps(self._least_us, self._before_us)
            self._shift_us += wraps * WRAP_US
            self._least_us -= wraps * WRAP_US
        self._block_ns = t_ns
        self._before_us, self._least_us = self._least_us, None

    def steps(self, stamps: Ints) -> Ints:
        """How far each time [n] is off one frame behind the one before, in µs."""
        first = stamps[0] - self._frame_us if self._last_us is None else self._last_us
        return _around(np.diff(stamps, prepend=first) - self._frame_us)

    def regular(self, off_us: Ints) -> bool:
        """Whether nothing is missing anywhere."""
        return not self._shift_us and bool((np.abs(off_us) <= _TOLERANCE_US).all())

    def take_even(
        self, stamps: Ints, off_us: Ints, t_ns: Ints, pieces_ns: Ints, first: Ints
    ) -> Timed | None:
        """Times of n ≥ 1 frames of several pieces, if nothing is missing; else nothing changes.

        `pieces_ns` [p] is when the pieces came, `first` [p] the frame that each begins with; `t_ns`
        as for `take`. Gives what `begin` and `take` would give for one piece after the other.
        """
        if not self.regular(off_us):
            return None
        count = len(stamps)
        step_us = self._frame_us + off_us
        start_us = int(stamps[0]) - self._frame_us if self._last_us is None else self._last_us
        t_us = start_us + np.cumsum(step_us)
        late_us = t_ns[:-1] // 1000 - t_us
        block_ns = int(pieces_ns[0]) if self._block_ns is None else self._block_ns
        least_us, before_us, done = self._least_us, self._before_us, 0
        while True:
            piece = int(np.searchsorted(pieces_ns, block_ns + _BLOCK_NS))
            end = int(first[piece]) if piece < len(first) else count
            if end > done:
                here_us = int(late_us[done:end].min())
                least_us = here_us if least_us is None else min(least_us, here_us)
            if piece == len(first):
                break
            if least_us is not None and before_us is not None and _wraps(least_us, before_us):
                return None
            block_ns, done, before_us, least_us = int(pieces_ns[piece]), end, least_us, None
        self._block_ns, self._least_us, self._before_us = block_ns, least_us, before_us
        self._last_us = int(t_us[-1])
        return Timed(t_us, step_us, np.zeros(count, np.int64), np.ones(count, bool))

    def take(self, stamps: Ints, off_us: Ints, ahead_us: int, t_ns: Ints) -> Timed:
        """Times of n ≥ 1 frames that follow one another, with `off_us` by `steps`.

        `ahead_us` is the stamp of the frame behind the last, `t_ns` [n + 1] when each arrived, that
        one included.
        """
        count = len(stamps)
        step_us = self._frame_us + off_us
        missing_us = np.zeros(count, np.int64)
        sound = np.ones(count, bool)
        if self._last_us is None:
            self._last_us = int(stamps[0]) - self._frame_us
        t_us = self._last_us + np.cumsum(step_us)
        if not self.regular(off_us):
            self._mend(np.append(stamps, ahead_us), t_ns, Timed(t_us, step_us, missing_us, sound))
            t_us = self._last_us + np.cumsum(step_us * sound + missing_us)
        self._last_us = int(t_us[-1])
        least_us = int((t_ns[:-1] // 1000 - t_us)[sound].min(initial=np.iinfo(np.int64).max))
        self._least_us = least_us if self._least_us is None else min(self._least_us, least_us)
        return Timed(t_us, step_us, missing_us, sound)

    def _mend(self, stamps: Ints, t_ns: Ints, timed: Timed) -> None:
        """Fill in all but `t_us` where frames do not follow one another."""
        frame_us, t_us = self._frame_us, self._last_us or 0
        for n in range(len(timed.step_us)):
            passed_us = int(stamps[n] - t_us) % WRAP_US
            off_us = (passed_us - frame_us + 512) % WRAP_US - 512
            if abs(off_us) <= _TOLERANCE_US and not self._shift_us:
                timed.step_us[n] = frame_us + off_us
                t_us += frame_us + off_us
                continue
            two_us = int(stamps[n + 1] - t_us - 2 * frame_us + 512) % WRAP_US - 512
            if abs(two_us) <= _TOLERANCE_US and not self._shift_us:
                timed.sound[n] = False  # the next one is where it would be without this
                continue
            if self._shift_us:
                passed_us = frame_us + off_us + self._shift_us
                self._shift_us = 0
            else:
                passed_us = self._passed_us(passed_us, t_us, n, stamps, t_ns)
            timed.step_us[n], timed.missing_us[n] = frame_us, passed_us - frame_us
            t_us += passed_us

    def _passed_us(self, passed_us: int, t_us: int, n: int, stamps: Ints, t_ns: Ints) -> int:
        """Time since the last frame where some are missing: with as many wraps as fit arrival."""
        if passed_us < self._frame_us - _TOLERANCE_US:
            passed_us += WRAP_US
        delays = [us for us in (self._least_us, self._before_us) if us is not None]
        if not delays:
            return passed_us
        together = int(np.searchsorted(t_ns, t_ns[n], "right")) - 1
        since_us = int(np.mod(np.diff(stamps[n : together + 1]), WRAP_US).sum())
        delay_us = int(t_ns[n]) // 1000 - (t_us + passed_us + since_us)
        return passed_us + WRAP_US * max(0, round((delay_us - min(delays)) / WRAP_US))
