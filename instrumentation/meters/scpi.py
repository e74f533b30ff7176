"""Driver of power meters that answer SCPI over the network (`TCPIP::HOST::PORT::SOCKET`).

SCPI-1999 leaves the commands for power to the makers, so the inventory has the query and the field
of the answer that is the power. Numbers are IEEE 488.2's NR1 to NR3; 9.91E37 is not a number and
9.9E37 infinity (SCPI-1999, volume 1, 7.2.1.4 and 7.2.1.5).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from contract.schema import Range, Text
from instrumentation.meters.answers import Answer
from instrumentation.meters.base import Positive
from instrumentation.meters.networked import (
    ENERGY_UNITS,
    ONLY_CHANNEL,
    AnswerError,
    Networked,
    NetworkSettings,
    Period,
    Reading,
    number,
)
from instrumentation.meters.rows import OVER_RANGE
from instrumentation.meters.units import POWER, stated_by

_INFINITE, _NOT_A_NUMBER = 9.9e37, 9.905e37
_ERROR = re.compile(rb'\s*[+-]?\d+,"')  # a number and a text (SCPI-1999, volume 2, 21.8)
_Query = Annotated[
    str,
    Text(r"[!-~ ]{1,99}\?(?: [ -~]{1,99})?", "a query such as :MEAS:POW? or :NUM:VAL? 3 has a ?"),
]
_Commands = Annotated[
    str, Text(r"(?:[ ->@-~]{0,200}(?:\n|$))*", "write commands that are no query, one a line")
]
_Place = Annotated[int, Range(least=1, most=64)]


@dataclass(frozen=True, kw_only=True)
class Settings(NetworkSettings):
    """Commands of such a meter; `query` is sent each period.

    `fields` gives for each channel the place of its power in the answer, whose numbers are
    separated by commas, those of several queries by semicolons, and counted from 1; without it the
    power must be the only number. `energy_fields` does the same for a counter. `start` and `stop`
    are commands without an answer, one a line, sent when the port is opened and closed.
    """

    query: _Query
    period_s: Period = field()
    resolution_w: Positive = field()
    fields: Mapping[str, _Place] = field(default_factory=dict)
    energy_fields: Mapping[str, _Place] = field(default_factory=dict)
    start: _Commands = ""
    stop: _Commands = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        unit = stated_by(self.query)
        several = re.search(r"[;,]", self.query) or list(self.fields.values()) not in ([], [1])
        if unit and unit.quantity != POWER and not several:
            raise ValueError(f"query asks for {unit.quantity}, not for an active power")
        if self.energy_fields and self.energy_unit_j is None:
            raise ValueError(f"energy_fields {ENERGY_UNITS}")


class ScpiMeter(Networked):
    """Driver; see `Networked`. Channels: `0`, or as described."""

    kind: ClassVar[str] = "scpi"
    name: ClassVar[str] = "power meter with SCPI"
    addresses: ClassVar[tuple[str, ...]] = ("tcpip",)
    Settings: ClassVar[type[Any]] = Settings

    def _forget(self) -> None:
        super()._forget()
        settings = self.settings
        self.has_energy = self.channels.keys() <= settings.energy_fields.keys()
        self._start = _encode_lines(settings.start)
        self._poll = _encode_lines(settings.query)
        self._fields = 0  # of the first answer

    def available_channels(self) -> tuple[str, ...]:
        return tuple(map(str, self.settings.fields or [ONLY_CHANNEL]))

    def stop_command(self) -> bytes:
        return _encode_lines(self.settings.stop)

    def _reading(self, answer: Answer) -> Reading:
        fields = re.split("[,;]", answer.body.decode("ascii", "replace").strip())
        if _ERROR.match(answer.body):
            raise AnswerError("device-error", f"the meter reports {answer.body[:40]!r}")
        places = self.settings.fields or {ONLY_CHANNEL: 1}
        if len(fields) > 1 and not self.settings.fields:
            shown = f"{answer.body[:40]!r} has {len(fields)} numbers"
            raise AnswerError("configuration", f"{shown}: set fields to the place of the power")
        self._fields = self._fields or len(fields)
        if len(fields) != self._fields:
            detail = f"{answer.body[:40]!r} has {len(fields)} fields, not {self._fields} as before"
            raise AnswerError("framing", detail)

        def read(places: Mapping[str, int], key: str, quantity: str) -> float:
            if places[key] > len(fields):
                raise AnswerError("framing", f"{answer.body[:40]!r} has no field {places[key]}")
            figure = f"{quantity} of channel {key}"
            value = number(fields[places[key] - 1].strip(), figure)
            if abs(value) >= _NOT_A_NUMBER:
                raise AnswerError("no-data", f"the meter has no {figure} now")
            if abs(value) >= _INFINITE:
                detail = f"the {figure} is beyond the meter's range"
                raise AnswerError("over-range", detail, OVER_RANGE)
            return value

        settings = self.settings
        unit_w = settings.power_unit_w or 1.0
        power_w = [unit_w * read(places, key, "power") for key in self.channels]
        energy_j = [
            settings.energy_unit_j * read(settings.energy_fields, key, "energy")
            for key in self.channels
            if self.has_energy
        ]
        return Reading(tuple(power_w), tuple(energy_j))


def _encode_lines(commands: str) -> bytes:
    return b"".join(line.encode("ascii") + b"\n" for line in commands.splitlines())
