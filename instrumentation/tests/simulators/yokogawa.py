"""Base of simulated Yokogawa power meters: ranges, and numbers with the meter's digits."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from contract.strict_json import Document

VOLTAGES = (15.0, 30.0, 60.0, 150.0, 300.0, 600.0)
CURRENTS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)


def nr3(value: float, full_scale: float) -> str:
    """Format a number with five digits and an exponent that is a multiple of three."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INF"
    exponent = 3 * math.floor(math.log10(full_scale) / 3 + 1e-9)
    before = math.floor(math.log10(full_scale / 10.0**exponent) + 1e-9) + 1
    return (
        f"{value / 10.0**exponent:.{5 - before}f}E{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    )


def step(full_scale: float) -> float:
    """Return the last of the five digits."""
    return float(10.0 ** (math.floor(math.log10(full_scale) + 1e-9) - 4))


class Range:
    """A voltage or current range, fixed or following the input as in the meter."""

    def __init__(self, ranges: tuple[float, ...], full_scale: float, auto: bool) -> None:
        self.ranges = ranges
        self.full_scale = full_scale
        self.auto = auto

    def follow(self, rms: float, peak: float) -> None:
        """Update the range: up beyond 130 % or a peak of 300 %, down below 30 %."""
        if not self.auto:
            return
        at = self.ranges.index(self.full_scale)
        if (rms > 1.3 * self.full_scale or peak > 3 * self.full_scale) and at + 1 < len(
            self.ranges
        ):
            self.full_scale = self.ranges[at + 1]
        while at and rms <= 0.3 * self.full_scale and rms <= 1.25 * self.ranges[at - 1]:
            if peak > 3 * self.ranges[at - 1]:
                break
            at -= 1
            self.full_scale = self.ranges[at]

    def is_over(self, rms: float) -> bool:
        """Whether the input is beyond 140 %, which gives no reading."""
        return rms > 1.4 * self.full_scale

    def is_peak_over(self, peak: float) -> bool:
        """Whether peaks are beyond 300 % and cut off."""
        return peak > 3 * self.full_scale


# By header, what it does with a value; the answer to a query.
Actions = dict[str, Callable[[str], str | None]]

_RATES = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
_NO_ERROR = '0,"NO ERROR"'
_UPDATED = 1


class YokogawaSimulator(ABC):
    """One element at `line_v` (rms); `crest` is the crest factor of the current.

    It comes as it would after somebody has used it by hand: in the ranges and at the update rate
    given. `line_end` is CR LF over a serial line, LF over USB. On hold it does not update.
    """

    channels = ("1",)

    def __init__(
        self,
        *,
        voltage_range_v: float | None = 300.0,
        current_range_a: float | None = 5.0,
        rate_s: float = 0.25,
        line_v: float = 230.0,
        crest: float = 1.5,
        line_end: bytes = b"\r\n",
    ) -> None:
        self.volts = Range(VOLTAGES, voltage_range_v or 600.0, voltage_range_v is None)
        self.amperes = Range(CURRENTS, current_range_a or 20.0, current_range_a is None)
        self.rate_s = rate_s
        self.line_v = line_v
        self.crest = crest
        self.hold = False
        self.commands: list[str] = []  # every unit that was understood
        self._line_end = line_end
        self._received = b""
        self._waiting = False
        self._queued: list[str] = []  # messages that came while it waits
        self._filter = ["NEVER"] * 16
        self._events = 0
        self._condition = 0
        self._errors: list[str] = []
        self._headers = True
        self._seen_j = 0.0
        self.power_w = self.rms_v = self.rms_a = math.nan
        self.shown_ranges = (
            self.volts.full_scale,
            self.amperes.full_scale,
        )  # those of the last update

    @property
    def settings(self) -> Document:
        """See `Simulator`: the present settings of the meter."""
        return {
            "rate_s": self.rate_s,
            "voltage_range_v": None if self.volts.auto else self.volts.full_scale,
            "current_range_a": None if self.amperes.auto else self.amperes.full_scale,
        }

    @property
    def period_s(self) -> float:
        return self.rate_s

    @property
    def full_scale_w(self) -> float:
        """The line voltage times the current range."""
        return self.line_v * self.amperes.full_scale

    @property
    def resolution_w(self) -> float:
        """The last digit of a power."""
        return step(self.volts.full_scale * self.amperes.full_scale)

    def advance(self, energy_j: NDArray[np.float64]) -> bytes:
        """See `Simulator.advance`: an update in each period, and the answers that waited for it."""
        sent = b""
        for joules in energy_j[:, 0].tolist():
            mean_w = (joules - self._seen_j) / self.rate_s
            self._seen_j = joules
            if not self.hold:
                self._update(mean_w)
                if self._waiting and self._events & _UPDATED:
                    self._waiting = False
                    queued, self._queued = self._queued, []
                    sent += b"".join(map(self._message, queued))
        return sent

    def _update(self, mean_w: float) -> None:
        self.rms_v, self.rms_a = self.line_v, abs(mean_w) / self.line_v
        peak_v, peak_a = self.rms_v * math.sqrt(2), self.rms_a * self.crest
        over_v, over_a = self.volts.is_over(self.rms_v), self.amperes.is_over(self.rms_a)
        self._condition = (over_v or over_a) << 6
        self._condition |= self.volts.is_peak_over(peak_v) << 7
        self._condition |= self.amperes.is_peak_over(peak_a) << 8
        self.power_w = math.inf if over_v or over_a else mean_w
        self.rms_v = math.inf if over_v else self.rms_v
        self.rms_a = math.inf if over_a else self.rms_a
        self.shown_ranges = (self.volts.full_scale, self.amperes.full_scale)
        self.volts.follow(self.line_v, peak_v)
        self.amperes.follow(abs(mean_w) / self.line_v, peak_a)
        if self._filter[1] == "FALL":
            self._events |= _UPDATED

    def receive(self, data: bytes) -> bytes:
        *lines, self._received = (self._received + data).split(b"\n")
        return b"".join(self._message(line.decode("ascii", "replace").strip()) for line in lines)

    def _message(self, message: str) -> bytes:
        if self._waiting:
            self._queued.append(message)
            return b""
        answers: list[str] = []
        group = ""
        for unit in filter(None, (unit.strip() for unit in message.split(";"))):
            header, _, value = unit.partition(" ")
            if header[0] not in "*:":
                header = f"{group}:{header}"
            if header[0] != "*":
                group = header.rpartition(":")[0]
            answer = self._unit(header, value.strip())
            if answer is None:
                self._errors.append('113,"Undefined Header"')
                break  # the rest of the message is thrown away
            self.commands.append(f"{header} {value}".strip())
            if answer:
                answers.append(answer)
        return ";".join(answers).encode("ascii") + self._line_end if answers else b""

    def _unit(self, header: str, value: str) -> str | None:
        """Return the answer to one unit; empty for a command, None if it is unknown."""
        match header.upper():
            case "*CLS":
                self._errors.clear()
                self._events = 0
                return ""
            case "*IDN?":
                return self._identity()
        if filter_bit := re.fullmatch(r":STAT(?:US)?:FILT(?:ER)?(\d+)", header, re.IGNORECASE):
            self._filter[int(filter_bit[1])] = "FALL" if value.upper() == "FALL" else "NEVER"
            return ""
        for pattern, action in (self._shared_actions() | self._actions()).items():
            if is_header(pattern, header):
                return action(value) or ""
        return None

    def _shared_actions(self) -> Actions:
        return {
            ":STATus:QMESsage": nothing,
            ":STATus:ERRor?": lambda _: self._errors.pop(0) if self._errors else _NO_ERROR,
            ":STATus:EESR?": self._take_events,
            ":STATus:CONDition?": lambda _: str(self._condition),
            ":COMMunicate:HEADer": partial(put, self, "_headers", is_on),
            ":COMMunicate:VERBose": nothing,
            ":COMMunicate:WAIT": self._wait,
        }

    @abstractmethod
    def _identity(self) -> str: ...

    @abstractmethod
    def _actions(self) -> Actions:
        """Return the actions of this meter by header."""

    def _inputs(self, group: str) -> Actions:
        """Return the headers below a group that set how voltage and current are measured."""
        actions: Actions = dict.fromkeys((f"{group}:MODE", f"{group}:CFACtor"), nothing)
        for name, ranged in (("VOLTage", self.volts), ("CURRent", self.amperes)):
            actions[f"{group}:{name}:AUTO"] = partial(put, ranged, "auto", is_on)
            actions[f"{group}:{name}:RANGe"] = partial(self._set_range, ranged)
        return actions

    def _headed(self, header: str, data: str) -> str:
        return f"{header} {data}" if self._headers else data

    def _take_events(self, _: str) -> str:
        events, self._events = self._events, 0
        return str(events)

    def _wait(self, value: str) -> None:
        self._waiting = value == "1" and not self._events & _UPDATED

    def _is_among(self, value: str, possible: tuple[float, ...]) -> bool:
        """Return whether the meter accepts a number; otherwise record its error."""
        if float(value) in possible:
            return True
        self._errors.append('222,"Data out of range"')
        return False

    def _set_rate(self, value: str) -> None:
        if self._is_among(value, _RATES):
            self.rate_s = float(value)

    def _set_range(self, ranged: Range, value: str) -> None:
        if self._is_among(value, ranged.ranges):
            ranged.full_scale, ranged.auto = float(value), False

    def values(self, *items: str) -> str:
        """Return measured data in the given order, in the ranges of the update."""
        volts, amperes = self.shown_ranges
        texts = {
            "P": nr3(self.power_w, volts * amperes),
            "U": nr3(self.rms_v, volts),
            "I": nr3(self.rms_a, amperes),
            "URANGE": nr3(volts, volts),
            "IRANGE": nr3(amperes, amperes),
        }
        return ",".join(texts.get(item, "NAN") for item in items)


def nothing(_: str) -> None:
    """Do nothing: the setting changes no figure."""


def is_on(value: str) -> bool:
    """Parse a truth value as the meter does."""
    return value.upper() in ("ON", "1")


def put(owner: object, name: str, parse: Callable[[str], object], value: str) -> None:
    """Set an attribute to what a value means."""
    setattr(owner, name, parse(value))


@lru_cache(maxsize=4096)
def is_header(pattern: str, header: str) -> bool:
    """Return whether a header matches a pattern, in its long or short form."""
    expected, asked = pattern.split(":"), header.upper().split(":")
    return len(expected) == len(asked) and all(
        word in (mnemonic.upper(), "".join(c for c in mnemonic if not c.islower()))
        for mnemonic, word in zip(expected, asked, strict=True)
    )
