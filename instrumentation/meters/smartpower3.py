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
from typing import Any, ClassVar

import numpy as np

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
from instrumentation.meters.smartpower3_lines import (
    FIELDS,
    GROUPS,
    INTERVALS_MS,
    LINE,
    LINE_BYTES,
    LINE_END,
    MATCHED_BYTES,
    DeviceTime,
    Lines,
    clean_lines,
    fits,
    sound,
)
from instrumentation.trace import Pieces

_FIRST_LOOK = 8  # lines at once; twice as many while all are clean
_LAST_LOOK = 4096


@dataclass(frozen=True)
class Settings:
    """`interval_ms` is what is set at the meter: it is looked for in the stream and not sent."""

    interval_ms: int = 10

    def __post_init__(self) -> None:
        if self.interval_ms not in INTERVALS_MS:
            raise ValueError(f"interval_ms is one of {', '.join(map(str, INTERVALS_MS))}.")


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
        """Records of the first lines, of as many as there are times."""
        count = len(t_ms)
        power_w = [lines.groups[own][2][:count] / 1000 for own in self.channels]
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
        """Forget the buffer up to one byte before `end`; what lies behind `done` was no line."""
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
            return  # without a time before it, nobody knows what this is the mean of
        groups = {group: [int(match[n]) for n in FIELDS[group]] for group in GROUPS}
        tripped = {own: match[FIELDS[own][3] + 1] != b"00" for own in _TRIPPED}
        flags = GAP * bool(step.missing_ms) | RESTART * step.restarted
        self._out.add(
            t_ns,
            step.t_device_ms * 1000,
            step.window_ms / 1000,
            [groups[own][2] / 1000 for own in self.channels],
            flags=flags | int(self._flags(groups, tripped)),
        )

    def _flags(self, groups: Mapping[str, Sequence[Any]], tripped: Mapping[str, Any]) -> Any:
        """Flags of one line or of n, by their figures: see `Lines`."""
        flags: Any = 0
        for group, (millivolt, milliampere, milliwatt, state) in groups.items():
            flags |= _DOUBTFUL * np.logical_not(fits(millivolt, milliampere, milliwatt))
            if group in self.channels and group in _OFF:
                flags |= _OFF[group] * (state == 0) | _TRIPPED[group] * tripped[group]
        return flags
