"""Driver of the Watts Up? Pro, ES and .NET: packets of readings without a checksum."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from fde_instruments.meters.wattsup_relations import (
    Readings,
    Trust,
    failing_between,
    failing_within,
    over_range,
)
from instrumentation.accuracy import Accuracy
from instrumentation.meters.base import Meter
from instrumentation.meters.rows import GAP, OVER_RANGE, RESTART, Inbox, Opening, ParseResult

FIELDS = (
    *("W", "V", "A", "WH", "Cost", "WH/Mo", "Cost/Mo", "Wmax", "Vmax", "Amax"),
    *("Wmin", "Vmin", "Amin", "PF", "DC", "PC", "Hz", "VA"),
)
# Older firmware ends with PC.
_LAYOUTS = {len(FIELDS): FIELDS, 16: FIELDS[:16]}

_VERSION = b"#V,R,0;"
_HEADER = b"#H,R,0;"
_START = b"#L,W,3,E,1,1;"  # to the port, each second
# Both this and `#L,R,0;` are in use; this one has the form of the request that it reverts.
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
# No meter writes leading zeros, which reveals a zero that was doubled on the wire.
_NUMBER = re.compile(rb"0|[1-9]\d{0,8}")


@dataclass(frozen=True)
class _Record:
    """One packet of readings and its arrival."""

    t_ns: int
    readings: Readings


class WattsUp(Meter):
    """Driver. Its one channel is `0`, the outlet.

    A record's `power_w` is the mean over the second before it. The first record after the port was
    opened only serves to check the next one, and its second may be incomplete. `energy_j` is the
    meter's WH counter, in steps of 360 J, continued when the meter was reset (flag `restart`);
    `over-range` flags a reading above the limits of all models. A record whose readings contradict
    each other or the record before it is a fault and no record.

    Not detected are a digit of W or WH that changed by less than the relations allow (3 % of power,
    0.2 Wh at the first record), and changes of DC and PC, which are not used.
    """

    kind: ClassVar[str] = "wattsup"
    name: ClassVar[str] = "Watts Up? Pro, ES or .NET"
    default_baud: ClassVar[int] = 115200
    usb_ids: ClassVar[tuple[str, ...]] = ("0403:6001",)
    own_channels: ClassVar[tuple[str, ...]] = ("0",)
    timing: str = "index"
    detects_damage: ClassVar[bool] = True
    # Nowhere stated: the adapter's 16 ms and five times that for the meter.
    arrival_delay_limit_s: float = 0.1
    has_energy: bool = True
    period_s: float = _PERIOD_S
    accuracy = Accuracy(
        relative_limit=0.015,
        absolute_limit_w=0.3,
        source="Watts Up? specifications: 1.5 % + 3 counts of the displayed "
        "value; a count is 0.1 W",
        absolute="resolution",
    )

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

    def on_request_sent(self, data: bytes, t_ns: int) -> None:
        if data == _VERSION:
            self._asked_version_ns = t_ns
        super().on_request_sent(data, t_ns)

    def stop_command(self) -> bytes:
        """Return the command that ends logging to the port."""
        return _STOP

    def feed(self, data: bytes, t_ns: int) -> ParseResult:
        """See `Meter.feed`. After damage the next whole packet is read again."""
        self._inbox.add(data, t_ns)
        buffer, begin = self._inbox.data, 0
        while (end := buffer.find(b";", begin)) >= 0:
            start = max(begin, buffer.rfind(b"#", begin, end))
            self._report_junk(buffer[begin:start], self._inbox.arrival_ns(begin))
            self._read_packet(buffer[start:end], self._inbox.arrival_ns(start))
            begin = end + 1
        self._inbox.drop(begin)
        if len(self._inbox.data) > _MOST_BYTES:
            self._report_junk(self._inbox.data, self._inbox.arrival_ns(0))
            self._inbox.drop(len(self._inbox.data))
        return self._take_result()

    def _report_junk(self, junk: bytes, t_ns: int) -> None:
        junk = junk.strip(_IGNORED)
        # A port opened in mid-packet starts with the rest of that packet.
        if junk and (self._in_step or len(junk) > _MOST_BYTES // 2):
            self._fault(t_ns, "framing", f"{len(junk)} bytes belong to no packet: {junk[:40]!r}")

    def _read_packet(self, packet: bytes, t_ns: int) -> None:
        """Read a packet, which is without its semicolon."""
        # A longer one is none, and its white space would be scanned again and again.
        head, *values = _SEPARATOR.split(packet) if len(packet) <= _MOST_BYTES else [packet]
        complete = len(values) >= 2 and values[0] == b"-" and values[1] == b"%d" % (len(values) - 2)
        if not complete:
            self._report_junk(packet + b";", t_ns)
            return
        self._in_step = True
        if head == b"#d":
            self._read_data(values[2:], t_ns)
        elif head == b"#v":
            self._read_version(values[2:], t_ns)
        elif head == b"#h":
            names = tuple(value.decode("ascii", "replace") for value in values[2:])
            if "W" in names and set(names) <= set(FIELDS) and len(set(names)) == len(names):
                self._layout = names
            else:
                self._fault(t_ns, "framing", f"unknown field names: {', '.join(names)[:80]}")
        else:
            self._fault(t_ns, "framing", f"an unrequested packet: {packet[:40]!r}")

    def _read_version(self, values: list[bytes], t_ns: int) -> None:
        if self._asked_version_ns is not None and t_ns - self._asked_version_ns <= _ANSWER_NS:
            return
        version = b",".join(values).decode("ascii", "backslashreplace")
        self._fault(t_ns, "banner", f"the meter was switched on, it is {version}")
        self._switched_on = True
        self._opening.again()

    def _read_data(self, values: list[bytes], t_ns: int) -> None:
        layout = self._layout or _LAYOUTS.get(len(values))
        if layout is None or len(layout) != len(values):
            self._fault(t_ns, "framing", f"a record of {len(values)} readings")
            return
        if any(value != b"_" and not _NUMBER.fullmatch(value) for value in values):
            shown = b",".join(values)[:80]
            self._fault(t_ns, "framing", f"readings that are not numbers: {shown!r}")
            return
        self._opening.on_record(t_ns)
        numbers = [None if value == b"_" else int(value) for value in values]
        record = _Record(t_ns, dict(zip(layout, numbers, strict=True)))
        if record.readings["W"] is None:
            detail = "the meter does not log watts; switch that on at the meter"
            self._fault(t_ns, "framing", detail)
        elif broken := self._trust.broken(failing_within(record.readings)):
            self._fault(t_ns, "inconsistent", f"does not hold: {', '.join(broken)}")
        else:
            self._take(record)
        for relation in self._trust.newly_dropped():
            self._fault(t_ns, "distrust", f"this meter does not keep to {relation}; no longer used")

    def _take(self, record: _Record) -> None:
        """Take a record that is sound in itself, unless it contradicts the last one."""
        last = self._last
        if last is None:
            self._last = record
            return
        broken = self._trust.broken(self._relations(last, record))
        doubtful, self._doubtful = self._doubtful, None
        restart = False
        if broken:
            fails = self._relations(doubtful, record) if doubtful is not None else {}
            confirmed = doubtful is not None and not any(
                fails[name] and self._trust.trusts(name) for name in fails
            )
            if not confirmed and not self._switched_on:
                self._doubtful = record
                detail = f"does not follow from the record before: {', '.join(broken)}"
                self._fault(record.t_ns, "inconsistent", detail)
                return
            restart = self._restarted(last, record)
        self._switched_on = False
        self._add(last, record, restart)
        self._last = record

    def _relations(self, before: _Record, latest: _Record) -> dict[str, bool]:
        seconds = (latest.t_ns - before.t_ns) / 1e9
        gap = seconds >= _GAP_PERIODS * _PERIOD_S
        # Two records that were read at once were still a second apart.
        return failing_between(before.readings, latest.readings, max(seconds, _PERIOD_S), gap=gap)

    def _restarted(self, last: _Record, record: _Record) -> bool:
        """Return whether the counter was reset; if so, continue it from its last value."""
        before, latest = last.readings.get("WH"), record.readings.get("WH")
        if before is None or latest is None or latest >= before:
            return False
        self._base_counts += before
        self._fault(record.t_ns, "restart", "the meter's energy counter was reset")
        return True

    def _add(self, last: _Record, record: _Record, restart: bool) -> None:
        missing_s = (record.t_ns - last.t_ns) / 1e9 - _PERIOD_S
        gap = missing_s >= (_GAP_PERIODS - 1) * _PERIOD_S
        if gap:
            self._fault(record.t_ns, "gap", f"records of some {missing_s:.1f} s are missing")
        counts = record.readings.get("WH")
        usable = counts is not None and self._trust.trusts("WH after WH")
        energy_j = (self._base_counts + (counts or 0)) * _JOULES_PER_COUNT
        self._out.add(
            record.t_ns,
            None,
            _PERIOD_S,
            [(record.readings["W"] or 0) / 10],
            energy_j=[energy_j if usable else float("nan")],
            flags=GAP * gap | RESTART * restart | OVER_RANGE * over_range(record.readings),
        )
