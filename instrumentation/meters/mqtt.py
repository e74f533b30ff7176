"""Plugs that publish their readings by MQTT: Tasmota, zigbee2mqtt, or as described.

Tasmota is asked (`cmnd/DEVICE/Status` with `8`, which it answers at `stat/DEVICE/STATUS8`;
tasmota.github.io/docs/MQTT), for by itself it publishes each 10 s at most. zigbee2mqtt publishes to
`zigbee2mqtt/DEVICE` (zigbee2mqtt.io/guide/usage/mqtt_topics_and_messages.html) when the plug
reports: set its reporting to a fixed interval, for between two reports on change the power was the
old one. A retained message was published before we listened, nobody knows when: it is no reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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

KWH_J = 3.6e6
RETAINED = "retained "
FRESH = "message "
_TOPIC = r"[^+#\s\0]{1,150}"


@dataclass(frozen=True)
class Settings(NetworkSettings):
    """`profile` is the sort of device, `device` its name in the topics. Of the generic one:
    `topic`, `power`, `energy` and `stamp` as JSON Pointers (for several channels `{channel:
    pointer}`; `""` is the whole message), `power_unit_w` and `energy_unit_j` what its units are.
    """

    profile: str = ""
    device: str = ""
    topic: str = ""
    power: str | Mapping[str, str] = ""
    energy: str | Mapping[str, str] = ""
    stamp: str = ""
    power_unit_w: float = 1.0
    energy_unit_j: float = KWH_J
    counter: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.profile not in ("tasmota", "zigbee2mqtt", "generic"):
            raise ValueError("profile is one of tasmota, zigbee2mqtt, generic.")
        if self.profile != "tasmota" and (self.period_s is None or self.resolution_w is None):
            raise ValueError(
                f"{self.profile} needs period_s, how often the device publishes, and resolution_w, "
                "the step of what it shows."
            )
        if self.profile == "generic":
            check_text("topic", self.topic, _TOPIC, "a topic without + and #, at most 150 letters")
            pointers("power", self.power)
            if self.energy:
                pointers("energy", self.energy)
            check_pointer("stamp", self.stamp)
        else:
            check_text("device", self.device, _TOPIC, "the device's name in its topics")
            if self.topic or self.power or self.energy or self.stamp:
                raise ValueError("topic, power, energy and stamp belong to the profile generic.")
        check_number("power_unit_w", self.power_unit_w, above=True)
        check_number("energy_unit_j", self.energy_unit_j, above=True)

    @property
    def source_topic(self) -> str:
        """Where the readings come."""
        if self.profile == "tasmota":
            return f"stat/{self.device}/STATUS8"
        return f"zigbee2mqtt/{self.device}" if self.profile == "zigbee2mqtt" else self.topic

    @property
    def places(self) -> tuple[dict[str, str], dict[str, str]]:
        """Pointers to power and energy by channel."""
        if self.profile == "tasmota":
            power = {str(n): f"/StatusSNS/ENERGY/Power/{n}" for n in range(4)}
            return power, {"0": "/StatusSNS/ENERGY/Total/0"}
        if self.profile == "zigbee2mqtt":
            return {"0": "/power"}, {"0": "/energy"}
        return pointers("power", self.power), pointers("energy", self.energy) if self.energy else {}


class MqttMeter(Networked):
    """Driver; see `Networked`. Channels: `0`, of Tasmota up to `3`, or as described."""

    kind: ClassVar[str] = "mqtt"
    name: ClassVar[str] = "plug that publishes by MQTT"
    addresses: ClassVar[tuple[str, ...]] = ("mqtt", "mqtts")
    Settings: ClassVar[type[Any]] = Settings
    _usual_resolution_w = 1.0

    def __init__(
        self, channels: Mapping[str, str], settings: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(channels, settings)
        self.has_energy = self.settings.counter and all(own in self._energy for own in channels)

    def _forget(self) -> None:
        super()._forget()
        self._power, self._energy = self.settings.places
        self._start = f"SUBSCRIBE {self.settings.source_topic}\n".encode()
        if self.settings.profile == "tasmota":
            self._poll = f"PUBLISH cmnd/{self.settings.device}/Status 8\n".encode()

    def available_channels(self) -> tuple[str, ...]:
        return tuple(self.settings.places[0])

    def _reading(self, answer: Answer) -> Reading | None:
        if answer.label.startswith(RETAINED):
            raise AnswerError("retained", "a message from before we listened is no reading")
        if not answer.label.startswith(FRESH):
            raise AnswerError("no-data", f"the broker says {answer.label}")
        found = document(answer.body)
        unit_j = KWH_J if self.settings.profile != "generic" else self.settings.energy_unit_j
        power_w = [
            self.settings.power_unit_w
            * number(value_at(found, self._power[own]), f"power of channel {own}")
            for own in self.channels
        ]
        energy_j = [
            unit_j * number(value_at(found, self._energy[own]), f"energy of channel {own}")
            for own in self.channels
            if self.has_energy
        ]
        stamp = value_at(found, self.settings.stamp) if self.settings.stamp else ""
        return Reading(tuple(power_w), tuple(energy_j), str(stamp))
