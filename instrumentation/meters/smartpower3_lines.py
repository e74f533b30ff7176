"""The SmartPower3's line: its form, its checksums, and its own milliseconds, unwrapped."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrumentation.meters.rows import Ints

LINE_BYTES = 81
MATCHED_BYTES = 79  # without CR LF
CHECKED_BYTES = 74
LINE_END = b"\r\n"
GROUPS = ("input", "0", "1")

_OUTPUT = rb"(\d{5}),(\d{4}),(\d{5}),(\d),([0-9a-f]{2}),"
# A digit before the first one was doubled on the wire; the checksums would not see that.
LINE = re.compile(
    rb"(?<![0-9a-f])(\d{10}),(\d{5}),(\d{4}),(\d{5}),(\d),"
    + _OUTPUT
    + _OUTPUT
    + rb"([0-9a-f]{2}),([0-9a-f]{2})"
)
# mV, mA, mW and the state among the groups of LINE; the interrupts stand behind an output's state.
FIELDS = {"input": (2, 3, 4, 5), "0": (6, 7, 8, 9), "1": (11, 12, 13, 14)}

_FORM = b"d" * 10 + b",ddddd,dddd,ddddd,d," + b"ddddd,dddd,ddddd,d,hh," * 2 + b"hh,hh\r\n"
_KINDS = {b"d": b"0123456789", b"h": b"0123456789abcdef", b",": b",", b"\r": b"\r", b"\n": b"\n"}
_NEEDED = np.array([1 << list(_KINDS).index(_FORM[n : n + 1]) for n in range(LINE_BYTES)], np.uint8)
_IS = np.zeros(256, np.uint8)
for _bit, _members in enumerate(_KINDS.values()):
    _IS[list(_members)] |= 1 << _bit
_HEX = np.zeros(256, np.uint8)
_HEX[list(b"0123456789abcdef")] = range(16)

Signed = NDArray[np.signedinteger[Any]]


def checksums(checked: bytes) -> tuple[int, int]:
    """cs1 and cs2 of the first 74 bytes of a line."""
    return -sum(checked) & 0xFF, reduce(xor, checked, 0)


def sound(match: re.Match[bytes]) -> bool:
    """Whether a line's checksums are right."""
    return checksums(match[0][:CHECKED_BYTES]) == (int(match[16], 16), int(match[17], 16))


def fits(millivolt: Any, milliampere: Any, milliwatt: Any) -> Any:
    """Whether the power is the product of the others, as the meter computes it.

    The firmware prints whole parts and multiplies the voltage with its fraction by the whole
    milliamperes (`smartpower3/meas_channel.cpp`); 1 mW more on either side for its single
    precision. It samples on while it prints: in a few sound lines the parts are of two samples.
    """
    low = millivolt * milliampere // 1000 - 1
    high = (millivolt + 1) * milliampere // 1000 + 1
    return (low <= milliwatt) & (milliwatt <= high)


@dataclass(frozen=True, eq=False)
class Lines:
    """n lines: the meter's ms [n]; for each group mV, mA, mW and the state [n]; for each output
    whether it has an interrupt [n].
    """

    t_ms: Signed
    groups: dict[str, tuple[Signed, Signed, Signed, Signed]]
    tripped: dict[str, NDArray[np.bool_]]


def clean_lines(data: bytes, at: int, limit: int) -> Lines:
    """The sound lines with their ends that follow one another from a place on, `limit` at most."""
    count = min(limit, (len(data) - at) // LINE_BYTES)
    raw = np.frombuffer(data, np.uint8, count * LINE_BYTES, at).reshape(count, LINE_BYTES)
    columns = np.ascontiguousarray(raw.T)
    good = np.bitwise_and(_IS[columns], _NEEDED[:, None]).all(axis=0)
    checked = columns[:CHECKED_BYTES]
    good &= np.add.reduce(checked, axis=0, dtype=np.uint8) + _hex(columns, 74) == 0
    good &= np.bitwise_xor.reduce(checked, axis=0) == _hex(columns, 77)
    if not good.all():
        columns = columns[:, : int(np.argmin(good))]
    places = {"input": 11, "0": 30, "1": 52}
    return Lines(
        _number(columns, 0, 10),
        {group: _group(columns, place) for group, place in places.items()},
        {group: _hex(columns, places[group] + 19) != 0 for group in ("0", "1")},
    )


def _hex(columns: NDArray[np.uint8], at: int) -> NDArray[np.uint8]:
    return np.asarray(_HEX[columns[at]] << 4 | _HEX[columns[at + 1]], np.uint8)


def _number(columns: NDArray[np.uint8], at: int, digits: int) -> Signed:
    value: Any = np.zeros(columns.shape[1], np.int32 if digits < 6 else np.int64)
    for column in columns[at : at + digits]:
        value *= 10
        value += column
    return np.asarray(value - int("1" * digits) * ord("0"))


def _group(columns: NDArray[np.uint8], at: int) -> tuple[Signed, Signed, Signed, Signed]:
    """mV, mA, mW, state."""
    return (
        _number(columns, at, 5),
        _number(columns, at + 6, 4),
        _number(columns, at + 11, 5),
        _number(columns, at + 17, 1),
    )


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
        """Take the times of the next lines as far as they continue evenly at the known interval.

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
