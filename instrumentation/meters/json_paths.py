"""Meters whose answers are JSON: where in it their figures stand, as JSON Pointers (RFC 6901)."""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from contract.schema import Text
from instrumentation.meters.networked import (
    DEVICE_ERROR,
    OFF,
    ONLY_CHANNEL,
    AnswerError,
    Networked,
    NetworkSettings,
    Reading,
    number,
)
from instrumentation.meters.rows import OVER_RANGE

_METER_FAILED = "power_meter"  # Shelly: power_meter_failure
_SHOWN = 80
Pointer = Annotated[
    str, Text(r"(?:/(?:[^~/]|~[01])*)*", "write a JSON Pointer such as /sensor/power")
]
_Key = Annotated[str, Text(r"[A-Za-z0-9_]+", "a channel's name has letters, digits and _")]
Pointers = Pointer | Mapping[_Key, Pointer]


@dataclass(frozen=True, kw_only=True)
class JsonSettings(NetworkSettings):
    """`profile` is the sort of device.

    Of the generic one: `power`, `energy` and `stamp` as JSON Pointers, for several channels
    `{channel: pointer}`; `""` is the whole document. With `counter: false` the meter's own counter
    is not read. `ca_file` has the certificates of the authorities to trust with TLS, or the
    device's own.
    """

    profile: str
    power: Pointers | None = None
    energy: Pointers | None = None
    stamp: Pointer | None = None
    counter: bool = True
    ca_file: str = ""

    def check_described(self, needed: tuple[str, ...], *keys: str) -> None:
        """Raise ValueError where the settings do not fit the profile.

        Those in `needed` have no usual period, and `keys` are settings of the generic one.
        """
        if self.profile in needed and (self.period_s is None or self.resolution_w is None):
            raise ValueError(
                f"{self.profile} needs period_s, how often the device gives a new reading, and "
                "resolution_w, the step of what it shows"
            )
        if self.profile == "generic":
            for name in (*keys, "power"):
                if getattr(self, name) in (None, {}, "") and (name, self.power) != ("power", ""):
                    raise ValueError(f"generic needs {name}")
            return
        names = (*keys, "power", "energy", "stamp")
        if any(getattr(self, name) for name in names):
            raise ValueError(f"{', '.join(names)} belong to the profile generic")


@dataclass(frozen=True)
class Places:
    """Pointers to the figures of each channel, and what one unit of them is.

    `errors` point to what is empty, or false, where the device reports no error that concerns a
    channel, `outputs` to whether it lets current through (false, or `OFF`); where a channel has
    none, those are `errors` and `output` beside its power. What `login` points to is there where
    the device wants a login.
    """

    power: Mapping[str, str]
    energy: Mapping[str, str]
    power_unit_w: float = 1.0
    energy_unit_j: float = 1.0
    stamps: tuple[str, ...] = ()
    errors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    login: str = ""

    @classmethod
    def from_settings(cls, settings: JsonSettings) -> Places:
        """Return the places that the settings of the generic profile describe."""
        return cls(
            _by_channel(settings.power),
            _by_channel(settings.energy),
            settings.power_unit_w,
            settings.energy_unit_j,
            () if settings.stamp is None else (settings.stamp,),
        )

    def reading(self, document: Any, channels: Mapping[str, str], *, counter: bool) -> Reading:
        """Read these channels from a document.

        Raises AnswerError.
        """
        if self.login and isinstance(wanted := value_at(document, self.login), str):
            way = "name a file with its login as secret_file, or check it"
            raise AnswerError("configuration", f"the device wants a login ({wanted[:60]}): {way}")
        errors = {error for key in channels for error in self._errors(document, key)}
        if failed := sorted(error for error in errors if _METER_FAILED in error):
            refusal = f"the device reports {', '.join(failed)[:80]}"
            raise AnswerError("device-error", refusal, DEVICE_ERROR)
        power_w: list[float] = []
        outputs: list[Any] = []
        for key in channels:
            value = value_at(document, self.power[key])
            if value is None:
                shown = json.dumps(document)[:_SHOWN]
                raise AnswerError("no-data", f"the answer has no power of channel {key}: {shown}")
            power_w.append(self.power_unit_w * number(value, f"power of channel {key}"))
            if power_w[-1] > 0:
                output = self.outputs.get(key, f"{_parent(self.power[key])}/output")
                outputs.append(value_at(document, output))
        energy_j = [self._counter_j(document, key) for key in channels if counter]
        stamps = (value_at(document, place) for place in self.stamps)
        stamp = next((stamp for stamp in stamps if stamp is not None), None)
        if self.stamps and stamp is None:
            where = self.stamps[0]
            raise AnswerError("no-data", f"the answer does not name its reading ({where})")
        out_of_range = {error for error in errors if error.startswith("out_of_range")}
        is_off = any(o is False or (isinstance(o, str) and o.upper() == "OFF") for o in outputs)
        flags = OVER_RANGE * bool(out_of_range) | DEVICE_ERROR * bool(errors - out_of_range)
        name = "" if stamp is None else str(stamp)
        return Reading(tuple(power_w), tuple(energy_j), name, flags | OFF * is_off)

    def _counter_j(self, document: Any, key: str) -> float:
        """Return the counter of a channel, NaN where there is none of it alone.

        One total beside the powers of several sockets is that of all of them.
        """
        if lists_above(document, self.power[key]) > lists_above(document, self.energy[key]):
            return math.nan
        try:
            return self.energy_unit_j * number(value_at(document, self.energy[key]), "energy")
        except AnswerError:
            return math.nan

    def _errors(self, document: Any, key: str) -> Iterator[str]:
        """Yield the names of errors that the device reports."""
        for place in self.errors.get(key, (f"{_parent(self.power[key])}/errors",)):
            value = value_at(document, place)
            if value is True:
                yield place.rpartition("/")[2]
            elif value:
                yield from map(str, value if isinstance(value, list) else [value])


def _parent(pointer: str) -> str:
    return pointer.rpartition("/")[0]


def lists_above(document: Any, pointer: str) -> int:
    """How many lists of several entries a pointer goes through."""
    tokens = pointer.split("/")
    above = (value_at(document, "/".join(tokens[:n])) for n in range(1, len(tokens)))
    return sum(isinstance(value, list) and len(value) > 1 for value in above)


def _by_channel(pointers: Pointers | None) -> Mapping[str, str]:
    return {ONLY_CHANNEL: pointers} if isinstance(pointers, str) else pointers or {}


class JsonMeter(Networked):
    """Base of the drivers of meters whose answers are JSON; its channels are those of `places`."""

    @property
    @abstractmethod
    def places(self) -> Places:
        """Where the figures are in an answer, with these settings."""

    def _forget(self) -> None:
        super()._forget()
        self._places = self.places
        counted = self._places.energy.keys()
        self.has_energy = self.settings.counter and self.channels.keys() <= counted

    def available_channels(self) -> tuple[str, ...]:
        return tuple(self.places.power)


def value_at(document: Any, pointer: str) -> Any:
    """Return what stands there, None where nothing does.

    The empty pointer is the whole document.

    Index 0 of what is no list is that itself: Tasmota gives a list for several sockets only.
    """
    value = document
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, list) or key != "0":
            return None
    return value
