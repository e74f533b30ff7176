"""The side of plugs that answer HTTP; what they answer is described in `meters.http`."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

from instrumentation.simulators.networked import NetworkSimulator


class HttpSimulator(NetworkSimulator):
    """A device of one of the profiles. `period_s` of the settings is its refresh.

    `delay_s` is how long it takes for an answer on the network. Of Home Assistant, a state that is
    the same as before is reported again only with `reports_anew`.
    """

    kind: ClassVar[str] = "http"

    def __init__(
        self,
        profile: str = "shelly-switch",
        *,
        counter: bool = False,
        delay_s: float = 0.0,
        reports_anew: bool = True,
        **display: float,
    ) -> None:
        self.profile = profile
        self.channels = ("a", "b", "c") if profile == "shelly-em" else ("0",)
        super().__init__(**display)
        self._counter = counter
        self.delay_s = delay_s
        self._reports_anew = reports_anew
        self._reported = (0.0, 0)  # the state and the number of its refresh

    @property
    def settings(self) -> Mapping[str, Any]:
        described: dict[str, dict[str, Any]] = {
            "home-assistant": {"entity": "sensor.plug_power"},
            "generic": {
                "path": "/data?what=all",
                "power": "/meter/power",
                "energy": "/meter/energy",
                "stamp": "/n",
            },
        }
        return {
            "profile": self.profile,
            "period_s": self.refresh_s,
            "resolution_w": self.step_w,
            "counter": self._counter,
            **described.get(self.profile, {}),
        }

    def answer(self, request: str) -> tuple[str, bytes]:
        verb, _, path = request.strip().partition(" ")
        if self.broken:
            return "503 Service Unavailable", b"busy"
        found = self._document(unquote(path)) if verb == "GET" else None
        if found is None:
            return "404 Not Found", b"<html>no such page</html>"
        return "200 OK", json.dumps(found).encode()

    def _document(self, path: str) -> dict[str, Any] | None:  # noqa: PLR0911 - one a profile
        watts, joules = self.power_w, self.energy_j
        url = urlsplit(path)
        number = parse_qs(url.query).get("id")
        match self.profile, url.path:
            case "shelly-gen1" | "shelly-gen1-em", "/status":
                return self._first_generation(watts[0], joules[0])
            case "shelly-switch", "/rpc/Switch.GetStatus" if number == ["0"]:
                total = {"total": round(joules[0] / 3600, 3), "by_minute": [0.0], "minute_ts": 0}
                state = {"id": 0, "source": "init", "output": True, "voltage": 229.8}
                return {**state, "apower": round(watts[0], 1), "aenergy": total}
            case "shelly-em", "/rpc/EM.GetStatus" if number == ["0"]:
                phases = {f"{n}_act_power": round(w, 3) for n, w in zip("abc", watts, strict=True)}
                return {"id": 0, **phases, "total_act_power": round(sum(watts), 3)}
            case "shelly-em1", "/rpc/EM1.GetStatus" if number == ["0"]:
                return {"id": 0, "voltage": 230.0, "act_power": round(watts[0], 1), "pf": 0.9}
            case "tasmota", "/cm" if "cmnd=Status 8" in url.query:
                return tasmota_status(watts[0], joules[0])
            case "home-assistant", "/api/states/sensor.plug_power":
                return self._state(watts[0])
            case "generic", "/data":
                reading = {"power": round(watts[0], 3), "energy": joules[0] / 3600}
                return {"n": self.refreshes, "meter": reading}
        return None

    def _first_generation(self, power_w: float, energy_j: float) -> dict[str, Any]:
        is_em = self.profile == "shelly-gen1-em"
        unit_j = 3600.0 if is_em else 60.0
        meter = {"power": round(power_w, 2), "is_valid": True, "total": round(energy_j / unit_j, 1)}
        return {"uptime": self.refreshes, ("emeters" if is_em else "meters"): [meter]}

    def _state(self, power_w: float) -> dict[str, Any]:
        state, reported = self._reported
        if self._reports_anew or round(power_w, 3) != state:
            reported = self.refreshes
        self._reported = (round(power_w, 3), reported)
        stamp = f"2026-01-01T00:{reported // 60 % 60:02d}:{reported % 60:02d}.{reported}+00:00"
        return {
            "entity_id": "sensor.plug_power",
            "state": str(round(power_w, 3)),
            "attributes": {"unit_of_measurement": "W", "device_class": "power"},
            "last_changed": stamp,
            "last_reported": stamp,
        }

    def serve(self, host: str, port: int, secret: str = "") -> HttpServer:
        return HttpServer(self, host, port, secret)


def tasmota_status(power_w: float, energy_j: float) -> dict[str, Any]:
    """Tasmota's Status 8: energy in kWh, three decimals; power in whole W."""
    energy = {"Total": round(energy_j / 3.6e6, 3), "Power": round(power_w), "Voltage": 230}
    return {"StatusSNS": {"Time": "2026-01-01T00:00:00", "ENERGY": energy}}


class HttpServer:
    """Serves a simulator; `secret` is the token, or `user:password`, that it asks for."""

    def __init__(self, simulator: HttpSimulator, host: str, port: int, secret: str) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                time.sleep(simulator.delay_s)
                path, challenge = self.path, ""
                if secret:
                    path, challenge = _admitted(simulator.profile, self, secret)
                answer = simulator.asked(f"GET {path}")
                if answer is None:
                    return
                label, body = answer
                if challenge:
                    label, body = "401 Unauthorized", b""
                self.send_response(int(label[:3]))
                if challenge:
                    self.send_header("WWW-Authenticate", challenge)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((host, port), Handler)
        self.address = f"http://{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _admitted(profile: str, request: BaseHTTPRequestHandler, secret: str) -> tuple[str, str]:
    """The path without a login, and the challenge where the login is not the right one."""
    given = request.headers.get("Authorization", "")
    if profile == "tasmota":
        path, _, login = request.path.partition("&user=")
        user, _, password = login.partition("&password=")
        right = f"{unquote(user)}:{unquote(password)}" == secret
        return path, "" if right else 'Basic realm="tasmota"'
    if profile == "home-assistant":
        return request.path, "" if given == f"Bearer {secret}" else "Bearer"
    if profile in ("shelly-switch", "shelly-em", "shelly-em1"):
        challenge = f'Digest qop="auth", realm="shelly", nonce="{_NONCE}", algorithm=SHA-256'
        return request.path, "" if _digest_fits(given, request.path, secret) else challenge
    right = given == "Basic " + base64.b64encode(secret.encode()).decode()
    return request.path, "" if right else 'Basic realm="shelly"'


_NONCE = "60dc59c6"


def _digest_fits(given: str, path: str, secret: str) -> bool:
    """RFC 7616, 3.4.1, from the side that checks it."""
    fields = dict(re.findall(r'(\w+)="?([^",]*)"?', given))
    user, password = secret.split(":")
    a1 = hashlib.sha256(f"{user}:shelly:{password}".encode()).hexdigest()
    a2 = hashlib.sha256(f"GET:{path}".encode()).hexdigest()
    text = f"{a1}:{_NONCE}:{fields.get('nc')}:{fields.get('cnonce')}:auth:{a2}"
    right = hashlib.sha256(text.encode()).hexdigest()
    return (fields.get("uri"), fields.get("username")) == (path, user) and (
        fields.get("response") == right
    )
