"""Hardkernel ODROID SmartPower3: streams unasked, one 81-byte line of text for each interval.

    ms(10),  mV(5),mA(4),mW(5),on(1),  twice mV(5),mA(4),mW(5),on(1),irq(2 hex),  cs1,cs2 CR LF

The first group is the input, the other two are the outputs 0 and 1. cs1 is the two's complement of
the sum of the first 74 bytes, cs2 their exclusive or, both two hex digits (hardkernel/smartpower3,
`smartpower3/smartpower3.ino`). The milliseconds are the meter's own and wrap at 2^32.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import Any, ClassVar

from instrumentation.meters.base import Accuracy, Meter
from instrumentation.meters.rows import COMMON_WORDS, GAP, RESTART, Fed, RowBuilder
from instrumentation.meters.smartpower3_time import INTERVALS_MS, DeviceTime, Step

LINE_BYTES = 81
CHECKED_BYTES = 74
_OUTPUT = rb"(\d{5}),(\d{4}),(\d{5}),(\d),([0-9a-f]{2}),"
# A digit before the first one was doubled on the wire; the checksums would not see that.
_LINE = re.compile(
    rb"(?<![0-9a-f])(\d{10}),(\d{5}),(\d{4}),(\d{5}),(\d),"
    + _OUTPUT
    + _OUTPUT
    + rb"([0-9a-f]{2}),([0-9a-f]{2})"
)
_MATCHED_BYTES = 79
_LINE_END = b"\r\n"
# Where mW and the state stand among the groups of _LINE, for each channel.
_POWER_GROUP = {"input": 4, "0": 8, "1": 13}


@dataclass(frozen=True)
class Settings:
    """`interval_ms` is what is set at the meter: it is looked for in the stream and not sent."""

    interval_ms: int = 10

    def __post_init__(self) -> None:
        if self.interval_ms not in INTERVALS_MS:
            raise ValueError(f"interval_ms is one of {', '.join(map(str, INTERVALS_MS))}.")


def checksums(checked: bytes) -> tuple[int, int]:
    """cs1 and cs2 of the first 74 bytes of a line."""
    return -sum(checked) & 0xFF, reduce(xor, checked, 0)


_OFF = {"0": 8, "1": 16}
_TRIPPED = {"0": 32, "1": 64}


class SmartPower3(Meter):
    """Driver. Channels: `0` and `1` are the outputs, `input` the supply.

    A record's `power_w` is the mean over `window_s`, the meter's own interval up to `t_device_us`.
    Flags: `gap` (records before this one are missing, the window is one interval), `restart` (the
    meter's time started anew), `off-N` (output N is switched off), `tripped-N` (a protection of
    output N has tripped).
    """

    kind: ClassVar[str] = "smartpower3"
    name: ClassVar[str] = "Hardkernel ODROID SmartPower3"
    default_baud: ClassVar[int] = 115200
    usb_ids: ClassVar[tuple[str, ...]] = ("10c4:ea60",)  # a CP2104 on the board
    own_channels: ClassVar[tuple[str, ...]] = ("0", "1", "input")
    timing: ClassVar[str] = "device"
    # A line is sent within one pass of the firmware's loop; 20 ms of it is generous.
    arrival_delay_limit_s: ClassVar[float] = 0.02
    flag_words: ClassVar[tuple[str, ...]] = (
        *COMMON_WORDS,
        "off-0",
        "off-1",
        "tripped-0",
        "tripped-1",
    )
    Settings: ClassVar[type[Any]] = Settings

    def __init__(
        self, channels: Mapping[str, str], settings: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(channels, settings)
        self._forget()

    @property
    def accuracy(self) -> Accuracy:
        """See `Meter.accuracy`."""
        return Accuracy(
            relative_limit=0.03,
            absolute_limit_w=0.0005,
            source="wiki.odroid.com, SmartPower3, specifications: 3 % typical above 5 V and 1 A, "
            "taken as the limit at every load; 0.5 mW: half the last digit of the protocol",
        )

    @property
    def period_s(self) -> float:
        """The interval set at the meter."""
        return float(self.settings.interval_ms) / 1000

    def _forget(self) -> None:
        self._buffer = b""
        self._arrivals: list[tuple[int, int]] = []  # (offset in the buffer, time) of each read
        self._time = DeviceTime()
        self._junk_bytes = 0
        self._bad_checksum = False
        self._in_step = False

    def feed(self, data: bytes, t_ns: int) -> Fed:
        """See `Meter.feed`. Whatever was corrupted, the next whole line is read again."""
        self._arrivals.append((len(self._buffer), t_ns))
        self._buffer += data
        out = RowBuilder(len(self.channels))
        done = search_from = 0
        while match := _LINE.search(self._buffer, search_from):
            if not self._sound(match):
                self._bad_checksum = True
                search_from = match.start() + 1
                continue
            self._skip(self._buffer[done : match.start()])
            t_line_ns = self._arrival_ns(match.start())
            self._report_junk(t_line_ns, out)
            self._add_record(match, t_line_ns, out)
            self._in_step = True
            done = search_from = match.end()
        self._drop(max(done, len(self._buffer) - _MATCHED_BYTES), done)  # one byte before a line
        return out.take()

    @staticmethod
    def _sound(match: re.Match[bytes]) -> bool:
        wanted = (int(match[16], 16), int(match[17], 16))
        return checksums(match[0][:CHECKED_BYTES]) == wanted

    def _skip(self, junk: bytes) -> None:
        self._junk_bytes += len(junk.strip(_LINE_END))

    def _drop(self, end: int, done: int) -> None:
        """Forget the buffer up to `end`; what lies behind `done` was no line."""
        self._skip(self._buffer[done:end])
        self._buffer = self._buffer[end:]
        last_before = [arrival for arrival in self._arrivals if arrival[0] <= end][-1:]
        after = [arrival for arrival in self._arrivals if arrival[0] > end]
        self._arrivals = [(max(0, at - end), t_ns) for at, t_ns in last_before + after]

    def _arrival_ns(self, offset: int) -> int:
        return next(t_ns for at, t_ns in reversed(self._arrivals) if at <= offset)

    def _report_junk(self, t_ns: int, out: RowBuilder) -> None:
        junk, self._junk_bytes = self._junk_bytes, 0
        bad_checksum, self._bad_checksum = self._bad_checksum, False
        if not junk or (not self._in_step and junk < LINE_BYTES):
            return  # a port opened in mid-line starts with the rest of that line
        if bad_checksum:
            out.fault(t_ns, "checksum", f"{junk} bytes before this were corrupted")
        else:
            out.fault(t_ns, "framing", f"{junk} bytes before this are no SmartPower3 line")

    def _add_record(self, match: re.Match[bytes], t_ns: int, out: RowBuilder) -> None:
        step = self._time.step(int(match[1]))
        if step.restarted:
            out.fault(t_ns, "restart", "the meter's own time started anew")
        if step.missing_ms:
            out.fault(t_ns, "gap", f"records of {step.missing_ms} ms are missing")
        if step.window_ms is None:
            return  # without a time before it, nobody knows what this is the mean of
        out.add(
            t_ns,
            step.t_device_ms * 1000,
            step.window_ms / 1000,
            [int(match[_POWER_GROUP[own]]) / 1000 for own in self.channels],
            flags=self._flags(match, step),
        )

    def _flags(self, match: re.Match[bytes], step: Step) -> int:
        flags = GAP * bool(step.missing_ms) | RESTART * step.restarted
        for own in self.channels:
            if own != "input":
                group = _POWER_GROUP[own]
                flags |= _OFF[own] * (match[group + 1] == b"0")
                flags |= _TRIPPED[own] * (match[group + 2] != b"00")
        return flags
