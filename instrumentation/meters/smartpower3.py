"""Hardkernel ODROID SmartPower3: streams unasked, one 81-byte line of text for each interval.

    ms(10),  mV(5),mA(4),mW(5),on(1),  twice mV(5),mA(4),mW(5),on(1),irq(2 hex),  cs1,cs2 CR LF

The first group is the input, the other two are the outputs 0 and 1. cs1 is the two's complement of
the sum of the first 74 bytes, cs2 their exclusive or, both two hex digits (hardkernel/smartpower3,
`smartpower3/smartpower3.ino`). The milliseconds are the meter's own and wrap at 2^32.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import reduce
from operator import xor
from typing import ClassVar

from instrumentation.meters.base import Accuracy, Meter
from instrumentation.meters.smartpower3_time import DeviceTime
from instrumentation.trace import Fault, Record

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


def checksums(checked: bytes) -> tuple[int, int]:
    """cs1 and cs2 of the first 74 bytes of a line."""
    return -sum(checked) & 0xFF, reduce(xor, checked, 0)


class SmartPower3(Meter):
    """Driver. Channels: `0` and `1` are the outputs, `input` the supply.

    A record's `power_w` is the mean over `window_s`, the meter's own interval up to `t_device_ms`.
    Flags: `gap` (records before this one are missing, the window is one interval), `restart` (the
    meter's time started anew), `off` (the output is switched off), `irq-XX` (a protection tripped).
    """

    kind: ClassVar[str] = "smartpower3"
    default_baud: ClassVar[int] = 115200
    own_channels: ClassVar[tuple[str, ...]] = ("0", "1", "input")
    accuracy: ClassVar[Accuracy] = Accuracy(
        relative_limit=0.03,
        absolute_limit_w=0.0005,
        source="wiki.odroid.com, SmartPower3, specifications: 3 % typical above 5 V and 1 A, taken "
        "as the limit at every load; 0.5 mW: half the last digit of the protocol",
    )

    def __init__(self, channels: Mapping[str, str]) -> None:
        super().__init__(channels)
        self._seq = 0
        self._forget()

    def _forget(self) -> None:
        self._buffer = b""
        self._arrivals: list[tuple[int, int]] = []  # (offset in the buffer, time) of each read
        self._time = DeviceTime()
        self._junk_bytes = 0
        self._bad_checksum = False
        self._in_step = False

    def feed(self, data: bytes, t_ns: int) -> list[Record | Fault]:
        """See `Meter.feed`. Whatever was corrupted, the next whole line is read again."""
        self._arrivals.append((len(self._buffer), t_ns))
        self._buffer += data
        out: list[Record | Fault] = []
        done = search_from = 0
        while match := _LINE.search(self._buffer, search_from):
            if not self._sound(match):
                self._bad_checksum = True
                search_from = match.start() + 1
                continue
            self._skip(self._buffer[done : match.start()])
            t_line_ns = self._arrival_ns(match.start())
            out += self._report_junk(t_line_ns)
            out += self._records(match, t_line_ns)
            self._in_step = True
            done = search_from = match.end()
        self._drop(max(done, len(self._buffer) - _MATCHED_BYTES), done)  # one byte before a line
        return out

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

    def _report_junk(self, t_ns: int) -> list[Fault]:
        junk, self._junk_bytes = self._junk_bytes, 0
        bad_checksum, self._bad_checksum = self._bad_checksum, False
        if not junk or (not self._in_step and junk < LINE_BYTES):
            return []  # a port opened in mid-line starts with the rest of that line
        if bad_checksum:
            return [Fault(t_ns, "checksum", f"{junk} bytes before this were corrupted")]
        return [Fault(t_ns, "framing", f"{junk} bytes before this are no SmartPower3 line")]

    def _records(self, match: re.Match[bytes], t_ns: int) -> list[Record | Fault]:
        step = self._time.step(int(match[1]))
        out: list[Record | Fault] = []
        if step.restarted:
            out.append(Fault(t_ns, "restart", "the meter's own time started anew"))
        if step.missing_ms:
            out.append(Fault(t_ns, "gap", f"records of {step.missing_ms} ms are missing"))
        if step.window_ms is None:
            return out  # without a time before it, nobody knows what this is the mean of
        common = [
            word for word, said in (("gap", step.missing_ms), ("restart", step.restarted)) if said
        ]
        for own, channel in self.channels.items():
            group = _POWER_GROUP[own]
            flags = common + ([] if own == "input" else self._output_flags(match, group))
            out.append(
                Record(
                    seq=self._seq,
                    epoch=self.epoch,
                    t_mono_ns=t_ns,
                    t_device_ms=step.t_device_ms,
                    channel=channel,
                    window_s=step.window_ms / 1000,
                    power_w=int(match[group]) / 1000,
                    energy_j=None,
                    flags=" ".join(flags),
                )
            )
            self._seq += 1
        return out

    @staticmethod
    def _output_flags(match: re.Match[bytes], group: int) -> list[str]:
        off = ["off"] if match[group + 1] == b"0" else []
        irq = match[group + 2].decode("ascii")
        return off + ([] if irq == "00" else [f"irq-{irq}"])
