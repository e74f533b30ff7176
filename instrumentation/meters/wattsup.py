"""What must hold within and between the records of a Watts Up?, which has no checksum.

Readings are integers as on the wire: W, WH, V, Hz and VA in tenths, A in thousandths, PF in %, Cost
in thousandths. The tolerances are our own: wide enough for the records that are published (V·A is
off VA by up to 7 % at 12 W), and a relation that often fails is dropped (`Trust`), because firmware
differs: some give the largest power of each interval as Wmax, some that since the last reset.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from instrumentation.accuracy import Accuracy
from instrumentation.meters.base import Meter
from instrumentation.meters.rows import GAP, OVER_RANGE, RESTART, Inbox, Opening, ParseResult

Readings = Mapping[str, int | None]

_MAXIMA = ("Wmax", "Vmax", "Amax")
_MINIMA = ("Wmin", "Vmin", "Amin")
# No model takes more than 15 A, at up to 250 V; in counts, with room for what is shown beyond.
_MOST_POWER = 40_000
_MOST = {"Wmax": _MOST_POWER, "VA": _MOST_POWER, "Vmax": 3_000, "Amax": 16_000}
_MOST_NOW = {"W": _MOST_POWER, "VA": _MOST_POWER, "V": 3_000, "A": 16_000}
_SECONDS_PER_HOUR = 3600
# A relation that failed so often, and in more than a share of all records, is no property of the
# meter: more than half for what physics demands, a fifth for what firmware may do otherwise.
_FAILURES = 5
_FAILURE_SHARE = 0.2
_FAILURE_SHARE_PHYSICAL = 0.5
_PHYSICAL = frozenset(
    ("W = VA x PF", "W = V x A x PF", "PF", "Hz", "WH after WH", "the meter's range")
)


def incoherent(now: Readings) -> dict[str, bool]:
    """Each relation within one record that its readings allow to look at: whether it fails."""
    failing: dict[str, bool] = {}
    w, v, a = now.get("W"), now.get("V"), now.get("A")
    pf, va, hz = now.get("PF"), now.get("VA"), now.get("Hz")
    if w is not None and pf is not None:
        if va is not None:
            failing["W = VA x PF"] = abs(w - va * pf / 100) > 0.006 * va + 3
        if v is not None and a is not None:
            apparent = v * a / 1000  # in 0.1 VA
            failing["W = V x A x PF"] = abs(w - apparent * pf / 100) > 0.06 * apparent + 15
    if pf is not None:
        failing["PF"] = pf > 100
    if hz is not None:
        failing["Hz"] = hz != 0 and not 400 <= hz <= 700
    ranges = [value <= most for name, most in _MOST.items() if (value := now.get(name)) is not None]
    if ranges:
        failing["the meter's range"] = not all(ranges)
    if v:
        extremes = [value for value in (now.get("Vmin"), now.get("Vmax")) if value is not None]
        failing["V near its extremes"] = any(not 0.7 * v <= e <= 1.3 * v for e in extremes)
    for quantity, value in (("W", w), ("V", v), ("A", a)):
        least, most = now.get(f"{quantity}min"), now.get(f"{quantity}max")
        if value is not None and least is not None:
            failing[f"{quantity}min"] = value < least
        if value is not None and most is not None:
            failing[f"{quantity}max"] = value > most
    return failing


def over_range(now: Readings) -> bool:
    """Whether what is read now is more than any model takes."""
    return any((now.get(name) or 0) > most for name, most in _MOST_NOW.items())


def unsteady(before: Readings, now: Readings, seconds: float, *, gap: bool) -> dict[str, bool]:
    """Each relation between two records `seconds` apart: whether it fails.

    `gap` says that records between them are missing.
    """
    failing: dict[str, bool] = {}

    def compare(name: str, fails: Callable[[int, int], bool]) -> None:
        old, new = before.get(name), now.get(name)
        if old is not None and new is not None:
            failing[f"{name} after {name}"] = fails(old, new)

    least, most = _energy_step(now.get("W"), seconds, gap=gap)
    compare("WH", lambda old, new: not least <= new - old <= most)
    compare("Cost", lambda old, new: not 0 <= new - old <= most + 1)
    for name in _MAXIMA:
        compare(name, lambda old, new: new < old)
    for name in _MINIMA:
        compare(name, lambda old, new: new > old)
    compare("Hz", lambda old, new: abs(new - old) > 10)
    compare("WH/Mo", lambda old, new: _mean_jumps(before, old, new))
    compare("Cost/Mo", lambda old, new: _rate_jumps(before, now, old, new))
    return failing


def _energy_step(power: int | None, seconds: float, *, gap: bool) -> tuple[float, float]:
    """Least and most that WH can rise by, in 0.1 Wh; rounding takes or adds one."""
    if power is None or gap:
        return 0, _MOST_POWER * seconds / _SECONDS_PER_HOUR + 2
    expected = power * seconds / _SECONDS_PER_HOUR
    return max(0, 0.5 * expected - 2), 1.5 * expected + 2


def _mean_jumps(before: Readings, old: int, new: int) -> bool:
    """WH/Mo is the mean power since the last reset, in W x 720: one second changes it little."""
    energy = before.get("WH")
    if not energy or not old:
        return False
    watts = old / 720
    seconds_so_far = energy / 10 * _SECONDS_PER_HOUR / watts
    if seconds_so_far < 30:
        return False
    share = 4 / seconds_so_far  # of the mean, by the newest seconds
    most = old * (1.05 + share * _MOST_POWER / 10 / watts)
    return not old * (0.95 - share) - 1 <= new <= most + 1


def _rate_jumps(before: Readings, now: Readings, old: int, new: int) -> bool:
    """Cost/Mo is WH/Mo at the tariff, cut to whole thousandths."""
    old_wh, new_wh = before.get("WH/Mo"), now.get("WH/Mo")
    if old_wh is None or new_wh is None:
        return False
    return abs(new * old_wh - old * new_wh) > 2 * (old_wh + new_wh + old + new)


class Trust:
    """Which relations hold on this meter, learnt from its records since the port was opened."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._reported: set[str] = set()

    def broken(self, failing: Mapping[str, bool]) -> list[str]:
        """Those relations that fail and are trusted."""
        self._failed.update(name for name, fails in failing.items() if fails)
        self._held.update(name for name, fails in failing.items() if not fails)
        return [name for name, fails in failing.items() if fails and self.trusts(name)]

    def trusts(self, name: str) -> bool:
        """Whether a relation is one of this meter's."""
        failed = self._failed[name]
        share = _FAILURE_SHARE_PHYSICAL if name in _PHYSICAL else _FAILURE_SHARE
        return failed < _FAILURES or failed < share * (failed + self._held[name])

    def newly_dropped(self) -> list[str]:
        """Relations that are no longer used and were not told of before."""
        dropped = [name for name in self._failed if not self.trusts(name)]
        fresh = [name for name in dropped if name not in self._reported]
        self._reported.update(fresh)
        return fresh


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
    the meter's WH counter, to 360 J, continuing from where it was when the meter was reset (flag
    `restart`); `over-range` flags a reading of more than any model takes. A record whose readings
    contradict each other or the record before it is a fault and no record.

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
        """See `Meter.feed`. Whatever was corrupted, the next whole packet is read again."""
        self._inbox.add(data, t_ns)
        held, done = self._inbox.data, 0
        while (end := held.find(b";", done)) >= 0:
            start = max(done, held.rfind(b"#", done, end))
            self._report_junk(held[done:start], self._inbox.arrival_ns(done))
            self._read_packet(held[start:end], self._inbox.arrival_ns(start))
            done = end + 1
        self._inbox.drop(done)
        if len(self._inbox.data) > _MOST_BYTES:
            self._report_junk(self._inbox.data, self._inbox.arrival_ns(0))
            self._inbox.drop(len(self._inbox.data))
        return self._taken()

    def _report_junk(self, junk: bytes, t_ns: int) -> None:
        junk = junk.strip(_IGNORED)
        # A port opened in mid-packet starts with the rest of that packet.
        if junk and (self._in_step or len(junk) > _MOST_BYTES // 2):
            self._fault(t_ns, "framing", f"{len(junk)} bytes belong to no packet: {junk[:40]!r}")

    def _read_packet(self, packet: bytes, t_ns: int) -> None:
        """`packet` is without its semicolon."""
        # A longer one is none, and its white space would be looked through again and again.
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
            self._read_header(values[2:], t_ns)
        else:
            self._fault(t_ns, "framing", f"an unrequested packet: {packet[:40]!r}")

    def _read_version(self, values: list[bytes], t_ns: int) -> None:
        if self._asked_version_ns is not None and t_ns - self._asked_version_ns <= _ANSWER_NS:
            return
        version = b",".join(values).decode("ascii", "backslashreplace")
        self._fault(t_ns, "banner", f"the meter was switched on, it is {version}")
        self._switched_on = True
        self._opening.again()

    def _read_header(self, values: list[bytes], t_ns: int) -> None:
        names = tuple(value.decode("ascii", "replace") for value in values)
        if "W" in names and set(names) <= set(FIELDS) and len(set(names)) == len(names):
            self._layout = names
        else:
            self._fault(t_ns, "framing", f"unknown field names: {', '.join(names)[:80]}")

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
        elif broken := self._trust.broken(incoherent(record.readings)):
            self._fault(t_ns, "inconsistent", f"does not hold: {', '.join(broken)}")
        else:
            self._take(record)
        for relation in self._trust.newly_dropped():
            self._fault(t_ns, "distrust", f"this meter does not keep to {relation}; no longer used")

    def _take(self, record: _Record) -> None:
        """Take a record that is sound in itself, and distrust one that does not follow the last."""
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
                self._fault(record.t_ns, "inconsistent", detail)
                return
            restart = self._restarted(last, record)
        self._switched_on = False
        self._add(last, record, restart)
        self._last = record

    def _relations(self, before: _Record, now: _Record) -> dict[str, bool]:
        seconds = (now.t_ns - before.t_ns) / 1e9
        gap = seconds >= _GAP_PERIODS * _PERIOD_S
        # Two records that were read at once were still a second apart.
        return unsteady(before.readings, now.readings, max(seconds, _PERIOD_S), gap=gap)

    def _unsteady(self, before: _Record, now: _Record) -> bool:
        fails = self._relations(before, now)
        return any(fails[name] and self._trust.trusts(name) for name in fails)

    def _restarted(self, last: _Record, record: _Record) -> bool:
        """Whether the counter began again; then continues from where it was."""
        before, now = last.readings.get("WH"), record.readings.get("WH")
        if before is None or now is None or now >= before:
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
