"""Power distribution units that are read by SNMP (version 2c), one OID for each channel.

`apc-rpdu2` is APC's PowerNet-MIB (branch 1.3.6.1.4.1.318.1.1.26): of unit 1 the device's power,
rPDU2DeviceStatusPower, in hundredths of a kW, and of outlet N rPDU2OutletMeteredStatusPower in W.
A unit without that measurement answers -1. How often it refreshes and its limits of error are not
stated there. SNMP has no encryption in this version: the community is readable on the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from contract.schema import Text
from instrumentation.meters.answers import Answer
from instrumentation.meters.networked import (
    AnswerError,
    Networked,
    NetworkSettings,
    Period,
    Reading,
    document,
    number,
)

_Oid = Annotated[str, Text(r"[0-2](?:\.\d{1,10}){2,40}", "write a numeric OID")]
_APC = "1.3.6.1.4.1.318.1.1.26"
_OUTLETS = 48
_APC_POWER = {
    "device": (f"{_APC}.4.3.1.5.1", 10.0),
    **{str(n): (f"{_APC}.9.4.3.1.7.{n}", 1.0) for n in range(1, _OUTLETS + 1)},
}


@dataclass(frozen=True, kw_only=True)
class Settings(NetworkSettings):
    """`profile` is the sort of device.

    Of the generic one: `power` and perhaps `energy` as `{channel: OID}`.
    """

    profile: Literal["apc-rpdu2", "generic"]
    period_s: Period = field()
    power: Mapping[str, _Oid] = field(default_factory=dict)
    energy: Mapping[str, _Oid] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.profile == "generic" and (not self.power or self.resolution_w is None):
            raise ValueError("generic needs power, an OID for each channel, and resolution_w")
        if self.profile != "generic" and (self.power or self.energy):
            raise ValueError("power and energy belong to the profile generic")


class SnmpMeter(Networked):
    """Driver; see `Networked`. Channels: `device` and the outlets `1` to `48`, or as described."""

    kind: ClassVar[str] = "snmp"
    name: ClassVar[str] = "power distribution unit"
    addresses: ClassVar[tuple[str, ...]] = ("snmp",)
    Settings: ClassVar[type[Any]] = Settings

    def _forget(self) -> None:
        super()._forget()
        settings = self.settings
        self._power = dict(_APC_POWER)
        if settings.profile == "generic":
            unit_w = float(settings.power_unit_w)
            self._power = {str(key): (oid, unit_w) for key, oid in settings.power.items()}
        self._usual_resolution_w = max(self._power[key][1] for key in self.channels)
        self.has_energy = self.channels.keys() <= settings.energy.keys()
        self._oids = [self._power[key][0] for key in self.channels]
        if self.has_energy:
            self._oids += [settings.energy[key] for key in self.channels]
        self._poll = f"GET {' '.join(self._oids)}\n".encode("ascii")

    def available_channels(self) -> tuple[str, ...]:
        if self.settings.profile == "generic":
            return tuple(map(str, self.settings.power))
        return tuple(_APC_POWER)

    def _reading(self, answer: Answer) -> Reading:
        """Read an answer, a list of `[OID, type, number or text]`."""
        if answer.label != "ok":
            raise AnswerError("no-data", f"the unit answers {answer.label}")
        content = document(answer.body)
        values = {}
        for entry in content if isinstance(content, list) else []:
            if isinstance(entry, list) and len(entry) == 3:
                values[str(entry[0])] = entry[2]
                if str(entry[1]).startswith("NoSuch"):
                    detail = f"the unit has no {entry[0]} ({entry[1]}): check the OID and profile"
                    raise AnswerError("configuration", detail)
        missing = [oid for oid in self._oids if oid not in values]
        if missing:
            raise AnswerError("no-data", f"the answer has no {missing[0]}")
        powers = []
        for key in self.channels:
            oid, unit_w = self._power[key]
            raw = number(values[oid], f"power of channel {key}")
            if self.settings.profile == "apc-rpdu2" and raw < 0:
                raise AnswerError("configuration", f"the unit does not measure channel {key}")
            powers.append(unit_w * raw)
        energy_j = [
            self.settings.energy_unit_j
            * number(values[self.settings.energy[key]], f"energy of channel {key}")
            for key in self.channels
            if self.has_energy
        ]
        return Reading(tuple(powers), tuple(energy_j))
