"""Driver of meters that print lines of a form described in the inventory."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from contract.schema import Range, Text
from instrumentation.accuracy import Accuracy
from instrumentation.meters.base import Meter, NotNegative, Positive
from instrumentation.meters.line_pattern import Layout, Value, layout
from instrumentation.meters.rows import (
    DIRECT_V,
    GAP,
    OVER_RANGE,
    RESTART,
    Inbox,
    Opening,
    ParseResult,
    Product,
)


@dataclass(frozen=True)
class Settings:
    r"""The inventory's description of a meter that prints lines.

    `pattern` matches one whole line without its end; `period_s` is the time between two lines and
    the window over which their power is averaged; the maker's limits of error are `relative_limit`
    of the reading and `absolute_limit_w`, as stated in `accuracy_source`. `start` and `stop` are
    sent unchanged, so end them as the meter expects ("\n"). `range_w` is the highest power that it
    can measure: a reading that reaches it is flagged `over-range`. `arrival_delay_limit_s` is one
    period by default.
    """

    pattern: str
    period_s: Annotated[float, Range(least=1e-6, most=1e9)]
    relative_limit: NotNegative
    absolute_limit_w: NotNegative
    accuracy_source: Annotated[str, Text(r"(?s).*\S.*", "name where the limits are stated")]
    start: str = ""
    stop: str = ""
    max_line_bytes: Annotated[int, Range(least=8, most=1024)] = 256
    range_w: Positive | None = None
    arrival_delay_limit_s: Positive | None = None

    def __post_init__(self) -> None:
        layout(self.pattern)
        if not self.relative_limit and not self.absolute_limit_w:
            raise ValueError(
                "one of relative_limit and absolute_limit_w must be above 0: without an accuracy "
                "the joules have no uncertainty"
            )


_LINE_END = re.compile(rb"[\r\n]")
_NUMBER = re.compile(rb"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*")
_UNIT = re.compile(rb"\s*\*?([A-Za-z]+)(?![A-Za-z0-9])")  # behind a number
_GOES_ON = re.compile(rb"([.,])\d")  # a decimal point, or a comma of another language
_GAP_PERIODS = 1.5
# Counters of milliseconds and microseconds on small boards have 32 bits.
_WRAP = 1 << 32
# The meter's time cannot advance more than the controller's, except for lines that were late.
_LATE_PERIODS = 2
_LATE_S = 1.0
_SHORTEST_SILENCE_S = 2.0
_SILENT_PERIODS = 3


@dataclass(frozen=True)
class _Line:
    """One line: its arrival, the meter's time, and the figures of each channel."""

    t_ns: int
    t_us: int | None
    power_w: tuple[float, ...]
    energy_j: tuple[float, ...]
    products: tuple[Product | None, ...]


class LineMeter(Meter):
    """Driver. Channels are the suffixes of the pattern's groups (`power_mw_cpu`: `cpu`), or `0`.

    Power is that of the line, else its voltage times its current; a line with all three is flagged
    `doubtful` if they contradict each other. If the meter averages these
    separately, that product is not the mean power of a load that changes within the period. With
    a t_ group the timing is `device`: the window reaches back to the line before (one period after
    a gap), and the first line gives no record. An energy counter continues over resets (flag
    `restart`). The first line after the port was opened may have lost its beginning and is not
    used. A line whose time or counter goes back is a fault, and accepted only if the next one
    confirms it.
    """

    kind: ClassVar[str] = "line"
    name: ClassVar[str] = "meter that prints lines"
    default_baud: ClassVar[int] = 115200
    usb_ids: ClassVar[tuple[str, ...]] = ()
    own_channels: ClassVar[tuple[str, ...]] = ()
    timing: str = "index"
    arrival_delay_limit_s: float = 1.0
    Settings: ClassVar[type[Any]] = Settings

    @property
    def _layout(self) -> Layout:
        return layout(self.settings.pattern)

    @property
    def accuracy(self) -> Accuracy:
        settings = self.settings
        return Accuracy(
            settings.relative_limit, settings.absolute_limit_w, settings.accuracy_source
        )

    @property
    def period_s(self) -> float:
        return float(self.settings.period_s)

    def available_channels(self) -> tuple[str, ...]:
        return tuple(self._layout.channels)

    def _forget(self) -> None:
        self._shape = self._layout
        self._columns = [self._shape.channels[key] for key in self.channels]
        self.arrival_delay_limit_s = self.settings.arrival_delay_limit_s or self.period_s
        self.has_energy = any("energy" in column for column in self._columns)
        self.timing = "device" if self._shape.time else "index"
        self._inbox = Inbox()
        start = (self.settings.start.encode(),) if self.settings.start else ()
        silence_s = max(_SHORTEST_SILENCE_S, _SILENT_PERIODS * self.period_s)
        self._opening = Opening(start, 0.0, silence_s)
        self._skipping = True  # until a line's end is seen
        self._last: _Line | None = None
        self._before_last: _Line | None = None
        self._doubtful: _Line | None = None
        self._t_device_us = 0
        self._base_j = [0.0] * len(self.channels)

    def stop_command(self) -> bytes:
        return str(self.settings.stop).encode()

    def feed(self, data: bytes, t_ns: int) -> ParseResult:
        """See `Meter.feed`. After damage the next whole line is read again."""
        self._inbox.add(data, t_ns)
        start = 0
        for end in _LINE_END.finditer(self._inbox.data):
            line = self._inbox.data[start : end.start()]
            is_skipped, self._skipping = self._skipping, False
            if line and not is_skipped:
                self._read(line, self._inbox.arrival_ns(start))
            start = end.end()
        self._inbox.drop(start)
        if len(self._inbox.data) > self.settings.max_line_bytes:
            if not self._skipping:
                self._read(self._inbox.data, self._inbox.arrival_ns(0))
            self._skipping = True
            self._inbox.drop(len(self._inbox.data))
        return self._take_result()

    def _read(self, line: bytes, t_ns: int) -> None:
        try:
            parsed = self._parse(line, t_ns)
        except ValueError as error:
            self._fault(t_ns, "framing", f"{error}: {line[:40]!r}")
            return
        self._opening.on_record(t_ns)
        last = self._last
        if last is None:
            self._last = parsed
            self._t_device_us = parsed.t_us or 0
            if self._shape.time is None:
                self._add(parsed, self.period_s, 0)
            return
        doubtful, self._doubtful = self._doubtful, None
        if self._follows(last, parsed):
            self._go_on(last, parsed)
        elif doubtful is not None and self._follows(doubtful, parsed):
            self._start_again(last, doubtful, parsed)
        else:
            self._doubtful = parsed
            detail = "the meter's time or counter does not continue from the record before"
            self._fault(t_ns, "inconsistent", detail)
            return
        self._before_last, self._last = last, parsed

    def _parse(self, line: bytes, t_ns: int) -> _Line:
        """Parse a line. Raises ValueError."""
        too_long = len(line) > self.settings.max_line_bytes
        match = None if too_long else self._shape.regex.fullmatch(line)
        if match is None:
            raise ValueError("a line that the pattern does not fit")
        time = self._shape.time
        t_us = None if time is None else round(_number(match, time))
        powers = tuple(_power_w(match, column) for column in self._columns)
        energies = tuple(
            _number(match, column["energy"]) if "energy" in column else math.nan
            for column in self._columns
        )
        products = tuple(_product(match, column) for column in self._columns)
        return _Line(t_ns, t_us, powers, energies, products)

    def _step_us(self, before: _Line, latest: _Line) -> int | None:
        """Return how far the meter's time continued, in µs; None if it did not or cannot have."""
        if before.t_us is None or latest.t_us is None or self._shape.time is None:
            return None
        wrap_us = round(_WRAP * self._shape.time.factor)
        step_us = latest.t_us - before.t_us
        if step_us <= -wrap_us // 2 and before.t_us < wrap_us:
            step_us += wrap_us
        late_us = (_LATE_S + _LATE_PERIODS * self.period_s) * 1e6
        possible = 0 < step_us <= (latest.t_ns - before.t_ns) / 1e3 + late_us
        return step_us if possible else None

    def _follows(self, before: _Line, latest: _Line) -> bool:
        if latest.t_us is not None and self._step_us(before, latest) is None:
            return False
        pairs = zip(before.energy_j, latest.energy_j, strict=True)
        return not any(new < old for old, new in pairs)

    def _go_on(self, last: _Line, latest: _Line) -> None:
        step_us = self._step_us(last, latest)
        elapsed_s = (latest.t_ns - last.t_ns) / 1e9 if step_us is None else step_us / 1e6
        self._t_device_us += step_us or 0
        gap = elapsed_s >= _GAP_PERIODS * self.period_s
        if gap:
            missing_s = elapsed_s - self.period_s
            self._fault(latest.t_ns, "gap", f"lines of {missing_s:.3g} s are missing")
        is_timed = step_us is not None and not gap
        self._add(latest, elapsed_s if is_timed else self.period_s, GAP * gap)

    def _start_again(self, last: _Line, first: _Line, latest: _Line) -> None:
        """Accept a restart or jump of the meter's time or counter on which two lines agree."""
        self._t_device_us = latest.t_us or 0
        sound = self._before_last
        for n, (old, new) in enumerate(zip(last.energy_j, first.energy_j, strict=True)):
            # Back to where it was: the counter did not restart, its last reading was wrong.
            went_back = sound is not None and new >= sound.energy_j[n]
            self._base_j[n] += old if new < old and not went_back else 0.0
        self._fault(latest.t_ns, "restart", "the meter's time or counter restarted")
        self._add(latest, self.period_s, GAP | RESTART)

    def _add(self, line: _Line, window_s: float, flags: int) -> None:
        sums = zip(self._base_j, line.energy_j, strict=True)
        if any(abs(power_w) >= (self.settings.range_w or math.inf) for power_w in line.power_w):
            flags |= OVER_RANGE
        self._out.add(
            line.t_ns,
            None if line.t_us is None else self._t_device_us,
            window_s,
            line.power_w,
            energy_j=[base_j + energy_j for base_j, energy_j in sums],
            products=line.products,
            flags=flags,
        )


def _power_w(match: re.Match[bytes], column: Mapping[str, Value]) -> float:
    """Return the power, or for direct current its product. Raises ValueError."""
    if "power" in column:
        return _number(match, column["power"])
    voltage_v = _number(match, column["voltage"])
    if abs(voltage_v) >= DIRECT_V:
        raise ValueError("volts times amperes of mains are no power: name a group power_w")
    return voltage_v * _number(match, column["current"])


def _product(match: re.Match[bytes], column: Mapping[str, Value]) -> Product | None:
    """Return voltage and current next to a power; None without all three."""
    if not {"power", "voltage", "current"} <= column.keys():
        return None
    values = [column[name] for name in ("power", "voltage", "current")]
    for value in values:
        _number(match, value)
    power, voltage, current = ((match[value.index] or b"").decode() for value in values)
    return Product.from_texts(power, voltage, current, [value.factor for value in values])


def _number(match: re.Match[bytes], value: Value) -> float:
    """Return a group's number.

    Raises ValueError if it is empty, not a number, cut off, or shown in another unit.
    """
    text, end = match[value.index] or b"", max(match.end(value.index), 0)
    unit = _UNIT.match(match.string, end)
    if unit and unit[1] in value.other_units:
        raise ValueError(f"{value.group} is in {unit[1].decode()} in this line")
    goes_on = _GOES_ON.match(match.string, end)
    if not _NUMBER.fullmatch(text) or (goes_on and goes_on[1].decode() not in value.separators):
        raise ValueError(f"{value.group} is no whole number in this line")
    number = float(text) * value.factor
    if not math.isfinite(number):
        raise ValueError(f"{value.group} is infinite in this line")
    return number
