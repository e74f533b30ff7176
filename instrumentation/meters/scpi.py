"""Power meters that answer SCPI queries over the network (`TCPIP::HOST::PORT::SOCKET`).

SCPI-1999 leaves the commands for power to the makers, so the inventory says what is asked and which
field of the answer is the power. Numbers are IEEE 488.2's NR1 to NR3; 9.91E37 is not a number and
9.9E37 infinity (SCPI-1999, volume 1, 7.2.1.4 and 7.2.1.5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from instrumentation.meters.answers import Answer
from instrumentation.meters.networked import (
    ONLY_CHANNEL,
    AnswerError,
    Networked,
    NetworkSettings,
    Reading,
    check_text,
    number,
)
from instrumentation.meters.rows import OVER_RANGE

_MOST_FIELDS = 64
_INFINITE, _NOT_A_NUMBER = 9.9e37, 9.905e37
_COMMAND = r"[ -~]{1,200}"


@dataclass(frozen=True)
class Settings(NetworkSettings):
    """`query` is sent each period.

    `fields` says which of the answer's numbers, separated by commas and counted from 1, is the
    power of a channel, `energy_fields` the same of a counter. `start` and `stop` are commands
    without an answer, one a line, for when the port is opened and closed.
    """

    query: str = ""
    fields: Mapping[str, int] = field(default_factory=lambda: {ONLY_CHANNEL: 1})
    energy_fields: Mapping[str, int] = field(default_factory=dict)
    start: str = ""
    stop: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_text("query", self.query, _COMMAND, "what is asked each period, such as :MEAS:POW?")
        if not self.query.endswith("?"):
            raise ValueError("query is a query, so it ends in a question mark.")
        if self.period_s is None or self.resolution_w is None:
            raise ValueError(
                "period_s, how often the meter gives a new reading, and resolution_w, the step of "
                "what it sends, must be given."
            )
        for name, places in (("fields", self.fields), ("energy_fields", self.energy_fields)):
            if not isinstance(places, Mapping) or not all(
                isinstance(place, int) and 0 < place <= _MOST_FIELDS for place in places.values()
            ):
                raise ValueError(f'{name} is a number from 1 for each channel, as {{"0": 1}}.')
        if not self.fields:
            raise ValueError("fields names at least one channel.")
        for name in ("start", "stop"):
            for line in str(getattr(self, name)).splitlines():
                check_text(name, line, _COMMAND, "commands, one a line")
                if line.rstrip().endswith("?"):
                    raise ValueError(f"{name} has a query ({line}): only commands are sent there.")


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
        self._start = b"".join(line.encode("ascii") + b"\n" for line in settings.start.splitlines())
        self._poll = settings.query.encode("ascii") + b"\n"

    def available_channels(self) -> tuple[str, ...]:
        return tuple(map(str, self.settings.fields))

    def stop_command(self) -> bytes:
        stop: str = self.settings.stop
        return b"".join(line.encode("ascii") + b"\n" for line in stop.splitlines())

    def _reading(self, answer: Answer) -> Reading:
        fields = answer.body.decode("ascii", "replace").strip().split(",")

        def figure(places: Mapping[str, int], key: str, what: str) -> float:
            if places[key] > len(fields):
                raise AnswerError("framing", f"{answer.body[:40]!r} has no field {places[key]}")
            value = number(fields[places[key] - 1].strip(), f"{what} of channel {key}")
            if abs(value) >= _NOT_A_NUMBER:
                raise AnswerError("no-data", f"the meter has no {what} of channel {key} now")
            if abs(value) >= _INFINITE:
                detail = f"the {what} of channel {key} is beyond the meter's range"
                raise AnswerError("over-range", detail, OVER_RANGE)
            return value

        settings = self.settings
        power_w = [
            settings.power_unit_w * figure(settings.fields, key, "power") for key in self.channels
        ]
        energy_j = [
            settings.energy_unit_j * figure(settings.energy_fields, key, "energy")
            for key in self.channels
            if self.has_energy
        ]
        return Reading(tuple(power_w), tuple(energy_j))
