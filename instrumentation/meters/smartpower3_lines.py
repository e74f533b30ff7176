"""The SmartPower3's line: its form, its checksums, and many clean lines at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

Ints = NDArray[np.signedinteger[Any]]


def checksums(checked: bytes) -> tuple[int, int]:
    """cs1 and cs2 of the first 74 bytes of a line."""
    return -sum(checked) & 0xFF, reduce(xor, checked, 0)


def sound(match: re.Match[bytes]) -> bool:
    """Whether a line's checksums are right."""
    return checksums(match[0][:CHECKED_BYTES]) == (int(match[16], 16), int(match[17], 16))


def fits(millivolt: Any, milliampere: Any, milliwatt: Any) -> Any:
    """Whether the power is the product of the others, as the meter reckons it.

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

    t_ms: Ints
    groups: dict[str, tuple[Ints, Ints, Ints, Ints]]
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


def _number(columns: NDArray[np.uint8], at: int, digits: int) -> Ints:
    value: Any = np.zeros(columns.shape[1], np.int32 if digits < 6 else np.int64)
    for column in columns[at : at + digits]:
        value *= 10
        value += column
    return np.asarray(value - int("1" * digits) * ord("0"))


def _group(columns: NDArray[np.uint8], at: int) -> tuple[Ints, Ints, Ints, Ints]:
    """mV, mA, mW, state."""
    return (
        _number(columns, at, 5),
        _number(columns, at + 6, 4),
        _number(columns, at + 11, 5),
        _number(columns, at + 17, 1),
    )
