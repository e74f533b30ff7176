"""Plugs and meters that answer HTTP with JSON: Shelly, Tasmota, Home Assistant, or as described.

Shelly, first generation: shelly-api-docs.shelly.cloud/gen1, `/status` (`total` of `meters` is in
watt-minutes, of `emeters` in Wh); later ones: shelly-api-docs.shelly.cloud/gen2, Switch.GetStatus,
EM.GetStatus and EM1.GetStatus. Tasmota: tasmota.github.io/docs/Commands, `Status 8` (`Total` in
kWh; without `WattRes` its power is in whole W). Home Assistant: developers.home-assistant.io/docs/
api/rest; a state was reported anew where `last_reported` is another one. None of them states what
its power is the mean of, how often it is refreshed, or its limits of error: 1 s is taken for the
refresh of the plugs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from instrumentation.meters.answers import Answer
from instrumentation.meters.json_paths import check_pointer, pointers, value_at
from instrumentation.meters.networked import (
    AnswerError,
    Networked,
    NetworkSettings,
    Reading,
    check_number,
    check_text,
    document,
    number,
)

WH_J = 3600.0
_UNITS_W = {"mW": 1e-3, "W": 1.0, "kW": 1e3}


@dataclass(frozen=True)
class Profile:
    """Where the figures of one sort of device stand: pointers by channel, and the unit of its
    energy in J. `login` is how it wants the secret; `valid` must be true where it is there.
    """

    path: str
    power: Mapping[str, str]
    energy: Mapping[str, str] = field(default_factory=dict)
    energy_unit_j: float = WH_J
    valid: Mapping[str, str] = field(default_factory=dict)
    stamps: tuple[str, ...] = ()
    unit: str = ""
    login: str = "basic"
    resolution_w: float = 0.1


def _numbered(name: str, leaf: str, count: int) -> dict[str, str]:
    return {str(n): f"/{name}/{n}/{leaf}" for n in range(count)}


def _first_generation(name: str, count: int, energy_unit_j: float) -> Profile:
    power, energy, valid = (_numbered(name, leaf, count) for leaf in ("power", "total", "is_valid"))
    return Profile("/status", power, energy, energy_unit_j, valid, resolution_w=0.01)


PROFILES = {
    "shelly-gen1": _first_generation("meters", 4, 60.0),
    "shelly-gen1-em": _first_generation("emeters", 3, WH_J),
    "shelly-switch": Profile(
        "/rpc/Switch.GetStatus?id={id}", {"0": "/apower"}, {"0": "/aenergy/total"}, login="digest"
    ),
    "shelly-em": Profile(
        "/rpc/EM.GetStatus?id={id}",
        {**{phase: f"/{phase}_act_power" for phase in "abc"}, "total": "/total_act_power"},
        login="digest",
    ),
    "shelly-em1": Profile("/rpc/EM1.GetStatus?id={id}", {"0": "/act_power"}, login="digest"),
    "tasmota": Profile(
        "/cm?cmnd=Status%208",
        {str(n): f"/StatusSNS/ENERGY/Power/{n}" for n in range(4)},
        {"0": "/StatusSNS/ENERGY/Total/0"},
        energy_unit_j=1000 * WH_J,
        login="tasmota",
        resolution_w=1.0,
    ),
    "home-assistant": Profile(
        "/api/states/{entity}",
        {"0": "/state"},
        stamps=("/last_reported", "/last_updated"),
        unit="/attributes/unit_of_measurement",
        login="bearer",
    ),
    "generic": Profile("{path}", {}),
}
# Those whose period and step nobody but the user knows.
DESCRIBED = ("home-assistant", "generic")


@dataclass(frozen=True)
class Settings(NetworkSettings):
    """`profile` is the sort of device; `id` the number of a Shelly's switch or meter, `entity` the
    sensor of Home Assistant. Of the generic one: `path` behind the address, `power`, `energy` and
    `stamp` as JSON Pointers (`{channel: pointer}` for several channels), `power_unit_w` and
    `energy_unit_j` what its units are. With `counter: false` the meter's own counter is not read.
    """

    profile: str = ""
    id: int = 0
    entity: str = ""
    path: str = ""
    power: str | Mapping[str, str] = ""
    energy: str | Mapping[str, str] = ""
    stamp: str = ""
    power_unit_w: float = 1.0
    energy_unit_j: float = WH_J
    counter: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.profile not in PROFILES:
            raise ValueError(f"profile is one of {', '.join(PROFILES)}.")
        if self.profile in DESCRIBED and (self.period_s is None or self.resolution_w is None):
            raise ValueError(
                f"{self.profile} needs period_s, how often the device gives a new reading, and "
                "resolution_w, the step of what it shows."
            )
        if not isinstance(self.id, int) or not 0 <= self.id < 100:
            raise ValueError("id is a whole number from 0 to 99.")
        if self.profile == "home-assistant":
            check_text("entity", self.entity, r"[a-z_]+\.[a-z0-9_]+", "such as sensor.plug_power")
        if self.profile == "generic":
            check_text("path", self.path, r"/[!-~]*", "the part behind the address, such as /power")
            pointers("power", self.power)
            if self.energy:
                pointers("energy", self.energy)
            check_pointer("stamp", self.stamp)
        elif self.path or self.power or self.energy or self.stamp:
            raise ValueError("path, power, energy and stamp belong to the profile generic.")
        check_number("power_unit_w", self.power_unit_w, above=True)
        check_number("energy_unit_j", self.energy_unit_j, above=True)

    @property
    def device(self) -> Profile:
        """The profile, with what the settings describe."""
        if self.profile != "generic":
            return PROFILES[self.profile]
        return Profile(
            self.path,
            pointers("power", self.power),
            pointers("energy", self.energy) if self.energy else {},
            self.energy_unit_j,
            stamps=(self.stamp,) if self.stamp else (),
        )


class HttpMeter(Networked):
    """Driver; see `Networked`. Channels: `0` to `3`, `a`, `b`, `c` and `total` of a three-phase
    Shelly, or as described.
    """

    kind: ClassVar[str] = "http"
    name: ClassVar[str] = "plug or meter that answers HTTP"
    addresses: ClassVar[tuple[str, ...]] = ("http", "https")
    Settings: ClassVar[type[Any]] = Settings

    def __init__(
        self, channels: Mapping[str, str], settings: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(channels, settings)
        device: Profile = self.settings.device
        self.login = device.login
        self.has_energy = self.settings.counter and all(own in device.energy for own in channels)

    def _forget(self) -> None:
        super()._forget()
        device: Profile = self.settings.device
        self._usual_resolution_w = device.resolution_w
        path = device.path
        if self.settings.profile != "generic":
            path = path.format(id=self.settings.id, entity=self.settings.entity)
        self._poll = f"GET {path}\n".encode("ascii")

    def available_channels(self) -> tuple[str, ...]:
        return tuple(self.settings.device.power)

    def _reading(self, answer: Answer) -> Reading:
        if not answer.label.startswith("200 "):
            raise refused(answer.label, self.settings.secret_file)
        device: Profile = self.settings.device
        found = document(answer.body)
        unit_w = self._unit_w(found, device)
        for own in self.channels:
            if value_at(found, device.valid.get(own, "/")) is False:
                raise AnswerError(
                    "no-data", f"the meter calls its reading of channel {own} not valid"
                )
        power_w = [
            unit_w * number(value_at(found, device.power[own]), f"power of channel {own}")
            for own in self.channels
        ]
        energy_j = [
            device.energy_unit_j * number(value_at(found, device.energy[own]), f"energy of {own}")
            for own in self.channels
            if self.has_energy
        ]
        return Reading(tuple(power_w), tuple(energy_j), _stamp(found, device.stamps))

    def _unit_w(self, found: Any, device: Profile) -> float:
        if not device.unit:
            return float(self.settings.power_unit_w)
        unit = value_at(found, device.unit)
        if unit not in _UNITS_W:
            raise AnswerError(
                "configuration", f"the entity is in {unit!r}, not a power: name another"
            )
        return _UNITS_W[unit]


def refused(label: str, secret_file: str) -> AnswerError:
    """What an answer without a document means; `label` is its HTTP status."""
    if label[:3] in ("401", "403"):
        way = f"check {secret_file}" if secret_file else "name a file with its login as secret_file"
        return AnswerError("configuration", f"the meter wants a login ({label}): {way}")
    if label[:3] == "404":
        return AnswerError("configuration", f"the meter has nothing there ({label}): check profile")
    return AnswerError("no-data", f"the meter answers {label}")


def _stamp(found: Any, places: tuple[str, ...]) -> str:
    """The first of them that is there."""
    stamps = (value_at(found, place) for place in places)
    stamp = next((stamp for stamp in stamps if stamp is not None), None)
    if places and stamp is None:
        raise AnswerError("no-data", f"the answer does not say which reading it is ({places[0]})")
    return "" if stamp is None else str(stamp)
