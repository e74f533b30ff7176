"""The frames in a PowerSensor3's stream: found by their bit pattern, a stretch at a time.

A frame is nine pairs of bytes: the time `1111tttt 01tttttt`, then each of eight sensors, `1iiiaaaa
0mbbbbbb`. 53 of its 144 bits are the same in every frame; the others have no check of any kind, for
the bytes come through USB, which has one of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WORDS = 9
FRAME_BYTES = 2 * WORDS
Words = NDArray[np.uint16]
Ints = NDArray[np.int64]

_MARKER_BIT = 0x40  # of sensor 0 alone
_MASK = np.array([0xF0C0, 0xF080] + [0xF0C0] * 7, np.uint16)
_PATTERN = np.array([0xF040] + [0x8000 | sensor << 12 for sensor in range(8)], np.uint16)
_FRAME = re.compile(
    rb"[\xf0-\xff][\x40-\x7f][\x80-\x8f][\x00-\x7f]"
    + b"".join(b"[\\x%x0-\\x%xf][\\x00-\\x3f]" % (8 | sensor, 8 | sensor) for sensor in range(1, 8))
)
_FIRST_LOOK = 64  # frames; as many again, doubled, while all are whole


@dataclass(frozen=True, eq=False)
class Found:
    """n frames: `words` [n, 9]; `at` [n] where each begins; `junk` [n] bytes before each that are
    no frame. `junk_after` bytes behind the last are none either; from `rest` on one may begin.
    """

    words: Words
    at: Ints
    junk: Ints
    junk_after: int
    rest: int


def find(data: bytes) -> Found:
    """The frames in some bytes: the leftmost, then the leftmost behind it, and so on."""
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
        return Found(np.zeros((0, WORDS), np.uint16), none, none, junk, at)
    places = [start + FRAME_BYTES * np.arange(count) for start, count, _ in starts]
    before = np.zeros(sum(map(len, stretches)), np.int64)
    before[np.cumsum([0, *map(len, stretches[:-1])])] = [junk for _, _, junk in starts]
    if len(stretches) == 1:
        return Found(stretches[0], places[0], before, junk, at)
    return Found(np.concatenate(stretches), np.concatenate(places), before, junk, at)


def _stretch(data: bytes, at: int) -> Words:
    """The whole frames that follow one another from a place on."""
    parts: list[Words] = []
    look = _FIRST_LOOK
    while True:
        count = min(look, (len(data) - at) // FRAME_BYTES)
        raw = np.frombuffer(data, ">u2", count * WORDS, at).reshape(count, WORDS)
        words = raw.astype(np.uint16)
        whole = ((words & _MASK) == _PATTERN).all(axis=1)
        good = count if whole.all() else int(np.argmin(whole))
        parts.append(words[:good])
        if good < look:
            break
        at, look = at + good * FRAME_BYTES, look * 2
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def levels(words: Words) -> Words:
    """Ten bits of each word [n, 9]: the time in µs mod 1024, then the sensors' levels."""
    return ((words >> 2) & 0x3C0 | (words & 0x3F)).astype(np.uint16, copy=False)


def marked(words: Words) -> NDArray[np.bool_]:
    """Which frames [n] carry the marker."""
    return np.asarray(words[:, 1] & _MARKER_BIT, np.bool_)
