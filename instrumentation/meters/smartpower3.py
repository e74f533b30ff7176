"""Driver of the Hardkernel ODROID SmartPower3, which streams an 81-byte line for each interval.

    ms(10),  mV(5),mA(4),mW(5),on(1),  twice mV(5),mA(4),mW(5),on(1),irq(2 hex),  cs1,cs2 CR LF

The first group is the input, the other two are the outputs 0 and 1. cs1 is the two's complement of
the sum of the first 74 bytes, cs2 their exclusive or, both two hex digits (hardkernel/smartpower3,
`smartpower3/smartpower3.ino`). The milliseconds are the meter's and wrap at 2^32.

The printed values are not quite means over the interval (`meas_channel.cpp`): the current is the
mean of the last interval/2 ms samples, which the meter takes 600 to 1000 times a second, each a
mean of eight conversions; the voltage is only the last sample. So a single record may be off for a
load that changes within an interval; over many records this averages out while the voltage is
steady.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from instrumentation.accuracy import LINEARITY, Accuracy
from instrumentation.meters.base import Meter
from instrumentation.meters.rows import (
    COMMON_WORDS,
    DOUBTFUL,
    GAP,
    RESTART,
    Ints,
    ParseResult,
    Rows,
    join_results,
)
from instrumentation.trace import Pieces

LINE_BYTES = 81
MATCHED_BYTES = 79  # without CR LF
CHECKED_BYTES = 74
LINE_END = b"\r\n"

_FORM = b"d" * 10 + b",ddddd,dddd,ddddd,d," + b"ddddd,dddd,ddddd,d,hh," * 2 + b"hh,hh\r\n"
_KINDS = {b"d": b"0123456789", b"h": b"0123456789abcdef", b",": b",", b"\r": b"\r", b"\n": b"\n"}
_NEEDED = np.array([1 << list(_KINDS).index(_FORM[n : n + 1]) for n in range(LINE_BYTES)], np.uint8)
_IS = np.zeros(256, np.uint8)
for _bit, _members in enumerate(_KINDS.values()):
    _IS[list(_members)] |= 1 << _bit
_HEX = np.zeros(256, np.uint8)
_HEX[list(b"0123456789abcdef")] = range(16)
# A digit before the first one was doubled on the wire; the checksums would not see that.
_LINE = re.compile(
    rb"(?<![0-9a-f])" + _FORM[:MATCHED_BYTES].replace(b"d", b"[0-9]").replace(b"h", b"[0-9a-f]")
)
# The figures of a line: its ms, then mV, mA, mW and the state of each of these groups; after them
# the interrupts of both outputs.
GROUPS = ("input", "0", "1")
_WEIGHTS = np.zeros((1 + 4 * len(GROUPS), LINE_BYTES))
for _row, _digits in enumerate(re.finditer(rb"d+", _FORM)):
    _WEIGHTS[_row, slice(*_digits.span())] = 10.0 ** np.arange(len(_digits[0]))[::-1]
_ZEROS = _WEIGHTS.sum(axis=1, keepdims=True) * ord("0")


def is_product(millivolt: Any, milliampere: Any, milliwatt: Any) -> Any:
    """Return whether the power is the product of voltage and current, as the meter computes it.

    The firmware prints whole parts and multiplies the voltage with its fraction by the whole
    milliamperes (`smartpower3/meas_channel.cpp`); 1 mW is allowed for its single precision. It
    takes samples while it prints: in a few sound lines the parts are of two samples.
    """
    low = millivolt * milliampere // 1000 - 1
    high = (millivolt + 1) * milliampere // 1000 + 1
    return (low <= milliwatt) & (milliwatt <= high)


def doubtful_lines(figures: Ints) -> NDArray[np.bool_]:
    """Return for each line [n] whether any power is not the product of voltage and current."""
    return np.asarray(~is_product(figures[1:13:4], figures[2:13:4], figures[3:13:4]).all(axis=0))


def clean_lines(data: bytes, at: int, limit: int) -> Ints:
    """Return the figures [15, n] of sound lines that follow one another, `limit` at most."""
    count = min(limit, (len(data) - at) // LINE_BYTES)
    raw = np.frombuffer(data, np.uint8, count * LINE_BYTES, at).reshape(count, LINE_BYTES)
    columns = np.ascontiguousarray(raw.T)
    good = np.bitwise_and(_IS[columns], _NEEDED[:, None]).all(axis=0)
    checked = columns[:CHECKED_BYTES]
    sums, parities, *interrupts = (
        _HEX[columns[at]] << 4 | _HEX[columns[at + 1]] for at in (74, 77, 49, 71)
    )
    good &= np.add.reduce(checked, axis=0, dtype=np.uint8) + sums == 0
    good &= np.bitwise_xor.reduce(checked, axis=0) == parities
    figures = np.vstack([_WEIGHTS @ columns - _ZEROS, *interrupts]).astype(np.int64)
    return figures if good.all() else figures[:, : int(np.argmin(good))]


_Interval = Literal[5, 10, 50, 100, 500, 1000]
INTERVALS_MS: tuple[int, ...] = get_args(_Interval)
_WRAP_MS = 1 << 32
# A step back by less than half the range is a restart, not a wrap.
_HALF_MS = _WRAP_MS // 2
# This many equal steps are the meter's interval: one may be jitter, or the first after a gap.
_AGREEING = 3
# A step longer than this many intervals has records missing.
_GAP_INTERVALS = 1.5


class Steps(NamedTuple):
    """Times of lines [n], unwrapped, and the windows [n] that end then, 0 if unknown.

    All in ms, as is the time that is missing before the first line; and whether time restarted.
    """

    t_ms: Ints
    window_ms: Ints
    missing_ms: int = 0
    restarted: bool = False


class DeviceTime:
    """The meter's time from the opening of the port on, followed line by line."""

    def __init__(self) -> None:
        self._last_ms = -1
        self._interval_ms = self._candidate_ms = self._agreed = 0

    def take(self, raw_ms: Ints) -> Steps:
        """Return the times of lines as far as they continue evenly, at least the first."""
        if self._last_ms < 0:
            return self._first(int(raw_ms[0]), 0)
        before_ms = np.concatenate(([self._last_ms], raw_ms[:-1]))
        delta_ms = (raw_ms - before_ms) % _WRAP_MS
        # The longest interval that is possible by each step; three equal ones are the meter's.
        fitting = np.searchsorted(INTERVALS_MS, _GAP_INTERVALS * delta_ms, "right") - 1
        seen_ms = np.take(INTERVALS_MS, np.maximum(fitting, 0))
        even = (fitting >= 0) & (seen_ms == self._interval_ms)
        even &= delta_ms <= _GAP_INTERVALS * self._interval_ms
        count = len(even) if even.all() else int(np.argmin(even))
        if count and self._candidate_ms == self._interval_ms:
            t_ms = self._last_ms + np.cumsum(delta_ms[:count])
            self._last_ms = int(t_ms[-1])
            self._agreed += count
            return Steps(t_ms, delta_ms[:count])
        step_ms = int(delta_ms[0])
        if not 0 < step_ms < _HALF_MS:
            return self._first(int(raw_ms[0]), self._interval_ms)._replace(restarted=True)
        self._agreed = self._agreed + 1 if seen_ms[0] == self._candidate_ms else 1
        self._candidate_ms = int(seen_ms[0])
        if not self._interval_ms or self._agreed >= _AGREEING:
            self._interval_ms = self._candidate_ms
        step = self._first(self._last_ms + step_ms, self._interval_ms)
        if step_ms <= _GAP_INTERVALS * self._interval_ms:
            return step._replace(window_ms=delta_ms[:1])
        return step._replace(missing_ms=step_ms - self._interval_ms)

    def _first(self, t_ms: int, window_ms: int) -> Steps:
        self._last_ms = t_ms
        return Steps(np.array([t_ms]), np.array([window_ms]))


_FIRST_LOOK = 8  # lines at once; twice as many while all are clean
_LAST_LOOK = 4096


@dataclass(frozen=True)
class Settings:
    """`interval_ms` is the interval set at the meter: it is expected in the stream, never sent."""

    interval_ms: _Interval = 10


_OFF = {"0": 16, "1": 32}
_TRIPPED = {"0": 64, "1": 128}


class SmartPower3(Meter):
    """Driver. Channels: `0` and `1` are the outputs, `input` the supply.

    A record's `power_w` is the mean over `window_s`, the meter's interval up to `t_device_us`.
    Flags: `gap` (records before this one are missing, the window is one interval), `restart` (the
    meter's time restarted), `off-N` (output N is switched off), `tripped-N` (a protection of output
    N has tripped), `doubtful` (some mW of the line are not the product of mV and mA: the checksums
    do not detect swapped bytes and some other damage of several bytes).
    """

    kind: ClassVar[str] = "smartpower3"
    name: ClassVar[str] = "Hardkernel ODROID SmartPower3"
    default_baud: ClassVar[int] = 115200
    usb_ids: ClassVar[tuple[str, ...]] = ("10c4:ea60",)  # a CP2104 on the board
    own_channels: ClassVar[tuple[str, ...]] = ("0", "1", "input")
    timing: str = "device"
    detects_damage: ClassVar[bool] = True
    most_lost_records: ClassVar[int] = 1  # it is in step with the next line
    # A line is sent within one pass of the firmware's loop; 20 ms of it is generous.
    arrival_delay_limit_s: float = 0.02
    flag_words: ClassVar[tuple[str, ...]] = (
        *COMMON_WORDS,
        "off-0",
        "off-1",
        "tripped-0",
        "tripped-1",
    )
    Settings: ClassVar[type[Any]] = Settings
    accuracy = Accuracy(
        relative_limit=0.03,
        absolute_limit_w=0.0005,
        source="wiki.odroid.com, SmartPower3, specifications: 3 % typical above 5 V and 1 A, "
        "taken as the limit at every load; 0.5 mW: half the last digit of the protocol",
        absolute="resolution",
        further_terms=(LINEARITY,),  # direct current has no power factor
    )

    @property
    def period_s(self) -> float:
        return float(self.settings.interval_ms) / 1000

    def _forget(self) -> None:
        self._buffer = b""
        self._parsed = 0  # bytes at the front that belong to the line before
        # Where in the buffer each read began, and its time.
        self._offsets: Ints = np.zeros(0, np.int64)
        self._times: Ints = np.zeros(0, np.int64)
        self._time = DeviceTime()
        self._junk_bytes = 0
        self._bad_checksum = False
        self._in_step = False

    def feed(self, data: bytes, t_ns: int) -> ParseResult:
        """See `Meter.feed`. After damage the next whole line is read again."""
        return self.feed_all(Pieces([t_ns], [len(data)], data))

    def feed_all(self, pieces: Pieces) -> ParseResult:
        """See `Meter.feed_all`. Lines whose times continue evenly are read at once."""
        sizes = np.array([len(self._buffer), *pieces.sizes[:-1]], np.int64)
        self._offsets = np.concatenate([self._offsets, np.cumsum(sizes)])
        self._times = np.concatenate([self._times, np.array(pieces.t_mono_ns, np.int64)])
        self._buffer += pieces.data
        out: list[ParseResult] = []
        end, look = self._parsed, _FIRST_LOOK
        while (lines := self._lines(end, look)) is not None:
            at, figures = lines
            begins = at + LINE_BYTES * np.arange(figures.shape[1])
            t_ns = self._times[np.searchsorted(self._offsets, begins, "right") - 1]
            self._report_junk(int(t_ns[0]))
            self._in_step = True
            count = self._take(figures, t_ns, out)
            look = min(2 * look, _LAST_LOOK) if count == look else _FIRST_LOOK
            end = at + count * LINE_BYTES - len(LINE_END)
        self._drop(end)
        return join_results([*out, self._take_result()])

    def _lines(self, end: int, look: int) -> tuple[int, Ints] | None:
        """Return where the next sound lines after `end` begin, and these, `look` at most."""
        start = end + len(LINE_END)
        if self._in_step and self._buffer[end:start] == LINE_END:
            figures = clean_lines(self._buffer, start, look)
            if figures.shape[1]:
                return start, figures
        search_from = end
        while match := _LINE.search(self._buffer, search_from):
            figures = clean_lines(match[0] + LINE_END, 0, 1)
            if figures.shape[1]:
                self._skip(self._buffer[end : match.start()])
                return match.start(), figures
            self._bad_checksum = True
            search_from = match.start() + 1
        return None

    def _take(self, figures: Ints, t_ns: Ints, out: list[ParseResult]) -> int:
        """Make records of the lines whose times continue evenly, at least one; return how many."""
        steps = self._time.take(figures[0])
        count, first_ns = len(steps.t_ms), int(t_ns[0])
        if steps.restarted:
            self._fault(first_ns, "restart", "the meter's own time restarted")
        if steps.missing_ms:
            self._fault(first_ns, "gap", f"records of {steps.missing_ms} ms are missing")
        if not steps.window_ms[0]:
            return count  # without a time before it, its window is unknown
        flags: Any = GAP * bool(steps.missing_ms) | RESTART * steps.restarted
        figures = figures[:, :count]
        flags |= DOUBTFUL * doubtful_lines(figures)
        for n, (output, is_off) in enumerate(_OFF.items()):
            if output in self.channels:
                flags |= is_off * (figures[8 + 4 * n] == 0)
                flags |= _TRIPPED[output] * (figures[13 + n] != 0)
        powers = [3 + 4 * GROUPS.index(key) for key in self.channels]
        rows = Rows(
            t_mono_ns=t_ns[:count],
            t_device_us=steps.t_ms * 1000,
            window_s=steps.window_ms / 1000,
            power_w=np.ascontiguousarray(figures[powers].T) / 1000,
            energy_j=None,
            flags=flags.astype(np.uint16),
        )
        out += [self._take_result(), ParseResult(rows)]
        return count

    def _skip(self, junk: bytes) -> None:
        self._junk_bytes += len(junk.translate(None, LINE_END))

    def _drop(self, parsed: int) -> None:
        """Drop the parsed bytes, and those behind them that cannot begin a line."""
        end = max(parsed, len(self._buffer) - MATCHED_BYTES)
        self._skip(self._buffer[parsed:end])
        self._parsed = min(end, 1)  # the byte before a line matters
        end -= self._parsed
        self._buffer = self._buffer[end:]
        first = max(0, int(np.searchsorted(self._offsets, end, "right")) - 1)
        self._offsets = np.maximum(self._offsets[first:] - end, 0)
        self._times = self._times[first:]

    def _report_junk(self, t_ns: int) -> None:
        junk, self._junk_bytes = self._junk_bytes, 0
        bad_checksum, self._bad_checksum = self._bad_checksum, False
        if not junk or (not self._in_step and junk < LINE_BYTES):
            return  # a port opened in mid-line starts with the rest of that line
        if bad_checksum:
            self._fault(t_ns, "checksum", f"{junk} bytes before this were corrupted")
        else:
            self._fault(t_ns, "framing", f"{junk} bytes before this are no SmartPower3 line")
