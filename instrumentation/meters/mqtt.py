"""Plugs that publish their readings by MQTT: Tasmota, zigbee2mqtt, or as described.

Tasmota is asked (`cmnd/DEVICE/Status` with `8`, which it answers at `stat/DEVICE/STATUS8`;
tasmota.github.io/docs/MQTT), for unasked it publishes each 10 s at most. zigbee2mqtt publishes to
`zigbee2mqtt/DEVICE` (zigbee2mqtt.io/guide/usage/mqtt_topics_and_messages.html) when the plug
reports: set its reporting to a fixed interval, for between two reports on change the power was the
old one. A retained message was published at an unknown time before we listened: it is no reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from contract.schema import Text
from instrumentation.meters.answers import Answer
from instrumentation.meters.http import PROFILES
from instrumentation.meters.json_paths import JsonMeter, JsonSettings, Places
from instrumentation.meters.networked import WH_J, AnswerError, Reading, document

RETAINED = "retained "
FRESH = "message "
_Topic = Annotated[
    str, Text(r"[^+#\s\0]{1,150}", "a topic has no +, # or blank and at most 150 letters")
]
_ZIGBEE = Places(
    {"0": "/power"}, {"0": "/energy"}, energy_unit_j=1000 * WH_J, outputs={"0": "/state"}
)


@dataclass(frozen=True, kw_only=True)
class Settings(JsonSettings):
    """See `JsonSettings`.

    `device` is the plug's name in its topics, `topic` where the generic one publishes.
    """

    profile: Literal["tasmota", "zigbee2mqtt", "generic"]
    device: _Topic | Literal[""] = ""
    topic: _Topic | Literal[""] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.profile != "generic" and not self.device:
            raise ValueError("device, the plug's name in its topics, is missing")
        self.check_described(("zigbee2mqtt", "generic"), "topic")


class MqttMeter(JsonMeter):
    """Driver; see `Networked`. Channels: `0`, of Tasmota up to `3`, or as described."""

    kind: ClassVar[str] = "mqtt"
    name: ClassVar[str] = "plug that publishes by MQTT"
    addresses: ClassVar[tuple[str, ...]] = ("mqtt", "mqtts")
    Settings: ClassVar[type[Any]] = Settings
    _usual_resolution_w = 1.0

    def _forget(self) -> None:
        super()._forget()
        device = self.settings.device
        topic = {"tasmota": f"stat/{device}/STATUS8", "zigbee2mqtt": f"zigbee2mqtt/{device}"}
        wanted = topic.get(self.settings.profile, self.settings.topic)
        self._start = f"SUBSCRIBE {wanted}\n".encode()
        if self.settings.profile == "tasmota":
            self._poll = f"PUBLISH cmnd/{device}/Status 8\n".encode()

    @property
    def places(self) -> Places:
        if self.settings.profile == "generic":
            return Places.from_settings(self.settings)
        return PROFILES["tasmota"].places if self.settings.profile == "tasmota" else _ZIGBEE

    def _reading(self, answer: Answer) -> Reading:
        if answer.label.startswith(RETAINED):
            raise AnswerError("retained", "a message from before we listened is no reading")
        if not answer.label.startswith(FRESH):
            raise AnswerError("no-data", f"the broker answers {answer.label}")
        content = document(answer.body)
        return self._places.reading(content, self.channels, counter=self.has_energy)
