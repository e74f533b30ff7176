"""What meters on a network share: when they are asked, what a reading is, what is not stated.

A plug refreshes its reading by a clock that it does not show. So a
reading may be as old as one refresh when it is asked for, the same reading may be given twice and
the next one be missed; over a phase of many periods this averages out, at each of its edges it is
part of `arrival_delay_limit_s`. What the reading is the mean of, makers do not state: it is taken
for the mean of the period before it.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from contract import strict_json
from contract.schema import Range
from instrumentation.accuracy import (
    LINEARITY,
    NOT_STATED,
    POWER_FACTOR,
    Accuracy,
    ErrorTerm,
)
from instrumentation.meters.answers import Answer, Answers
from instrumentation.meters.base import Meter, NotNegative, Positive
from instrumentation.meters.rows import COMMON_WORDS, GAP, OVER_RANGE, RESTART, ParseResult
from instrumentation.trace import Fault

LATE, DEVICE_ERROR, OFF = 8, 16, 32
PROMPT_S = 0.5  # an answer that takes longer is flagged
USUAL_LIMIT_S = 2.0  # for an answer at first, then twice as long as the last one took
ONLY_CHANNEL = "0"
_GAP_PERIODS = 1.5
_MOST_W = 5e4  # a rack takes less; 65535 is no number of watts
Period = Annotated[float, Range(least=1e-3, most=86_400)]
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?\s*")


class AnswerError(Exception):
    """An answer without a reading: `kind` is that of the fault, the text its reason.

    `flags` are those of the next reading: what is filled in before it is in doubt.
    """

    def __init__(self, kind: str, detail: str, flags: int = 0) -> None:
        super().__init__(detail)
        self.kind, self.flags = kind, flags


@dataclass(frozen=True)
class Reading:
    """Power (W) and, where the answer has it, the meter's counter (J, or NaN) of each channel.

    `stamp` names the reading where the meter names it: the same again is the same reading. `flags`
    are what the meter reports of it.
    """

    power_w: tuple[float, ...]
    energy_j: tuple[float, ...] = ()
    stamp: str = ""
    flags: int = 0


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """What the settings of all networked meters have in common.

    `period_s` is the time between two readings, `refresh_s` that between two refreshes in the
    meter, one period unless it is known better; `resolution_w` the step of what it shows. The
    maker's limits of error are `relative_limit` of the reading and `absolute_limit_w`, as
    `accuracy_source` states them; without them the uncertainty budget is incomplete. `range_w` is
    the most that it can measure, `answer_limit_s` how long its slowest answer takes. `secret_file`
    holds the password or token. `power_unit_w` and `energy_unit_j` are what one unit of
    a described meter's figures is.
    """

    period_s: Period | None = None
    refresh_s: Period | None = None
    resolution_w: Positive | None = None
    relative_limit: NotNegative | None = None
    absolute_limit_w: NotNegative | None = None
    accuracy_source: str = ""
    range_w: Positive | None = None
    answer_limit_s: Annotated[float, Range(above=0, most=60)] = 10.0
    secret_file: str = ""
    power_unit_w: Positive = 1.0
    energy_unit_j: Positive = 3600.0

    def __post_init__(self) -> None:
        stated = (self.relative_limit, self.absolute_limit_w) != (None, None)
        if stated != bool(self.accuracy_source.strip()):
            raise ValueError(
                "a limit of error and accuracy_source belong together: give both, or neither where "
                "the maker states nothing"
            )


def number(value: object, what: str) -> float:
    """Return a finite number, also where it stands in a text.

    Raises AnswerError.
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
        shown = "nothing" if value is None else repr(value)[:40]
        raise AnswerError("no-data", f"{what} is {shown}, not a number")
    return float(value)


def document(body: bytes) -> Any:
    """Return the JSON document of an answer.

    Raises AnswerError.
    """
    try:
        return strict_json.loads(body)
    except ValueError:  # UnicodeDecodeError is one
        raise AnswerError("framing", f"{body[:40]!r} is not JSON") from None


class Networked(Meter):
    """Base of the drivers.

    Flags: `gap` (readings before this one are missing), `restart` (its counter began again),
    `over-range` (the meter reports it, or the power reaches `range_w`; also the reading after one
    that was none for that), `late` (the answer took longer than half a second, so the reading may
    be older than `arrival_delay_limit_s`), `device-error` (the meter reports an error; also the
    reading after one that was none for that), `off` (its output is off, and yet there is a power).
    The first reading of a connection is not used: what it is the mean of is unknown. A counter
    counts only where it has just moved: many move once a minute or by whole watt-hours, and what
    they show in between is old.
    """

    default_baud: ClassVar[int] = 0
    usb_ids: ClassVar[tuple[str, ...]] = ()
    own_channels: ClassVar[tuple[str, ...]] = ()
    framed: ClassVar[bool] = True
    timing: str = "poll"
    flag_words: ClassVar[tuple[str, ...]] = (*COMMON_WORDS, "late", "device-error", "off")
    Settings: ClassVar[type[Any]] = NetworkSettings
    _usual_period_s: float = 1.0
    _usual_resolution_w: float = 0.1
    _start: bytes = b""  # what is sent once the connection is there
    _poll: bytes = b""  # what is sent each period

    @property
    def period_s(self) -> float:
        return float(self.settings.period_s or self._usual_period_s)

    @property
    def accuracy(self) -> Accuracy:
        """The step of the display, and what the inventory states; makers state nothing here."""
        settings = self.settings
        step_w = settings.resolution_w or self._usual_resolution_w
        source = settings.accuracy_source or NOT_STATED
        more = [LINEARITY, POWER_FACTOR]
        if settings.relative_limit is None:
            more.append(ErrorTerm("gain", None, source))
        if settings.absolute_limit_w is not None:
            more.append(ErrorTerm("range", settings.absolute_limit_w, source))
        return Accuracy(
            settings.relative_limit or 0.0,
            step_w / 2,
            f"half a step of {step_w:g} W; limits of error: {source}",
            absolute="resolution",
            more=tuple(more),
        )

    @abstractmethod
    def _reading(self, answer: Answer) -> Reading:
        """Return the reading in an answer. Raises AnswerError."""

    def _forget(self) -> None:
        self.arrival_delay_limit_s = (self.settings.refresh_s or self.period_s) + PROMPT_S
        self._answers = Answers()
        self._due_ns = 0
        self._started = False
        self._asked_ns: int | None = None
        self._answered = True
        self._wait_for(USUAL_LIMIT_S)
        self._last_ns: int | None = None
        self._stamp = ""
        self._counted = [math.nan] * len(self.channels)
        self._flags_before = 0  # of answers without a reading since the last one
        self._base_j = [0.0] * len(self.channels)

    # Asking

    @property
    def due_ns(self) -> int:
        """Not before an answer came or is given up: a slow device is not asked twice at once."""
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
        damaged = list(self._answers.rest())
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
        return self._taken()

    def _record(self, reading: Reading, t_ns: int) -> None:
        if reading.stamp and reading.stamp == self._stamp:
            return  # the same reading again
        self._stamp = reading.stamp
        last_ns, self._last_ns = self._last_ns, t_ns
        flags, self._flags_before = reading.flags | self._flags_before, 0
        if any(abs(power_w) >= (self.settings.range_w or math.inf) for power_w in reading.power_w):
            flags |= OVER_RANGE
        energy_j, restarted = self._counters(reading.energy_j)
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
        self._out.add(t_ns, None, self.period_s, reading.power_w, energy_j=energy_j, flags=flags)

    def _counters(self, now_j: tuple[float, ...]) -> tuple[list[float] | None, bool]:
        """Counters that continue over restarts, where they have just moved, else NaN."""
        if not now_j:
            return None, False
        counted, restarted = [], False
        for n, (old, new) in enumerate(zip(self._counted, now_j, strict=True)):
            if new < old:
                self._base_j[n] += old
                restarted = True
            counted.append(self._base_j[n] + new if new > old else math.nan)
            self._counted[n] = old if math.isnan(new) else new
        return counted, restarted
