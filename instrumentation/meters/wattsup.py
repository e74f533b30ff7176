"""Watts Up? Pro, ES and .NET: streams a packet of text each second once it is told to.

A packet is `#C,S,n,a1,…,an;`. CR, LF and TAB beside its separators mean nothing, nor does anything
outside a packet; `_` is a value that the meter does not log. `#d` holds readings, `#h` their names,
`#v` model and firmware: the answer to `#V,R,0;`, and unasked at power-on. There is no checksum and
no time (vendor's protocol, revision 1.8; energymon/energymon, `wattsup/`).

What stands in for a checksum is that a record says most things twice; see `wattsup_checks`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from instrumentation.meters.base import Accuracy, Meter
from instrumentation.meters.inbox import Inbox
from instrumentation.meters.opening import Opening
from instrumentation.meters.rows import GAP, RESTART, Fed, RowBuilder
from instrumentation.meters.wattsup_checks import Readings, Trust, incoherent, unsteady

FIELDS = (
    *("W", "V", "A", "WH", "Cost", "WH/Mo", "Cost/Mo", "Wmax", "Vmax", "Amax"),
    *("Wmin", "Vmin", "Amin", "PF", "DC", "PC", "Hz", "VA"),
)
# Older firmware ends with PC.
_LAYOUTS = {len(FIELDS): FIELDS, 16: FIELDS[:16]}

_VERSION = b"#V,R,0;"
_HEADER = b"#H,R,0;"
_START = b"#L,W,3,E,1,1;"  # to the port, each second
# Both this and `#L,R,0;` are in use; this one is of the form of the request that it takes back.
_STOP = b"#L,W,0;"
_PAUSE_S = 0.3
_SILENCE_S = 3.5
# The protocol promises an answer within this.
_ANSWER_NS = 2_000_000_000

_PERIOD_S = 1.0
_GAP_PERIODS = 1.5
_JOULES_PER_COUNT = 360.0  # WH is in 0.1 Wh
_MOST_BYTES = 512  # a packet of 18 fields has some 110
_IGNORED = b"\r\n\t\0 "
_SPACE = rb"[\r\n\t\0]*"
_SEPARATOR = re.compile(_SPACE + rb"," + _SPACE)
# No meter writes leading zeros: a zero that was doubled on the wire shows.
_NUMBER = re.compile(rb"0|[1-9]\d{0,8}")


@dataclass(frozen=True)
class _Record:
    """One packet of readings and when it came."""

    t_ns: int
    readings: Readings


class WattsUp(Meter):
    """Driver. Its one channel is `0`, the outlet.

    A record's `power_w` is the mean over the second before it. The first record after the port was
    opened only serves to check the next one, and its second may not have been whole. `energy_j` is
    the meter's WH counter, to 360 J, going on from where it was when the meter was reset (flag
    `restart`). A record whose readings contradict each other or the record before it is a fault
    and no record.

    What passes: a digit of W or WH that changed by less than the relations can see (3 % of power,
    0.2 Wh at the first record), and changes of DC and PC, which are not used.
    """

    kind: ClassVar[str] = "wattsup"
    name: ClassVar[str] = "Watts Up? Pro, ES or .NET"
    default_baud: ClassVar[int] = 115200
    usb_ids: ClassVar[tuple[str, ...]] = ("0403:6001",)
    own_channels: ClassVar[tuple[str, ...]] = ("0",)
    timing: str = "index"
    # Nowhere stated: the adapter's 16 ms and five times that for the meter's own work.
    arrival_delay_limit_s: float = 0.1
    has_energy: bool = True

    def __init__(
        self, channels: Mapping[str, str], settings: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(channels, settings)
        self._forget()

    @property
    def accuracy(self) -> Accuracy:
        """See `Meter.accuracy`."""
        return Accuracy(
            relative_limit=0.015,
            absolute_limit_w=0.3,
            source="Watts Up? specifications: 1.5 % + 3 counts of the displayed "
            "value; a count is 0.1 W",
        )

    @property
    def period_s(self) -> float:
        """One second, as it is told to."""
        return _PERIOD_S

    def _forget(self) -> None:
        self._inbox = Inbox()
        self._opening = Opening((_VERSION, _HEADER, _START), _PAUSE_S, _SILENCE_S)
        self._asked_version_ns: int | None = None
        self._layout: tuple[str, ...] | None = None
        self._trust = Trust()
        self._last: _Record | None = None  # the last sound one
        self._doubtful: _Record | None = None  # the last that did not follow from it
        self._switched_on = False
        self._base_counts = 0
        self._in_step = False

    def request(self, t_ns: int) -> bytes:
        """See `Meter.request`: version, names of the readings, then the start of logging."""
        return self._opening.request(t_ns)

    @property
    def due_ns(self) -> int | None:
        """See `Meter.due_ns`."""
        return self._opening.due_ns

    def asked(self, data: bytes, t_ns: int) -> None:
        """See `Meter.asked`."""
        if data == _VERSION:
            self._asked_version_ns = t_ns
        self._opening.asked(t_ns)

    def farewell(self) -> bytes:
        """Ends the logging to the port."""
        return _STOP

    def feed(self, data: bytes, t_ns: int) -> Fed:
        """See `Meter.feed`. Whatever was corrupted, the next whole packet is read again."""
        self._inbox.add(data, t_ns)
        out = RowBuilder(len(self.channels), self.has_energy)
        while (end := self._inbox.data.find(b";")) >= 0:
            start = max(0, self._inbox.data.rfind(b"#", 0, end))
            self._report_junk(self._inbox.data[:start], self._inbox.arrival_ns(0), out)
            packet = self._inbox.data[start:end]
            self._read_packet(packet, self._inbox.arrival_ns(start), out)
            self._inbox.drop(end + 1)
        if len(self._inbox.data) > _MOST_BYTES:
            self._report_junk(self._inbox.data, self._inbox.arrival_ns(0), out)
            self._inbox.drop(len(self._inbox.data))
        return out.take()

    def _report_junk(self, junk: bytes, t_ns: int, out: RowBuilder) -> None:
        told = junk.strip(_IGNORED)
        # A port opened in mid-packet starts with the rest of that packet.
        if told and (self._in_step or len(told) > _MOST_BYTES // 2):
            out.fault(t_ns, "framing", f"{len(told)} bytes belong to no packet: {told[:40]!r}")

    def _read_packet(self, packet: bytes, t_ns: int, out: RowBuilder) -> None:
        """`packet` is without its semicolon."""
        head, *values = _SEPARATOR.split(packet)
        whole = len(values) >= 2 and values[0] == b"-" and values[1] == b"%d" % (len(values) - 2)
        if not whole:
            self._report_junk(packet + b";", t_ns, out)
            return
        self._in_step = True
        if head == b"#d":
            self._read_data(values[2:], t_ns, out)
        elif head == b"#v":
            self._read_version(values[2:], t_ns, out)
        elif head == b"#h":
            self._read_header(values[2:], t_ns, out)
        else:
            out.fault(t_ns, "framing", f"a packet that nobody asked for: {packet[:40]!r}")

    def _read_version(self, values: list[bytes], t_ns: int, out: RowBuilder) -> None:
        if self._asked_version_ns is not None and t_ns - self._asked_version_ns <= _ANSWER_NS:
            return
        said = b",".join(values).decode("ascii", "backslashreplace")
        out.fault(t_ns, "banner", f"the meter was switched on, it is {said}")
        self._switched_on = True
        self._opening.again()

    def _read_header(self, values: list[bytes], t_ns: int, out: RowBuilder) -> None:
        names = tuple(value.decode("ascii", "replace") for value in values)
        if "W" in names and set(names) <= set(FIELDS) and len(set(names)) == len(names):
            self._layout = names
        else:
            out.fault(t_ns, "framing", f"names that no Watts Up? has: {', '.join(names)[:80]}")

    def _read_data(self, values: list[bytes], t_ns: int, out: RowBuilder) -> None:
        layout = self._layout or _LAYOUTS.get(len(values))
        if layout is None or len(layout) != len(values):
            out.fault(t_ns, "framing", f"a record of {len(values)} readings")
            return
        if any(value != b"_" and not _NUMBER.fullmatch(value) for value in values):
            out.fault(t_ns, "framing", f"readings that are no numbers: {b','.join(values)[:80]!r}")
            return
        self._opening.heard(t_ns)
        numbers = [None if value == b"_" else int(value) for value in values]
        record = _Record(t_ns, dict(zip(layout, numbers, strict=True)))
        if record.readings["W"] is None:
            out.fault(t_ns, "framing", "the meter does not log watts; switch that on at the meter")
        elif broken := self._trust.broken(incoherent(record.readings)):
            out.fault(t_ns, "inconsistent", f"does not hold: {', '.join(broken)}")
        else:
            self._take(record, out)
        for relation in self._trust.newly_dropped():
            out.fault(t_ns, "distrust", f"this meter does not keep to {relation}; no longer used")

    def _take(self, record: _Record, out: RowBuilder) -> None:
        """A record that is sound in itself: does it follow from what came before?"""
        last = self._last
        if last is None:
            self._last = record
            return
        broken = self._trust.broken(self._relations(last, record))
        doubtful, self._doubtful = self._doubtful, None
        restart = False
        if broken:
            confirmed = doubtful is not None and not self._unsteady(doubtful, record)
            if not confirmed and not self._switched_on:
                self._doubtful = record
                detail = f"does not follow from the record before: {', '.join(broken)}"
                out.fault(record.t_ns, "inconsistent", detail)
                return
            restart = self._restarted(last, record, out)
        self._switched_on = False
        self._add(last, record, restart, out)
        self._last = record

    def _relations(self, before: _Record, now: _Record) -> dict[str, bool]:
        seconds = (now.t_ns - before.t_ns) / 1e9
        gap = seconds >= _GAP_PERIODS * _PERIOD_S
        # Two records that were read at once were still a second apart.
        return unsteady(before.readings, now.readings, max(seconds, _PERIOD_S), gap=gap)

    def _unsteady(self, before: _Record, now: _Record) -> bool:
        fails = self._relations(before, now)
        return any(fails[name] and self._trust.trusts(name) for name in fails)

    def _restarted(self, last: _Record, record: _Record, out: RowBuilder) -> bool:
        """Whether the counter began anew; then goes on from where it was."""
        before, now = last.readings.get("WH"), record.readings.get("WH")
        if before is None or now is None or now >= before:
            return False
        self._base_counts += before
        out.fault(record.t_ns, "restart", "the meter's energy counter was reset")
        return True

    def _add(self, last: _Record, record: _Record, restart: bool, out: RowBuilder) -> None:
        missing_s = (record.t_ns - last.t_ns) / 1e9 - _PERIOD_S
        gap = missing_s >= (_GAP_PERIODS - 1) * _PERIOD_S
        if gap:
            out.fault(record.t_ns, "gap", f"records of some {missing_s:.1f} s are missing")
        counts = record.readings.get("WH")
        usable = counts is not None and self._trust.trusts("WH after WH")
        energy_j = (self._base_counts + (counts or 0)) * _JOULES_PER_COUNT
        out.add(
            record.t_ns,
            None,
            _PERIOD_S,
            [(record.readings["W"] or 0) / 10],
            energy_j=[energy_j if usable else float("nan")],
            flags=GAP * gap | RESTART * restart,
        )
