"""The side of plugs that publish by MQTT, at a broker of somebody else's."""

from __future__ import annotations

import json
import threading
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from contract.strict_json import Document, Json
from instrumentation.meters.answers import envelope
from instrumentation.simulators.http import tasmota_status
from instrumentation.simulators.networked import NetworkSimulator


class MqttSimulator(NetworkSimulator):
    """A plug that publishes each refresh, or, as Tasmota, answers at its topic when it is asked."""

    kind: ClassVar[str] = "mqtt"

    def __init__(
        self, profile: str = "zigbee2mqtt", *, counter: bool = False, **display: float
    ) -> None:
        super().__init__(**display)
        self.profile = profile
        self._counter = counter
        self.subscribed = False
        self.sink: MqttServer | None = None

    @property
    def settings(self) -> Document:
        device: dict[str, Json] = {"device": "plug"}
        if self.profile == "generic":
            device = {"topic": "home/plug/power", "power": ""}
        return {
            "profile": self.profile,
            "period_s": self.refresh_s,
            "resolution_w": self.step_w,
            "counter": self._counter,
            **device,
        }

    @property
    def topic(self) -> str:
        """Where it publishes."""
        topics = {"tasmota": "stat/plug/STATUS8", "generic": "home/plug/power"}
        return topics.get(self.profile, "zigbee2mqtt/plug")

    def payload(self) -> bytes:
        """Return what it publishes now."""
        watts, joules = self.power_w[0], self.energy_j[0]
        if self.profile == "tasmota":
            return json.dumps(tasmota_status(watts, joules)).encode()
        if self.profile == "generic":
            return f"{watts:.3f}".encode()
        state = {"state": "ON", "linkquality": 90, "voltage": 230}
        energy = {"power": round(watts, 3), "energy": round(joules / 3.6e6, 6)}
        return json.dumps(state | energy).encode()

    def answer(self, request: str) -> tuple[str, bytes] | None:
        verb, _, rest = request.partition(" ")
        if verb == "SUBSCRIBE":
            self.subscribed = rest == self.topic
        asked = self.profile == "tasmota" and rest == "cmnd/plug/Status 8"
        return (f"message {self.topic}", self.payload()) if asked and self.subscribed else None

    def advance(self, energy_j: NDArray[np.float64]) -> bytes:
        """See `Simulator.advance`."""
        sent = b""
        for joules in energy_j:
            super().advance(joules[None, :])
            if self.profile == "tasmota" or self.silent:
                continue
            if self.sink is not None:
                self.sink.publish()
            elif self.subscribed:
                sent += envelope(f"message {self.topic}", self.payload())
        return sent

    def serve(self, host: str, port: int, secret: str = "") -> MqttServer:
        """Connect to a broker there, which must run."""
        self.sink = MqttServer(self, host, port, secret)
        return self.sink


class MqttServer:
    """The plug's connection to a broker."""

    def __init__(self, plug: MqttSimulator, host: str, port: int, secret: str) -> None:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        self._plug = plug
        self.address = f"mqtt://{host}:{port}"
        self._client = client = Client(CallbackAPIVersion.VERSION2)
        if secret:
            client.username_pw_set(*secret.split(":"))
        connected = threading.Event()

        def on_connect(*_: object) -> None:
            client.subscribe("cmnd/plug/Status")

        def on_message(*_: object) -> None:
            if plug.profile == "tasmota" and not plug.silent:
                self.publish()

        def on_subscribe(*_: object) -> None:
            connected.set()

        client.on_connect, client.on_message = on_connect, on_message
        client.on_subscribe = on_subscribe
        client.connect(host, port)
        client.loop_start()
        if not connected.wait(10):
            raise OSError(f"no broker takes a plug at {self.address}")

    def publish(self, *, retain: bool = False) -> None:
        """Publish the state now.

        The broker has a retained one, for whoever subscribes later, on return.
        """
        message = self._plug.payload()
        sent = self._client.publish(self._plug.topic, message, qos=int(retain), retain=retain)
        if retain:
            sent.wait_for_publish(10)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
