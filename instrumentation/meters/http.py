"""Driver of meters that answer HTTP with JSON: plugs, Home Assistant, others.

Shelly, first generation: shelly-api-docs.shelly.cloud/gen1, `/status` (`total` of `meters` is in
watt-minutes, of `emeters` in Wh); later ones: shelly-api-docs.shelly.cloud/gen2, Switch.GetStatus,
PM1.GetStatus, EM.GetStatus and EM1.GetStatus, with their `errors`. Tasmota: tasmota.github.io/docs/
Commands, `Status 8` (`Total` in kWh, one figure for all sockets unless it is a list; without
`WattRes` its power is in whole W). Home Assistant: developers.home-assistant.io/docs/api/rest;
`last_reported` changes with each report of a state. None of them states over which time its power
is averaged, how often it is refreshed, or its limits of error: 1 s is taken for the refresh of the
plugs.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar
from urllib.parse import quote

from contract import schema
from contract.schema import Range, Text
from instrumentation.meters.answers import Answer
from instrumentation.meters.json_paths import Places, power_unit_w, require_agreement, value_at
from instrumentation.meters.networked import (
    AGE_UNKNOWN,
    AVERAGING_UNKNOWN,
    ENERGY_UNITS,
    ONLY_CHANNEL,
    AnswerError,
    Networked,
    NetworkSettings,
    Reading,
    document,
)
from instrumentation.meters.units import ENERGY, POWER, stated_by
from instrumentation.ports import SECRET_QUERY

_EXAMPLE = (
    "{profile: generic, path: /data, power: /meter/power, power_unit_w: 1, period_s: 1, "
    "averaged_s: 1, resolution_w: 0.1}"
)
# Services that no profile makes a meter of a phase: name, path and reason.
_NO_METERS = (
    ("redfish", "/redfish/", "a controller shows a mean of up to a minute"),
    ("prometheus", "/api/v1/query", "a query returns even the last value of a dead exporter"),
)
_Pointer = Annotated[str, Text(r"(?:/(?:[^~/]|~[01])*)*", "write a JSON Pointer as /sensor/power")]
_Key = Annotated[str, Text(r"[A-Za-z0-9_]+", "a channel's name has letters, digits and _")]
_Pointers = _Pointer | Mapping[_Key, _Pointer]


@dataclass(frozen=True)
class Profile:
    """The question to one sort of device, and where in its answer the figures are.

    `login` is how it expects the secret: `digest`, or `password`, as it asks for it, by Digest or,
    if it never asked for that, by Basic, which can be read on the way. The value that `valid`
    points to must not be false, that at `unit` is the power's unit. `entity` is the pattern of the
    figure's name within the device; such a device has no usual period.
    """

    path: str
    places: Places
    valid: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""
    entity: str = ""
    login: str = "password"
    resolution_w: float = 0.1


PROFILES = {
    name: schema.read(Profile, profile)
    for name, profile in tomllib.loads(
        Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    ).items()
}

_NAMED = tuple(name for name, profile in PROFILES.items() if profile.entity)


@dataclass(frozen=True, kw_only=True)
class Settings(NetworkSettings):
    """See `NetworkSettings`.

    `profile` is the sort of device, `id` the number of a Shelly's switch or meter, `entity` the
    sensor of Home Assistant. The generic profile has `path`, the part behind its address, and
    `power`, `energy`, `stamp`, `valid` and `unit` (a text: mW, W or kW) as JSON Pointers, for
    several channels `{channel: pointer}`; `""` is the whole document. It must declare units and
    `averaged_s`; readings of Home Assistant are flagged without the latter, those of the generic
    profile without `stamp`, as a new one cannot be distinguished from an old one. With
    `counter: false` the meter's energy counter is not read. `ca_file` contains the certificates of
    the authorities to trust with TLS, or that of the device.
    """

    profile: str
    power: _Pointers | None = None
    energy: _Pointers | None = None
    stamp: _Pointer | None = None
    valid: _Pointer | None = None
    unit: _Pointer = ""
    counter: bool = True
    ca_file: str = ""
    id: Annotated[int, Range(least=0, most=99)] = 0
    entity: str = ""
    path: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, path, reason in _NO_METERS:
            if self.profile == name or self.path.startswith(path):
                raise ValueError(f"{name} is not supported: {reason}. Use a meter at the mains")
        if self.profile not in (*PROFILES, "generic"):
            raise ValueError(f"profile must be generic or one of {', '.join(PROFILES)}")
        if self.profile in _NAMED and not re.fullmatch(self.device.entity, self.entity):
            raise ValueError(f"entity must be like {self.device.entity}")
        if SECRET_QUERY.search(self.path):  # not shown
            raise ValueError("path has a login: put it into secret_file")
        if self.path and not re.fullmatch(r"/[!-~]*", self.path):
            raise ValueError("path must be the part behind the address, such as /power")
        # A figure without its unit or its averaging time is no measurement.
        generic = self.profile == "generic"
        declarations: dict[str, object] = {
            "period_s (how often it gives a new reading)": self.period_s,
            "resolution_w (the step of what it shows)": self.resolution_w,
        }
        if generic:
            declarations |= {
                "path (the part behind its address)": self.path,
                "power (where the power stands)": self.power or self.power == "",
                "unit (where that stands) or power_unit_w": self.unit or self.power_unit_w,
                "averaged_s (how long a reading averages)": self.averaged_s,
            }
        missing = ", ".join(name for name, value in declarations.items() if not value)
        if missing and (generic or self.profile in _NAMED):
            raise ValueError(f"{self.profile} needs {missing}{f', as in {_EXAMPLE}' * generic}")
        if self.energy is not None and self.energy_unit_j is None:
            raise ValueError(f"energy {ENERGY_UNITS}")
        described = self.path, self.power, self.energy, self.stamp, self.valid, self.unit
        if not generic and any(described):
            names = "path, power, energy, stamp, valid and unit"
            raise ValueError(f"{names} belong to the profile generic")
        for pointer in _by_channel(self.power).values():
            _require_unit(pointer, POWER, self.power_unit_w, "power_unit_w")
        for pointer in _by_channel(self.energy).values():
            _require_unit(pointer, ENERGY, self.energy_unit_j, "energy_unit_j")

    @property
    def device(self) -> Profile:
        """The profile, filled in from the settings."""
        if self.profile == "generic":
            places = Places(
                _by_channel(self.power),
                _by_channel(self.energy),
                self.power_unit_w or 1.0,
                self.energy_unit_j or 1.0,  # or without a counter
                () if self.stamp is None else (self.stamp,),
            )
            valid = {} if self.valid is None else dict.fromkeys(places.power, self.valid)
            return Profile(self.path, places, valid, self.unit)
        device = PROFILES[self.profile]
        entity = quote(self.entity, safe="")
        return replace(device, path=device.path.format(id=self.id, entity=entity))


def _by_channel(pointers: _Pointers | None) -> Mapping[str, str]:
    return {ONLY_CHANNEL: pointers} if isinstance(pointers, str) else pointers or {}


def _require_unit(pointer: str, quantity: str, size: float | None, setting: str) -> None:
    """Raise ValueError if the name of a figure states another quantity, or another unit."""
    names = [name for name in pointer.split("/")[-2:] if not name.isdecimal()]
    name = "".join(names[-1:])
    if len(names) > 1 and re.fullmatch(r"(?i)total|sum|value|now|state|current", name):
        name = names[0]  # the object is named by its quantity
    unit = stated_by(name)
    if unit is None or (quantity == ENERGY and unit.quantity != ENERGY and not unit.size):
        return
    if unit.quantity != quantity:
        raise ValueError(f"{quantity} is at {pointer}, which states {unit.quantity}: name another")
    if size and unit.size and unit.size != size:
        stated = f"{pointer} states units of {unit.size:.10g}, not {size:g}"
        raise ValueError(f"{stated}: correct {setting}")


class HttpMeter(Networked):
    """Driver; see `Networked`.

    Channels: `0` to `3`, `a`, `b`, `c` and `total` of a three-phase Shelly, or as described.
    """

    kind: ClassVar[str] = "http"
    name: ClassVar[str] = "plug or meter that answers HTTP"
    addresses: ClassVar[tuple[str, ...]] = ("http", "https")
    Settings: ClassVar[type[Any]] = Settings

    def available_channels(self) -> tuple[str, ...]:
        return tuple(self.settings.device.places.power)

    def _forget(self) -> None:
        super()._forget()
        self._device: Profile = self.settings.device
        counted = self._device.places.energy.keys()
        self.has_energy = self.settings.counter and self.channels.keys() <= counted
        self._usual_resolution_w = self._device.resolution_w
        self._named: dict[str, list[object]] = {}  # what each power's object calls itself
        self._poll = f"GET {self._device.path}\n".encode("ascii")
        self.login = self._device.login
        if self._device.entity and self.settings.averaged_s is None:
            self._always_flags |= AVERAGING_UNKNOWN
        if self.settings.profile == "generic" and self.settings.stamp is None:
            self._always_flags |= AGE_UNKNOWN

    def _reading(self, answer: Answer) -> Reading:
        if not answer.label.startswith("200 "):
            raise status_error(answer.label, self.settings.secret_file, self._device.path)
        content, device = document(answer.body), self._device
        for key in self.channels:
            if value_at(content, device.valid.get(key, "/")) is False:
                raise AnswerError("no-data", f"the meter calls its reading of {key} not valid")
        places = device.places
        if device.unit:
            places = replace(places, power_unit_w=power_unit_w(value_at(content, device.unit)))
        if self.settings.profile == "generic":
            for key in self.channels:
                require_agreement(content, places.power[key], places.power_unit_w)
        reading = places.reading(content, self.channels, counter=self.has_energy)
        for key in self.channels:  # an index of a list may become that of another sensor
            beside = places.power[key].rpartition("/")[0]
            names = [value_at(content, f"{beside}/{name}") for name in ("name", "label")]
            if names != self._named.setdefault(key, names):
                raise AnswerError("no-data", f"another object is now at {beside}: {names}")
        return reading


def status_error(label: str, secret_file: str, path: str) -> AnswerError:
    """Return the error for an answer without a document; `label` is its HTTP status."""
    if label[:3] in ("401", "403"):
        way = f"check {secret_file}" if secret_file else "name a file with its login as secret_file"
        return AnswerError("configuration", f"the meter wants a login ({label}): {way}")
    if label[:3] == "404":
        way = "check profile, or let `fde init --meter` find it"
        return AnswerError("configuration", f"the meter has nothing at {path} ({label}): {way}")
    if label[:1] == "3":
        return AnswerError("configuration", f"the meter sends elsewhere ({label}): name that port")
    return AnswerError("no-data", f"the meter answers {label}")
