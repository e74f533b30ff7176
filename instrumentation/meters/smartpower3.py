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
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, get_args

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


def fits(millivolt: Any, milliampere: Any, milliwatt: Any) -> Any:
    """Whether the power is the product of the others, as the meter computes it.

    The firmware prints whole parts and multiplies the voltage with its fraction by the whole
    milliamperes (`smartpower3/meas_channel.cpp`); 1 mW more on either side for its single
    precision. It samples on while it prints: in a few sound lines the parts are of two samples.
    """
    low = millivolt * milliampere // 1000 - 1
    high = (millivolt + 1) * milliampere // 1000 + 1
    return (low <= milliwatt) & (milliwatt <= high)


def doubted(figures: Ints) -> NDArray[np.bool_]:
    """Whether any power of a line [n] is not the product of its voltage and current."""
    return np.asarray(~fits(figures[1:13:4], figures[2:13:4], figures[3:13:4]).all(axis=0))


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
# So many steps alike are the meter's interval: one alone may be jitter, or the first after a gap.
_AGREEING = 3
# A step longer than this many intervals has records missing.
_GAP_INTERVALS = 1.5


class Steps(NamedTuple):
    """Times of lines [n], unwrapped, and the windows [n] that end there, 0 where unknown.

    All in ms, as is what is missing before the first of them; whether the time restarted there.
    """

    t_ms: Ints
    window_ms: Ints
    missing_ms: int = 0
    restarted: bool = False


class DeviceTime:
    """Follows the times of successive lines, from the opening of the port on."""

    def __init__(self) -> None:
        self._last_ms = -1
        self._interval_ms = self._candidate_ms = self._agreed = 0

    def take(self, raw_ms: Ints) -> Steps:
        """Take the times of lines as far as they continue evenly, at least that of the first."""
        if self._last_ms < 0:
            return self._first(int(raw_ms[0]), 0)
        before_ms = np.concatenate(([self._last_ms], raw_ms[:-1]))
        delta_ms = (raw_ms - before_ms) % _WRAP_MS
        # The longest interval that is possible by one step; what three agree on is the meter's.
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
        """See `Meter.feed_all`. Lines whose time continues evenly are read at once."""
        sizes = np.array([len(self._buffer), *pieces.sizes[:-1]], np.int64)
        self._offsets = np.concatenate([self._offsets, np.cumsum(sizes)])
        self._times = np.concatenate([self._times, np.array(pieces.t_mono_ns, np.int64)])
        self._buffer += pieces.data
        out: list[ParseResult] = []
        done, look = self._used, _FIRST_LOOK
        while (lines := self._lines(done, look)) is not None:
            at, figures = lines
            begins = at + LINE_BYTES * np.arange(figures.shape[1])
            t_ns = self._times[np.searchsorted(self._offsets, begins, "right") - 1]
            self._report_junk(int(t_ns[0]))
            self._in_step = True
            count = self._take(figures, t_ns, out)
            look = min(2 * look, _LAST_LOOK) if count == look else _FIRST_LOOK
            done = at + count * LINE_BYTES - len(LINE_END)
        self._drop(max(done, len(self._buffer) - MATCHED_BYTES), done)  # one byte before a line
        return joined([*out, self._taken()])

    def _lines(self, done: int, look: int) -> tuple[int, Ints] | None:
        """Return where the next sound lines behind `done` begin, and these, `look` at most."""
        start = done + len(LINE_END)
        if self._in_step and self._buffer[done:start] == LINE_END:
            figures = clean_lines(self._buffer, start, look)
            if figures.shape[1]:
                return start, figures
        search_from = done
        while match := _LINE.search(self._buffer, search_from):
            figures = clean_lines(match[0] + LINE_END, 0, 1)
            if figures.shape[1]:
                self._skip(self._buffer[done : match.start()])
                return match.start(), figures
            self._bad_checksum = True
            search_from = match.start() + 1
        return None

    def _take(self, figures: Ints, t_ns: Ints, out: list[ParseResult]) -> int:
        """Make records of the lines whose time continues evenly, or of the first; how many."""
        steps = self._time.take(figures[0])
        count, first_ns = len(steps.t_ms), int(t_ns[0])
        if steps.restarted:
            self._fault(first_ns, "restart", "the meter's own time restarted")
        if steps.missing_ms:
            self._fault(first_ns, "gap", f"records of {steps.missing_ms} ms are missing")
        if not steps.window_ms[0]:
            return count  # without a time before it, what this is the mean of is unknown
        flags: Any = GAP * bool(steps.missing_ms) | RESTART * steps.restarted
        figures = figures[:, :count]
        flags |= _DOUBTFUL * doubted(figures)
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
        out += [self._taken(), ParseResult(rows)]
        return count

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

    def _report_junk(self, t_ns: int) -> None:
        junk, self._junk_bytes = self._junk_bytes, 0
        bad_checksum, self._bad_checksum = self._bad_checksum, False
        if not junk or (not self._in_step and junk < LINE_BYTES):
            return  # a port opened in mid-line starts with the rest of that line
        if bad_checksum:
            self._fault(t_ns, "checksum", f"{junk} bytes before this were corrupted")
        else:
            self._fault(t_ns, "framing", f"{junk} bytes before this are no SmartPower3 line")
