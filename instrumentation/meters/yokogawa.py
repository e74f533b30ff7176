"""Base class of the drivers of Yokogawa's power meters: commands and lines of measured data."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar, NamedTuple

from instrumentation.accuracy import Accuracy
from instrumentation.meters.base import Meter
from instrumentation.meters.rows import COMMON_WORDS, GAP, OVER_RANGE, Inbox, ParseResult, Product
from instrumentation.meters.yokogawa_ranges import (
    VOLTAGE_RANGES_V,
    Extremes,
    Limits,
    power_factor_term,
)

# A number of a line; NAN is no value, INF or 9.9E37 beyond the range.
_NUMBER = r"[+-]?\d+(?:\.\d+)?(?:E[+-]\d\d)?|NAN|INF"
_NUMBERS = ("P", "U", "I", "URANGE", "IRANGE")
# Fields of a line of measured data; the condition is the meter's register.
FIELDS = {name: f"(?P<{name}>{_NUMBER})" for name in _NUMBERS} | {"C": r"(?P<C>\d{1,5})"}

_NOTHING = 9.9e37


class Reading(NamedTuple):
    """One line of measured data; `ranges` in V and A, `condition` the meter's register."""

    power_w: float
    voltage_v: float
    current_a: float
    ranges: tuple[float, float]
    condition: int


def number(text: str) -> float:
    """Parse a number of a line: NaN for no value, infinite beyond the range."""
    value = float(text)
    return math.copysign(math.inf, value) if abs(value) >= _NOTHING else value


_PRODUCT_SHARE, _RANGE_SHARE = 0.02, 0.01  # of the product and the range, errors of readings
_AUTO_RANGE = 16
_RANGE_CHANGED = 32
_IDENTITY = "*IDN?"
_ERROR = ":STAT:ERR?"
_EVENT = ":STAT:EESR?"
_WAIT = ":COMM:WAIT 1"
_SECOND_NS = 1_000_000_000
_TIMEOUT_NS = 300_000_000  # longer than any answer takes at 9600 baud
_SETTLE_NS = 100_000_000  # after an unexpected line: the answer may still come
_LOST_ANSWERS = 3  # in a row: the meter may have restarted
_GAP_WINDOWS = 1.5
_MOST_BYTES = 1 << 14  # far more than any answer
_SHOWN_BYTES = 40
# Bits 6 to 8 of the condition: over range, voltage peak, current peak.
_OVER_BITS = 0b111 << 6


class Yokogawa(Meter):
    """Base of the drivers. Channel: `1`, the meter's only element.

    Flags: `gap` (updates before this one are missing), `over-range` (voltage, current or a peak of
    them was beyond the range when the data was read, or in an update before this one that had no
    value for that reason), `auto-range` (the meter chooses a range), `range-changed` (the range
    differs from that before, or from the setting).
    """

    default_baud: ClassVar[int] = 9600
    own_channels: ClassVar[tuple[str, ...]] = ("1",)
    addresses: ClassVar[tuple[str, ...]] = ("port", "tcpip")
    timing: str = "poll"
    detects_damage: ClassVar[bool] = True
    # The maker states none. The meter keeps up with its shortest interval, so it cannot be more.
    arrival_delay_limit_s: float = 0.1
    flag_words: ClassVar[tuple[str, ...]] = (*COMMON_WORDS, "auto-range", "range-changed")
    extremes = Extremes()

    # Parts that each meter defines

    _query: ClassVar[str]  # asks for one line of measured data
    _line_pattern: ClassVar[re.Pattern[str]]

    @property
    @abstractmethod
    def _limits(self) -> Limits:
        """The maker's limits of error."""

    @abstractmethod
    def _commands(self) -> list[str]:
        """Return the commands that set the meter up."""

    def _reading(self, line: str) -> Reading | None:
        """Parse the reading in a line of measured data; None if it is not sound."""
        match = self._line_pattern.fullmatch(line)
        if match is None:
            return None
        power_w, volts, amperes, range_v, range_a = (number(match[name]) for name in _NUMBERS)
        if range_v not in VOLTAGE_RANGES_V or range_a not in self.settings.current_ranges_a:
            return None
        product = Product(volts, amperes, _RANGE_SHARE * range_v * range_a)
        if math.isfinite(power_w) and product.is_exceeded(power_w, _PRODUCT_SHARE):
            return None
        return Reading(power_w, volts, amperes, (range_v, range_a), int(match["C"]))

    def _range_commands(self, prefix: str) -> list[str]:
        """Return the commands that fix the ranges, or leave them to the meter."""
        fixed = {"VOLT": self.settings.voltage_range_v, "CURR": self.settings.current_range_a}
        return [
            f"{prefix}:{name}:AUTO ON" if value is None else f"{prefix}:{name}:RANG {value:g}"
            for name, value in fixed.items()
        ]

    def _is_identity(self, identity: str) -> bool:
        """Return whether such a meter answers *IDN? by this."""
        return identity.upper().startswith("YOKOGAWA,")

    @property
    def accuracy(self) -> Accuracy:
        """±(0.1 % of reading + part of the power range): voltage range times current range.

        A range that is left to the meter may be its largest. The term of the power factor is tan φ
        times the share of the apparent power that the maker states for a power factor of 0.
        """
        settings, limits = self.settings, self._limits
        set_v, set_a = settings.voltage_range_v, settings.current_range_a
        range_w = (set_v or VOLTAGE_RANGES_V[-1]) * (set_a or settings.current_ranges_a[-1])
        how = "fixed" if set_v and set_a else "a range is left to the meter: its largest"
        return Accuracy(
            relative_limit=0.001,
            absolute_limit_w=limits.range_part * range_w,
            source=f"{limits.source}; ±(0.1 % of reading + {limits.range_part * 100:g} % of range),"
            f" range {range_w:g} W ({how}); at power factor 1 and crest factor 3",
            further_terms=(power_factor_term(settings.power_factor, limits),),
        )

    @property
    def period_s(self) -> float:
        return float(self.settings.rate_s)

    def _forget(self) -> None:
        commands = ["\n*CLS", *self._commands()]
        setup = [message for command in commands for message in (command, _ERROR)]
        self._loop_step = len(setup) + 1
        self._messages = [*setup, _IDENTITY, _EVENT, _WAIT, self._query]
        self._inbox = Inbox(_MOST_BYTES)
        self._heard_ns = 0
        self._line_end = b""
        self._step = 0
        self._asked_ns: int | None = None  # when the pending query was sent
        self._nonsense_ns: int | None = None  # when a line came instead of its answer
        self._timeouts = 0
        self._last_ns: int | None = None
        self._start_over()

    def _start_over(self) -> None:
        self._settled = False  # one update went by since the meter was set up
        self._ranges: tuple[float, float] | None = None
        self._was_over = False
        self._lost_over = False  # an update since the last record was lost for being over range

    # Asking

    @property
    def due_ns(self) -> int | None:
        if self._asked_ns is None:
            return 0
        if self._nonsense_ns is not None:
            return self._nonsense_ns + _SETTLE_NS
        # At the start the meter may still wait for an update, by an earlier command.
        waits = self._step in (1, len(self._messages) - 1)
        last_ns = self._asked_ns + _TIMEOUT_NS + waits * round(1.5 * self.period_s * _SECOND_NS)
        return min(last_ns, self._heard_ns + _SETTLE_NS) if self._inbox else last_ns

    def request(self, t_ns: int) -> bytes:
        due_ns = self.due_ns
        if due_ns is not None and t_ns < due_ns:
            return b""
        step = self._step
        if self._asked_ns is not None:
            is_lost = self._timeouts + 1 >= _LOST_ANSWERS
            step = 0 if is_lost else min(step, self._loop_step)
        return self._messages[step].encode("ascii") + b"\r\n"

    def on_request_sent(self, data: bytes, t_ns: int) -> None:
        """Give up an answer that has not come by now."""
        if self._inbox:
            part = self._inbox.data[:_SHOWN_BYTES]
            self._fault(t_ns, "framing", f"{part!r} is not a whole line")
        elif self._asked_ns is not None and self._nonsense_ns is None:
            ms = (t_ns - self._asked_ns) / 1e6
            self._fault(t_ns, "timeout", f"no answer in {ms:.0f} ms")
        self._timeouts += self._asked_ns is not None
        self._inbox.clear()
        message = data[:-2].decode("ascii", "replace")
        if message == self._messages[0]:
            self._start_over()
        # The message's place in the sequence: from the current step on, else from the start.
        starts = [start for start in (self._step, 0) if message in self._messages[start:]]
        self._step = self._messages.index(message, starts[0]) if starts else self._step
        self._nonsense_ns = None
        if message.endswith("?"):
            self._asked_ns = t_ns
        else:
            self._asked_ns = None
            self._step = min(self._step + 1, len(self._messages) - 1)

    # Listening

    def feed(self, data: bytes, t_ns: int) -> ParseResult:
        self._inbox.add(data, t_ns)
        self._heard_ns = t_ns
        while (end := self._inbox.data.find(b"\n")) >= 0:
            line, line_ns = self._inbox.data[: end + 1], self._inbox.arrival_ns(0)
            self._inbox.drop(end + 1)
            self._line(line, line_ns)
        return self._take_result()

    def _line(self, line: bytes, t_ns: int) -> None:
        ending = b"\r\n" if line.endswith(b"\r\n") else b"\n"
        self._line_end = self._line_end or ending
        text = line[: -len(ending)].decode("ascii", "replace")
        if self._asked_ns is not None and ending == self._line_end and self._answered(text, t_ns):
            return
        self._fault(t_ns, "framing", f"{line[:_SHOWN_BYTES]!r} is not an answer to the request")
        self._nonsense_ns = t_ns

    def _answered(self, text: str, t_ns: int) -> bool:
        """Handle the answer to the last query; return False if the text is none."""
        message, next_step = self._messages[self._step], self._step + 1
        if message == self._query:
            reading = self._reading(text)
            if reading is None:
                return False
            self._record(reading, t_ns)
            next_step = self._loop_step
        elif message == _ERROR:
            error = re.fullmatch(r'(\d+),"(.*)"', text)
            if error is None:
                return False
            if int(error[1]):
                refused = self._messages[self._step - 1].strip()
                self._fault(
                    t_ns, "refused", f"{refused}: the meter reports {error[2]} ({error[1]})"
                )
        elif message == _IDENTITY:
            if text.count(",") < 2:
                return False
            if not self._is_identity(text):
                self._fault(t_ns, "identity", f"{text[:_SHOWN_BYTES]} is not the meter as set")
        elif text not in ("0", "1"):  # the events have only bit 0
            return False
        self._asked_ns = self._nonsense_ns = None
        self._timeouts = 0
        self._step = next_step
        return True

    def _record(self, reading: Reading, t_ns: int) -> None:
        """Make a record; the first update began before the meter was set up and is not used."""
        if not self._settled:
            self._settled = True
            return
        values = (reading.power_w, reading.voltage_v, reading.current_a)
        if not all(math.isfinite(value) for value in values):
            self._report_no_value(reading.power_w, t_ns)
            return
        self.extremes = self.extremes.with_reading(
            reading.voltage_v, reading.current_a, reading.power_w, reading.ranges[1]
        )
        flags = self._flags(reading, t_ns)
        self._last_ns = t_ns
        powers_w = [reading.power_w] * len(self.channels)
        self._out.add(t_ns, None, self.period_s, powers_w, flags=flags)

    def _report_no_value(self, power_w: float, t_ns: int) -> None:
        if math.isnan(power_w):
            self._fault(t_ns, "no-data", "the meter has no data for this update")
            return
        self.extremes = replace(self.extremes, over_range=self.extremes.over_range + 1)
        self._lost_over = True
        detail = "the input is beyond the meter's range: there is no reading"
        self._fault(t_ns, "over-range", detail)

    def _flags(self, reading: Reading, t_ns: int) -> int:
        settings, ranges = self.settings, reading.ranges
        before, self._ranges = self._ranges or ranges, ranges
        fixed = (settings.voltage_range_v, settings.current_range_a)
        wrong = any(setting not in (None, n) for setting, n in zip(fixed, ranges, strict=True))
        if wrong and (ranges != before or self._last_ns is None):
            actual = f"{ranges[0]:g} V, {ranges[1]:g} A"
            self._fault(t_ns, "range", f"the meter is at {actual}, not as set")
        flags = _AUTO_RANGE * (None in fixed) | _RANGE_CHANGED * (wrong or ranges != before)
        over = bool(reading.condition & _OVER_BITS)
        if over:
            flags |= OVER_RANGE
            self.extremes = replace(self.extremes, over_range=self.extremes.over_range + 1)
            if not self._was_over:
                self._fault(t_ns, "over-range", "voltage, current or a peak is beyond the range")
        self._was_over = over
        flags |= OVER_RANGE * self._lost_over
        self._lost_over = False
        if self._last_ns is not None:
            passed = (t_ns - self._last_ns) / (self.period_s * _SECOND_NS)
            if passed > _GAP_WINDOWS:
                flags |= GAP
                self._fault(t_ns, "gap", f"{round(passed) - 1} updates are missing")
        return flags
