"""Hardkernel ODROID SmartPower3: streams unasked, one 81-byte line of text for each interval.

    ms(10),  mV(5),mA(4),mW(5),on(1),  twice mV(5),mA(4),mW(5),on(1),irq(2 hex),  cs1,cs2 CR LF

The first group is the input, the other two are the outputs 0 and 1. cs1 is the two's complement of
the sum of the first 74 bytes, cs2 their exclusive or, both two hex digits (hardkernel/smartpower3,
`smartpower3/smartpower3.ino`). The milliseconds are the meter's own and wrap at 2^32.

What it prints is not quite the mean over the interval (`meas_channel.cpp`): the current is the mean
of the last interval/2 ms samples, which it takes 600 to 1000 times a second, each already a mean of
eight of the converter's own; the voltage is the last sample alone. For a load that changes within
an interval a single record may thus be off; over many this averages out while the voltage is
steady.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from instrumentation.accuracy import LINEARITY, Accuracy
from instrumentation.meters.base import Meter
from instrumentation.meters.rows import (
    COMMON_WORDS,
    GAP,
    RESTART,
    Ints,
    ParseResult,
    Rows,
    joined,
)
from instrumentation.trace import Pieces

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
    """n lines: the meter's ms [n]; for each group mV, mA, mW and the state [n].

    For each output whether it has an interrupt [n].
    """

    t_ms: Signed
    groups: dict[str, tuple[Signed, Signed, Signed, Signed]]
    tripped: dict[str, NDArray[np.bool_]]


def clean_lines(data: bytes, at: int, limit: int) -> Lines:
    """Return sound lines that follow one another, with their ends, `limit` at most."""
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


_Interval = Literal[5, 10, 50, 100, 500, 1000]
INTERVALS_MS: tuple[int, ...] = get_args(_Interval)
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
        `step` would return for them.
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
        """Return the meter's interval as far as known.

        The longest possible, then what three agree on.
        """
        fitting = [ms for ms in INTERVALS_MS if ms <= _GAP_INTERVALS * delta_ms]
        seen_ms = fitting[-1] if fitting else INTERVALS_MS[0]
        self._agreed = self._agreed + 1 if seen_ms == self._candidate_ms else 1
        self._candidate_ms = seen_ms
        if self._interval_ms is None or self._agreed >= _AGREEING:
            self._interval_ms = seen_ms
        return self._interval_ms


_FIRST_LOOK = 8  # lines at once; twice as many while all are clean
_LAST_LOOK = 4096


@dataclass(frozen=True)
class Settings:
    """`interval_ms` is what is set at the meter: it is looked for in the stream and not sent."""

    interval_ms: _Interval = 10


_OFF = {"0": 8, "1": 16}
_TRIPPED = {"0": 32, "1": 64}
_DOUBTFUL = 128


class SmartPower3(Meter):
    """Driver. Channels: `0` and `1` are the outputs, `input` the supply.

    A record's `power_w` is the mean over `window_s`, the meter's own interval up to `t_device_us`.
    Flags: `gap` (records before this one are missing, the window is one interval), `restart` (the
    meter's time started again), `off-N` (output N is switched off), `tripped-N` (a protection of
    output N has tripped), `doubtful` (somewhere in the line mW are not the product of mV and mA:
    the checksums see no bytes that changed places, and some other damage of several bytes).
    """

    kind: ClassVar[str] = "smartpower3"
    name: ClassVar[str] = "Hardkernel ODROID SmartPower3"
    default_baud: ClassVar[int] = 115200
    usb_ids: ClassVar[tuple[str, ...]] = ("10c4:ea60",)  # a CP2104 on the board
    own_channels: ClassVar[tuple[str, ...]] = ("0", "1", "input")
    timing: str = "device"
    # A line is sent within one pass of the firmware's loop; 20 ms of it is generous.
    arrival_delay_limit_s: float = 0.02
    flag_words: ClassVar[tuple[str, ...]] = (
        *COMMON_WORDS,
        "off-0",
        "off-1",
        "tripped-0",
        "tripped-1",
        "doubtful",
    )
    Settings: ClassVar[type[Any]] = Settings
    accuracy = Accuracy(
        relative_limit=0.03,
        absolute_limit_w=0.0005,
        source="wiki.odroid.com, SmartPower3, specifications: 3 % typical above 5 V and 1 A, "
        "taken as the limit at every load; 0.5 mW: half the last digit of the protocol",
        absolute="resolution",
        more=(LINEARITY,),  # direct current has no power factor
    )

    @property
    def period_s(self) -> float:
        return float(self.settings.interval_ms) / 1000

    def _forget(self) -> None:
        self._buffer = b""
        self._used = 0  # bytes at the front that belong to the line before
        # Where in the buffer each read began, and its time.
        self._offsets: Ints = np.zeros(0, np.int64)
        self._times: Ints = np.zeros(0, np.int64)
        self._time = DeviceTime()
        self._junk_bytes = 0
        self._bad_checksum = False
        self._in_step = False

    def feed(self, data: bytes, t_ns: int) -> ParseResult:
        """See `Meter.feed`. Whatever was corrupted, the next whole line is read again."""
        return self.feed_all(Pieces([t_ns], [len(data)], data))

    def feed_all(self, pieces: Pieces) -> ParseResult:
        """See `Meter.feed_all`. Clean stretches are read at once, the rest line by line."""
        sizes = np.array([len(self._buffer), *pieces.sizes[:-1]], np.int64)
        self._offsets = np.concatenate([self._offsets, np.cumsum(sizes)])
        self._times = np.concatenate([self._times, np.array(pieces.t_mono_ns, np.int64)])
        self._buffer += pieces.data
        out: list[ParseResult] = []
        done = self._used
        while (end := self._stretch(done, out) or self._line(done)) is not None:
            done = end
        self._drop(max(done, len(self._buffer) - MATCHED_BYTES), done)  # one byte before a line
        return joined([*out, self._taken()])

    def _stretch(self, done: int, out: list[ParseResult]) -> int | None:
        """Read the clean lines behind `done` whose time continues evenly; where they end."""
        start = done + len(LINE_END) * (self._buffer[done : done + len(LINE_END)] == LINE_END)
        look, at = _FIRST_LOOK, start
        while len(self._buffer) - at >= look * LINE_BYTES and (self._in_step and start > done):
            lines = clean_lines(self._buffer, at, look)
            delta_ms, t_ms = self._time.even(lines.t_ms)
            if len(t_ms):
                t_ns = self._arrivals_ns(at, len(t_ms))
                self._report_junk(int(t_ns[0]))
                rows = self._rows(lines, delta_ms, t_ms, t_ns)
                out += [self._taken(), ParseResult(rows)]
                at += len(t_ms) * LINE_BYTES
            if len(t_ms) < look:
                break
            look = min(2 * look, _LAST_LOOK)
        return at - len(LINE_END) if at > start else None

    def _rows(self, lines: Lines, delta_ms: Ints, t_ms: Ints, t_ns: Ints) -> Rows:
        """Return records of the first lines, of as many as there are times."""
        count = len(t_ms)
        power_w = [lines.groups[key][2][:count] / 1000 for key in self.channels]
        return Rows(
            t_mono_ns=t_ns,
            t_device_us=t_ms * 1000,
            window_s=delta_ms / 1000,
            power_w=np.stack(power_w, axis=1),
            energy_j=None,
            flags=self._flags(lines.groups, lines.tripped)[:count].astype(np.uint16),
        )

    def _line(self, done: int) -> int | None:
        """Read the next sound line behind `done`; where it ends, None where there is none."""
        search_from = done
        while match := LINE.search(self._buffer, search_from):
            if not sound(match):
                self._bad_checksum = True
                search_from = match.start() + 1
                continue
            self._skip(self._buffer[done : match.start()])
            t_line_ns = int(self._arrivals_ns(match.start(), 1)[0])
            self._report_junk(t_line_ns)
            self._add_record(match, t_line_ns)
            self._in_step = True
            return match.end()
        return None

    def _skip(self, junk: bytes) -> None:
        self._junk_bytes += len(junk.translate(None, LINE_END))

    def _drop(self, end: int, done: int) -> None:
        """Forget the buffer up to one byte before `end`; the bytes from `done` on were no line."""
        self._skip(self._buffer[done:end])
        self._used = min(end, 1)  # what stands before a line matters
        end -= self._used
        self._buffer = self._buffer[end:]
        known = max(0, int(np.searchsorted(self._offsets, end, "right")) - 1)
        self._offsets = np.maximum(self._offsets[known:] - end, 0)
        self._times = self._times[known:]

    def _arrivals_ns(self, at: int, count: int) -> Ints:
        """When the first bytes of lines that follow one another arrived."""
        places = at + LINE_BYTES * np.arange(count)
        return np.asarray(self._times[np.searchsorted(self._offsets, places, "right") - 1])

    def _report_junk(self, t_ns: int) -> None:
        junk, self._junk_bytes = self._junk_bytes, 0
        bad_checksum, self._bad_checksum = self._bad_checksum, False
        if not junk or (not self._in_step and junk < LINE_BYTES):
            return  # a port opened in mid-line starts with the rest of that line
        if bad_checksum:
            self._fault(t_ns, "checksum", f"{junk} bytes before this were corrupted")
        else:
            self._fault(t_ns, "framing", f"{junk} bytes before this are no SmartPower3 line")

    def _add_record(self, match: re.Match[bytes], t_ns: int) -> None:
        step = self._time.step(int(match[1]))
        if step.restarted:
            self._fault(t_ns, "restart", "the meter's own time restarted")
        if step.missing_ms:
            self._fault(t_ns, "gap", f"records of {step.missing_ms} ms are missing")
        if step.window_ms is None:
            return  # without a time before it, what this is the mean of is unknown
        groups = {group: [int(match[n]) for n in FIELDS[group]] for group in GROUPS}
        tripped = {key: match[FIELDS[key][3] + 1] != b"00" for key in _TRIPPED}
        flags = GAP * bool(step.missing_ms) | RESTART * step.restarted
        self._out.add(
            t_ns,
            step.t_device_ms * 1000,
            step.window_ms / 1000,
            [groups[key][2] / 1000 for key in self.channels],
            flags=flags | int(self._flags(groups, tripped)),
        )

    def _flags(
        self, groups: Mapping[str, Sequence[Any]], tripped: Mapping[str, bool | NDArray[np.bool_]]
    ) -> Any:
        """Return flags of one line or of n, by their figures: see `Lines`."""
        flags: Any = 0
        for group, (millivolt, milliampere, milliwatt, state) in groups.items():
            flags |= _DOUBTFUL * np.logical_not(fits(millivolt, milliampere, milliwatt))
            if group in self.channels and group in _OFF:
                flags |= _OFF[group] * (state == 0) | _TRIPPED[group] * tripped[group]
        return flags
