"""Base class of meters on a network: when to ask them, their readings and their settings.

A plug refreshes its reading by a clock that it does not show. So a reading may be as old as one
refresh when it is asked for, the same reading may be returned twice and the next one be missed;
over a phase of many periods this averages out, at each edge of the phase it is part of
`arrival_delay_limit_s`. Makers do not state over which time a reading is averaged: unless
`averaged_s` is set, it is taken for the mean of the period before it.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from contract import strict_json
from contract.schema import Range
from instrumentation.accuracy import LINEARITY, NOT_STATED, POWER_FACTOR, Accuracy, ErrorTerm
from instrumentation.meters.answers import Answer, Answers
from instrumentation.meters.base import Meter, NotNegative, Positive
from instrumentation.meters.rows import COMMON_WORDS, GAP, OVER_RANGE, RESTART, ParseResult, Product
from instrumentation.trace import Fault

LATE, DEVICE_ERROR, OFF, AVERAGED, AVERAGING_UNKNOWN, AGE_UNKNOWN = (1 << n for n in range(4, 10))
PROMPT_S = 0.5  # an answer that takes longer is flagged
USUAL_LIMIT_S = 2.0  # for the first answer; later twice as long as the last one took
ONLY_CHANNEL = "0"
ENERGY_UNITS = "needs energy_unit_j: 3600 for Wh, 3600000 for kWh, 1 for J"
USUAL_RANGE_W = 4000.0  # 16 A at 250 V
_GAP_PERIODS, _USUAL_PERIOD_S = 1.5, 1.0
MOST_RESTARTS = 1  # of a connection; what falls more often counts nothing
_MOST_W = 5e4  # a rack takes less; 65535 is no number of watts
Period = Annotated[float, Range(least=1e-3, most=86_400)]
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?\s*")


class AnswerError(Exception):
    """An answer without a reading: `kind` is that of the fault, the text its reason.

    `flags` are set on the next reading, for the time before it is in doubt.
    """

    def __init__(self, kind: str, detail: str, flags: int = 0) -> None:
        super().__init__(detail)
        self.kind, self.flags = kind, flags


@dataclass(frozen=True)
class Reading:
    """Power (W) and, if the answer has it, the meter's counter (J, or NaN) of each channel.

    `stamp` is the meter's identifier of the reading, if it gives one: the same stamp is the same
    reading. `products` are voltages and currents of the channels. `flags` are those that the meter
    reports.
    """

    power_w: tuple[float, ...]
    energy_j: tuple[float, ...] = ()
    stamp: str = ""
    products: tuple[Product | None, ...] = ()
    flags: int = 0


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """Settings that all networked meters have.

    `period_s` is the time between two readings, `refresh_s` that between two refreshes in the
    meter, one period by default, `averaged_s` the time over which it averages one; `resolution_w`
    the step of its display. The maker's limits of error are `relative_limit` of the reading and
    `absolute_limit_w`, as stated in `accuracy_source`; without them the uncertainty budget is
    incomplete. `range_w` is the highest power that it can measure, 4 kW by default,
    `answer_limit_s` how long its slowest answer takes. `secret_file` contains the password or
    token. `power_unit_w` and `energy_unit_j` are the size of one unit of a described meter's
    figures.
    """

    period_s: Period | None = None
    refresh_s: Period | None = None
    averaged_s: Period | None = None
    resolution_w: Positive | None = None
    relative_limit: NotNegative | None = None
    absolute_limit_w: NotNegative | None = None
    accuracy_source: str = ""
    range_w: Positive | None = None
    answer_limit_s: Annotated[float, Range(above=0, most=60)] = 10.0
    secret_file: str = ""
    power_unit_w: Positive | None = None
    energy_unit_j: Positive | None = None

    def __post_init__(self) -> None:
        stated = (self.relative_limit, self.absolute_limit_w) != (None, None)
        if stated != bool(self.accuracy_source.strip()):
            raise ValueError(
                "a limit of error and accuracy_source belong together: give both, or neither where "
                "the maker states nothing"
            )


def number(value: object, figure: str) -> float:
    """Return a finite number, also from a text; `figure` names it. Raises AnswerError."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
        shown = "nothing" if value is None else repr(value)[:40]
        raise AnswerError("no-data", f"{figure} is {shown}, not a number")
    return float(value)


def document(body: bytes) -> Any:
    """Parse the JSON document of an answer. Raises AnswerError."""
    try:
        return strict_json.loads(body)
    except ValueError:  # UnicodeDecodeError is one
        raise AnswerError("framing", f"{body[:40]!r} is not JSON") from None


class Networked(Meter):
    """Base of the drivers.

    Flags: `gap` (readings before this one are missing), `restart` (its counter began again),
    `over-range` (the meter reports it, or the power reaches `range_w`; also the reading after one
    that was lost for that), `late` (the answer took longer than half a second, so the reading may
    be older than `arrival_delay_limit_s`), `device-error` (the meter reports an error; also the
    reading after one that was lost for that), `doubtful` (the power contradicts the voltage and the
    current next to it), `off` (its output is off, yet it reports a power).
    The first reading of a connection is not used: its window is unknown. A counter is used only
    when it has just moved: many move once a minute or by whole watt-hours and are old in between.
    """

    default_baud: ClassVar[int] = 0
    usb_ids: ClassVar[tuple[str, ...]] = ()
    own_channels: ClassVar[tuple[str, ...]] = ()
    framed: ClassVar[bool] = True
    detects_damage: ClassVar[bool] = True
    timing: str = "poll"
    flag_words: ClassVar[tuple[str, ...]] = (
        *COMMON_WORDS,
        *("late", "device-error", "off", "averaged", "averaging-unknown", "age-unknown"),
    )
    Settings: ClassVar[type[Any]] = NetworkSettings
    _usual_resolution_w: float = 0.1
    _usual_averaged_s: float = 0.0
    _start: bytes = b""  # sent once after connecting
    _poll: bytes = b""  # sent each period

    @property
    def period_s(self) -> float:
        return float(self.settings.period_s or _USUAL_PERIOD_S)

    @property
    def accuracy(self) -> Accuracy:
        """The step of the display and the inventory's limits; makers rarely state any."""
        settings = self.settings
        step_w = settings.resolution_w or self._usual_resolution_w
        source = settings.accuracy_source or NOT_STATED
        further_terms = [LINEARITY, POWER_FACTOR]
        if settings.relative_limit is None:
            further_terms.append(ErrorTerm("gain", None, source))
        if settings.absolute_limit_w is not None:
            further_terms.append(ErrorTerm("range", settings.absolute_limit_w, source))
        return Accuracy(
            settings.relative_limit or 0.0,
            step_w / 2,
            f"half a step of {step_w:g} W; limits of error: {source}",
            absolute="resolution",
            further_terms=tuple(further_terms),
        )

    @abstractmethod
    def _reading(self, answer: Answer) -> Reading:
        """Parse the reading in an answer. Raises AnswerError."""

    def _forget(self) -> None:
        averaged_s = self.settings.averaged_s or self._usual_averaged_s
        longer_s = max(0.0, averaged_s - self.period_s)
        refresh_s = self.settings.refresh_s or self.period_s
        self.arrival_delay_limit_s = refresh_s + longer_s + PROMPT_S
        self._always_flags = AVERAGED if longer_s else 0
        self._answers = Answers()
        self._due_ns = 0
        self._started = False
        self._asked_ns: int | None = None
        self._answered = True
        self._wait_for(USUAL_LIMIT_S)
        self._last_ns: int | None = None
        self._stamp = ""
        self._last_j = [math.nan] * len(self.channels)
        self._flags_before = 0  # of answers without a reading since the last one
        self._base_j = [0.0] * len(self.channels)
        self._restarts = [0] * len(self.channels)

    # Asking

    @property
    def due_ns(self) -> int:
        """Time of the next request, after the last answer has come or is given up."""
        if self._answered or self._asked_ns is None:
            return self._due_ns
        return max(self._due_ns, self._asked_ns + round(self._limit_s * 1e9))

    def request(self, t_ns: int) -> bytes:
        if t_ns < self.due_ns:
            return b""
        return self._poll if self._started else self._start + self._poll

    def on_request_sent(self, data: bytes, t_ns: int) -> None:
        """Give up an answer that has not come by now."""
        if not data:
            return
        self._started = True
        self._due_ns = t_ns + round(self.period_s * 1e9)
        damaged = self._answers.drop_incomplete()
        self._out.faults += damaged
        if not self._answered and not damaged and self._asked_ns is not None:
            waited_s = (t_ns - self._asked_ns) / 1e9
            self._fault(t_ns, "timeout", f"no answer in {waited_s:.1f} s")
            self._wait_for(2 * self._limit_s)  # it may be slower than we waited
        self._asked_ns, self._answered = t_ns, False

    def _wait_for(self, limit_s: float) -> None:
        self._limit_s = min(max(USUAL_LIMIT_S, limit_s), self.answer_limit_s)

    # Listening

    def feed(self, data: bytes, t_ns: int) -> ParseResult:
        for answer in self._answers.add(data, t_ns):
            if not self._answered and self._asked_ns is not None:
                self._wait_for(2 * (t_ns - self._asked_ns) / 1e9)
            self._answered = True
            if isinstance(answer, Fault):
                self._out.faults.append(answer)
                continue
            try:
                reading = self._reading(answer)
            except AnswerError as error:
                self._fault(answer.t_ns, error.kind, str(error))
                self._flags_before |= error.flags
                continue
            if not all(abs(power_w) <= _MOST_W for power_w in reading.power_w):
                self._fault(answer.t_ns, "no-data", f"{max(reading.power_w):g} W cannot be")
                continue
            self._record(reading, answer.t_ns)
        return self._take_result()

    def _record(self, reading: Reading, t_ns: int) -> None:
        if reading.stamp and reading.stamp == self._stamp:
            return  # the same reading again
        self._stamp = reading.stamp
        last_ns, self._last_ns = self._last_ns, t_ns
        flags = reading.flags | self._flags_before | self._always_flags
        self._flags_before = 0
        range_w = self.settings.range_w or USUAL_RANGE_W
        if any(abs(power_w) >= range_w for power_w in reading.power_w):
            flags |= OVER_RANGE
        energy_j, restarted = self._continue_counters(reading.energy_j)
        if last_ns is None:
            return
        if restarted:
            flags |= RESTART
            self._fault(t_ns, "restart", "the meter's own counter began again")
        passed = (t_ns - last_ns) / (self.period_s * 1e9)
        if passed > _GAP_PERIODS:
            flags |= GAP
            self._fault(t_ns, "gap", f"{max(1, round(passed) - 1)} readings are missing")
        if self._asked_ns is not None and t_ns - self._asked_ns > PROMPT_S * 1e9:
            flags |= LATE
        self._out.add(
            t_ns,
            None,
            self.period_s,
            reading.power_w,
            energy_j=energy_j,
            products=reading.products,
            flags=flags,
        )

    def _continue_counters(self, energy_j: tuple[float, ...]) -> tuple[list[float] | None, bool]:
        """Return the counters continued over restarts, NaN if unmoved; and if one restarted."""
        if not energy_j:
            return None, False
        continued_j, restarted = [], False
        for n, (old, new) in enumerate(zip(self._last_j, energy_j, strict=True)):
            if new < old:
                self._base_j[n] += old
                self._restarts[n] += 1
                restarted = True
            is_counter = new > old and self._restarts[n] <= MOST_RESTARTS
            continued_j.append(self._base_j[n] + new if is_counter else math.nan)
            self._last_j[n] = old if math.isnan(new) else new
        return continued_j, restarted
