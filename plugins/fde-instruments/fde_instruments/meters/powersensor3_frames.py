"""Parse a PowerSensor3's stream: find frames by their bit pattern, time and average them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from instrumentation.meters.rows import GAP, RESTART, Flags, Floats, Ints, Rows

WORDS = 9
FRAME_BYTES = 2 * WORDS
Words = NDArray[np.uint16]

_MARKER_BIT = 0x40  # of sensor 0 only
_MASK = np.array([0xF0C0, 0xF080] + [0xF0C0] * 7, np.uint16)
_PATTERN = np.array([0xF040] + [0x8000 | sensor << 12 for sensor in range(8)], np.uint16)
_FRAME = re.compile(
    rb"[\xf0-\xff][\x40-\x7f][\x80-\x8f][\x00-\x7f]"
    + b"".join(b"[\\x%x0-\\x%xf][\\x00-\\x3f]" % (8 | sensor, 8 | sensor) for sensor in range(1, 8))
)
_FIRST_LOOK = 64  # frames; as many again, doubled, while all are whole


@dataclass(frozen=True, eq=False)
class Frames:
    """n frames: `words` [n, 9]; `at` [n] is where each begins.

    `junk` [n] counts the bytes before each that are no frame, `junk_after` those after the last;
    from `end` on the bytes are not parsed yet.
    """

    words: Words
    at: Ints
    junk: Ints
    junk_after: int
    end: int


def find_frames(data: bytes) -> Frames:
    """Return the frames in some bytes: the leftmost, then the leftmost after it, and so on."""
    stretches: list[Words] = []
    starts: list[tuple[int, int, int]] = []  # where a stretch begins, its frames, junk before it
    at = junk = 0
    while True:
        words = _stretch(data, at)
        if len(words):
            stretches.append(words)
            starts.append((at, len(words), junk))
            at, junk = at + FRAME_BYTES * len(words), 0
        if at + FRAME_BYTES > len(data):
            break
        match = _FRAME.search(data, at + 1)
        next_at = match.start() if match else len(data) - FRAME_BYTES + 1
        at, junk = next_at, next_at - at
        if not match:
            break
    if not stretches:
        none = np.zeros(0, np.int64)
        return Frames(np.zeros((0, WORDS), np.uint16), none, none, junk, at)
    places = [start + FRAME_BYTES * np.arange(count) for start, count, _ in starts]
    before = np.zeros(sum(map(len, stretches)), np.int64)
    before[np.cumsum([0, *map(len, stretches[:-1])])] = [junk for _, _, junk in starts]
    if len(stretches) == 1:
        return Frames(stretches[0], places[0], before, junk, at)
    return Frames(np.concatenate(stretches), np.concatenate(places), before, junk, at)


def _stretch(data: bytes, at: int) -> Words:
    """Return the whole frames in a row from a place on."""
    parts: list[Words] = []
    look = _FIRST_LOOK
    while True:
        count = min(look, (len(data) - at) // FRAME_BYTES)
        raw = np.frombuffer(data, ">u2", count * WORDS, at).reshape(count, WORDS)
        words = raw.astype(np.uint16)
        complete = ((words & _MASK) == _PATTERN).all(axis=1)
        good = count if complete.all() else int(np.argmin(complete))
        parts.append(words[:good])
        if good < look:
            break
        at, look = at + good * FRAME_BYTES, look * 2
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def levels(words: Words) -> Words:
    """Return ten bits of each word [n, 9]: the time in µs mod 1024, then the sensors' levels."""
    return ((words >> 2) & 0x3C0 | (words & 0x3F)).astype(np.uint16, copy=False)


def has_marker(words: Words) -> NDArray[np.bool_]:
    """Return which frames [n] have the marker."""
    return np.asarray(words[:, 1] & _MARKER_BIT, np.bool_)


WRAP_US = 1024
_BLOCK_NS = 2_000_000_000  # the least delays of two such stretches are compared
_TOLERANCE_US = 10  # between frames; at 1 kHz a lost frame shows as 24


@dataclass(frozen=True, eq=False)
class Timed:
    """Times of n frames: `t_us` [n] unwrapped; `step_us` [n] the length of each frame.

    `missing_us` [n] is the time that is missing before it, below 0 if the time was set back;
    `sound` [n] is false if the frame's time is impossible.
    """

    t_us: Ints
    step_us: Ints
    missing_us: Ints
    sound: NDArray[np.bool_]


def _wraps(least_us: int, before_us: int) -> int:
    """Return by how many wraps the least delays of two blocks differ."""
    return round((least_us - before_us) / WRAP_US)


class DeviceTime:
    """The meter's time from the start of the stream on; `frame_us` is the length of a frame."""

    def __init__(self, frame_us: int) -> None:
        self._frame_us = frame_us
        self._last_us: int | None = None
        self._shift_us = 0  # to add to the next frame, as its wraps were miscounted
        self._block_ns: int | None = None
        self._least_us: int | None = None  # delay of arrival in this block
        self._before_us: int | None = None  # and in the one before

    def begin(self, t_ns: int) -> None:
        """Begin a piece that came at `t_ns`; correct the wraps if a block has ended."""
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
        """Return how far each time [n] is off one frame after the one before, in µs."""
        first = stamps[0] - self._frame_us if self._last_us is None else self._last_us
        off_us = np.diff(stamps, prepend=first) - self._frame_us
        return ((off_us + WRAP_US // 2) & (WRAP_US - 1)) - WRAP_US // 2  # as −512…511

    def is_regular(self, off_us: Ints) -> bool:
        """Return whether no frame is missing."""
        return not self._shift_us and bool((np.abs(off_us) <= _TOLERANCE_US).all())

    def take_even(
        self, stamps: Ints, off_us: Ints, t_ns: Ints, pieces_ns: Ints, first: Ints
    ) -> Timed | None:
        """Return the times of n ≥ 1 frames of several pieces; None, without effect, if one misses.

        `pieces_ns` [p] are the arrivals of the pieces, `first` [p] the frame that each begins with;
        `t_ns` as for `take`. The result is that of `begin` and `take` for one piece after another.
        """
        if not self.is_regular(off_us):
            return None
        count = len(stamps)
        step_us = self._frame_us + off_us
        start_us = int(stamps[0]) - self._frame_us if self._last_us is None else self._last_us
        t_us = start_us + np.cumsum(step_us)
        late_us = t_ns[:-1] // 1000 - t_us
        block_ns = int(pieces_ns[0]) if self._block_ns is None else self._block_ns
        least_us, before_us, begin = self._least_us, self._before_us, 0
        while True:
            piece = int(np.searchsorted(pieces_ns, block_ns + _BLOCK_NS))
            end = int(first[piece]) if piece < len(first) else count
            if end > begin:
                block_us = int(late_us[begin:end].min())
                least_us = block_us if least_us is None else min(least_us, block_us)
            if piece == len(first):
                break
            if least_us is not None and before_us is not None and _wraps(least_us, before_us):
                return None
            block_ns, begin, before_us, least_us = int(pieces_ns[piece]), end, least_us, None
        self._block_ns, self._least_us, self._before_us = block_ns, least_us, before_us
        self._last_us = int(t_us[-1])
        return Timed(t_us, step_us, np.zeros(count, np.int64), np.ones(count, bool))

    def take(self, stamps: Ints, off_us: Ints, ahead_us: int, t_ns: Ints) -> Timed:
        """Return the times of n ≥ 1 frames in a row, with `off_us` by `steps`.

        `ahead_us` is the stamp of the next frame, `t_ns` [n + 1] the arrival of each, including the
        next.
        """
        count = len(stamps)
        step_us = self._frame_us + off_us
        missing_us = np.zeros(count, np.int64)
        sound = np.ones(count, bool)
        if self._last_us is None:
            self._last_us = int(stamps[0]) - self._frame_us
        t_us = self._last_us + np.cumsum(step_us)
        if not self.is_regular(off_us):
            self._repair(np.append(stamps, ahead_us), t_ns, Timed(t_us, step_us, missing_us, sound))
            t_us = self._last_us + np.cumsum(step_us * sound + missing_us)
        self._last_us = int(t_us[-1])
        least_us = int((t_ns[:-1] // 1000 - t_us)[sound].min(initial=np.iinfo(np.int64).max))
        self._least_us = least_us if self._least_us is None else min(self._least_us, least_us)
        return Timed(t_us, step_us, missing_us, sound)

    def _repair(self, stamps: Ints, t_ns: Ints, timed: Timed) -> None:
        """Correct all fields but `t_us` for frames that are missing."""
        frame_us, t_us = self._frame_us, self._last_us or 0
        since_us = np.append(0, np.cumsum(np.mod(np.diff(stamps), WRAP_US)))
        together = np.searchsorted(t_ns, t_ns, "right") - 1  # the last that came with each
        for n in range(len(timed.step_us)):
            passed_us = int(stamps[n] - t_us) % WRAP_US
            off_us = (passed_us - frame_us + 512) % WRAP_US - 512
            if abs(off_us) <= _TOLERANCE_US and not self._shift_us:
                timed.step_us[n] = frame_us + off_us
                t_us += frame_us + off_us
                continue
            two_us = int(stamps[n + 1] - t_us - 2 * frame_us + 512) % WRAP_US - 512
            if abs(two_us) <= _TOLERANCE_US and not self._shift_us:
                timed.sound[n] = False  # the next one has the right time without this
                continue
            if self._shift_us:
                passed_us = frame_us + off_us + self._shift_us
                self._shift_us = 0
            else:
                ahead_us = int(since_us[together[n]] - since_us[n])
                passed_us = self._passed_us(passed_us, t_us + ahead_us, int(t_ns[n]))
            timed.step_us[n], timed.missing_us[n] = frame_us, passed_us - frame_us
            t_us += passed_us

    def _passed_us(self, passed_us: int, last_us: int, t_ns: int) -> int:
        """Return the time since the last frame before a gap, with the wraps that fit the arrival.

        `last_us` is the time of the last frame that came with it at `t_ns`, without that.
        """
        if passed_us < self._frame_us - _TOLERANCE_US:
            passed_us += WRAP_US
        delays = [us for us in (self._least_us, self._before_us) if us is not None]
        if not delays:
            return passed_us
        delay_us = t_ns // 1000 - (last_us + passed_us)
        return passed_us + WRAP_US * max(0, round((delay_us - min(delays)) / WRAP_US))


@dataclass(frozen=True, eq=False)
class Samples:
    """n samples: arrivals, the meter's times and lengths of their frames, powers and flags.

    Times are in µs but for the arrival (ns); powers are of c channels, [n, c].
    """

    t_ns: Ints
    t_us: Ints
    step_us: Ints
    power_w: Floats
    flags: Flags

    @classmethod
    def none(cls, channels: int) -> Samples:
        """Return no samples."""
        empty = np.zeros(0, np.int64)
        return cls(empty, empty, empty, np.zeros((0, channels)), np.zeros(0, np.uint16))

    def at(self, frames: slice | NDArray[np.bool_]) -> Samples:
        """Return some of the samples."""
        return Samples(*(column[frames] for column in vars(self).values()))

    def then(self, following: Samples) -> Samples:
        """Return these samples and the following ones."""
        pairs = zip(vars(self).values(), vars(following).values(), strict=True)
        return Samples(*map(np.concatenate, pairs)) if len(self.t_ns) else following


def gather_records(samples: Samples, size: int) -> tuple[Rows, Samples]:
    """Return records of `size` frames each, or fewer before a gap, and the samples not yet used."""
    count = len(samples.t_ns)
    breaks = np.flatnonzero(samples.flags & (GAP | RESTART))
    runs = [0, *breaks[breaks > 0].tolist(), count]
    starts = np.concatenate([np.arange(a, b, size) for a, b in pairwise(runs)])
    complete = int(starts[-1]) if count and count - int(starts[-1]) < size else count
    if complete < count:
        starts = starts[:-1]
    return _means(samples.at(slice(complete)), starts), samples.at(slice(complete, None))


def _means(samples: Samples, starts: Ints) -> Rows:
    """Average the samples from each start to the next."""
    count = len(samples.t_ns)
    if len(starts) == count:
        window_s, power_w, flags = samples.step_us / 1e6, samples.power_w, samples.flags
        last = starts
    else:
        last = np.append(starts[1:], count) - 1
        window_s = np.add.reduceat(samples.step_us, starts) / 1e6
        sums_w = np.add.reduceat(samples.power_w, starts, axis=0)
        power_w = sums_w / (last - starts + 1)[:, None]
        flags = np.bitwise_or.reduceat(samples.flags, starts)
    return Rows(
        t_mono_ns=samples.t_ns[last],
        t_device_us=samples.t_us[last],
        window_s=window_s,
        power_w=power_w,
        energy_j=None,
        flags=flags,
    )
