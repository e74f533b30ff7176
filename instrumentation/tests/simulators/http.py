"""The side of plugs that answer HTTP; what they answer is described in `meters.http`."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

from contract.strict_json import Document, Json
from instrumentation.tests.simulators.networked import NetworkSimulator

_QUERY = 'sum(power_watts{host="target"})'


class HttpSimulator(NetworkSimulator):
    """A device of one of the profiles. `period_s` of the settings is its refresh.

    `delay_s` is how long it takes for an answer on the network, byte by byte with `dribbles`.
    `challenge` is the login that it asks for, Digest's algorithm or `Basic`, and `opaque` what must
    come back with it. `errors` are what it reports, `output` whether it lets current through, and
    `elsewhere` an address that it sends everybody to. Of Home Assistant, a state that is
    the same as before is reported again only with `reports_anew`.
    """

    kind: ClassVar[str] = "http"

    def __init__(
        self,
        profile: str = "shelly-switch",
        *,
        counter: bool = False,
        delay_s: float = 0.0,
        challenge: str = "",
        opaque: str | None = None,
        reports_anew: bool = True,
        **display: float,
    ) -> None:
        self.profile = profile
        self.channels = ("a", "b", "c") if profile == "shelly-em" else ("0",)
        super().__init__(**display)
        self._counter = counter
        self.delay_s, self.dribbles = delay_s, False
        usual = "Basic" if profile.startswith(("shelly-gen1", "redfish")) else "SHA-256"
        self.challenge, self.opaque = challenge or usual, opaque
        self.errors: list[str] = []
        self.output = True
        self.elsewhere = ""
        self._reports_anew = reports_anew
        self._reported = (0.0, 0)  # the state and the number of its refresh

    @property
    def settings(self) -> Document:
        described: dict[str, dict[str, Json]] = {
            "home-assistant": {"entity": "sensor.plug_power"},
            "redfish": {"entity": "System.Embedded.1"},
            "prometheus": {"entity": _QUERY},
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
        document = self._document(unquote(path)) if verb == "GET" else None
        if document is None:
            return "404 Not Found", b"<html>no such page</html>"
        return "200 OK", json.dumps(document).encode()

    def _document(self, path: str) -> dict[str, Json] | None:  # noqa: PLR0911, PLR0912 - one a profile
        watts, joules = self.power_w, self.energy_j
        url = urlsplit(path)
        number = parse_qs(url.query).get("id")
        match self.profile, url.path:
            case "shelly-gen1" | "shelly-gen1-em", "/status":
                kind, unit_j = ("emeters", 3600) if self.profile.endswith("em") else ("meters", 60)
                meter: Document = {"power": round(watts[0], 2), "is_valid": True}
                total = round(joules[0] / unit_j, 1)
                return {"uptime": self.refreshes, kind: [{**meter, "total": total}]}
            case "shelly-switch", "/rpc/Switch.GetStatus" if number == ["0"]:
                return {"source": "init", "output": self.output, **self._metered()}
            case "shelly-pm1", "/rpc/PM1.GetStatus" if number == ["0"]:
                return self._metered()
            case "shelly-em", "/rpc/EM.GetStatus" if number == ["0"]:
                phases: Document = {
                    f"{n}_act_power": round(w, 3) for n, w in zip("abc", watts, strict=True)
                }
                errors = {"a_errors": self.errors} if self.errors else {}
                return {"id": 0, **phases, "total_act_power": round(sum(watts), 3), **errors}
            case "shelly-em1", "/rpc/EM1.GetStatus" if number == ["0"]:
                return {"id": 0, "voltage": 230.0, "act_power": round(watts[0], 1), "pf": 0.9}
            case "shelly-switch", "/rpc/Switch.Set" if number == ["0"]:
                before, self.output = self.output, "on=true" in url.query
                return {"was_on": before}
            case "shelly-gen1", "/relay/0":
                self.output = "turn=on" in url.query
                return {"ison": self.output, "source": "http"}
            case "tasmota", "/cm" if "cmnd=Power" in url.query:
                self.output = url.query.endswith(" On")
                return {"POWER": "ON" if self.output else "OFF"}
            case "tasmota", "/cm" if "cmnd=Status 8" in url.query:
                return tasmota_status(watts[0], joules[0])
            case "home-assistant", "/api/states/sensor.plug_power":
                return self._state(watts[0])
            case "redfish", "/redfish/v1/Chassis/System.Embedded.1/Power":
                control: Document = {"MemberId": "0", "PowerConsumedWatts": round(watts[0], 1)}
                return {"@odata.type": "#Power.v1_2_0.Power", "PowerControl": [control]}
            case "prometheus", "/api/v1/query" if parse_qs(url.query) == {"query": [_QUERY]}:
                sample: Document = {"metric": {}, "value": [self.refreshes, f"{watts[0]:.1f}"]}
                vector: Document = {"resultType": "vector", "result": [sample]}
                return {"status": "success", "data": vector}
            case "generic", "/data":
                reading: Document = {"power": round(watts[0], 3), "energy": joules[0] / 3600}
                return {"n": self.refreshes, "meter": reading}
        return None

    def _metered(self) -> dict[str, Json]:
        total: Document = {
            "total": round(self.energy_j[0] / 3600, 3),
            "by_minute": [0.0],
            "minute_ts": 0,
        }
        errors = {"errors": self.errors} if self.errors else {}
        return {"id": 0, "apower": round(self.power_w[0], 1), "aenergy": total, **errors}

    def _state(self, power_w: float) -> dict[str, Json]:
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

    def serve(
        self, host: str, port: int, secret: str = "", tls: ssl.SSLContext | None = None
    ) -> HttpServer:
        return HttpServer(self, host, port, secret, tls)


def tasmota_status(power_w: float, energy_j: float) -> dict[str, Json]:
    """Tasmota's Status 8: energy in kWh, three decimals; power in whole W."""
    energy = {"Total": round(energy_j / 3.6e6, 3), "Power": round(power_w), "Voltage": 230}
    return {"StatusSNS": {"Time": "2026-01-01T00:00:00", "ENERGY": energy}}


class HttpServer:
    """Serves a simulator; `secret` is the token, or `user:password`, that it asks for."""

    def __init__(
        self,
        simulator: HttpSimulator,
        host: str,
        port: int,
        secret: str,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                delay_s, dribbles = simulator.delay_s, simulator.dribbles
                time.sleep(0 if dribbles else delay_s)
                path, challenge = self.path, ""
                if secret:
                    path, challenge = _admitted(simulator, self, secret)
                answer = simulator.asked(f"GET {path}")
                if answer is None:
                    return
                label, body = answer
                if challenge:
                    label, body = "401 Unauthorized", b""
                if simulator.elsewhere:
                    label, body = "301 Moved Permanently", b""
                self.send_response(int(label[:3]))
                if simulator.elsewhere:
                    self.send_header("Location", simulator.elsewhere + self.path)
                if challenge:
                    self.send_header("WWW-Authenticate", challenge)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(OSError):  # nobody waits for it any more
                    for byte in body if dribbles else ():
                        time.sleep(delay_s)
                        self.wfile.write(bytes([byte]))
                    self.wfile.write(b"" if dribbles else body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((host, port), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.address = f"{scheme}://{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _admitted(
    simulator: HttpSimulator, request: BaseHTTPRequestHandler, secret: str
) -> tuple[str, str]:
    """Return the path without a login, and the challenge where the login is not the right one."""
    authorization = request.headers.get("Authorization", "")
    if simulator.profile == "tasmota":
        path, _, login = request.path.partition("&user=")
        user, _, password = login.partition("&password=")
        right = f"{unquote(user)}:{unquote(password)}" == secret
        return path, "" if right else 'Basic realm="tasmota"'
    if simulator.profile == "home-assistant":
        return request.path, "" if authorization == f"Bearer {secret}" else "Bearer"
    if simulator.challenge == "Basic":
        right = authorization == "Basic " + base64.b64encode(secret.encode()).decode()
        return request.path, "" if right else 'Basic realm="shelly"'
    challenge = f'Digest qop="auth", realm="shelly", nonce="{_NONCE}"'
    challenge += f", algorithm={simulator.challenge}"
    challenge += "" if simulator.opaque is None else f', opaque="{simulator.opaque}"'
    right = _digest_fits(authorization, request.path, secret, simulator)
    return request.path, "" if right else challenge


_NONCE = "60dc59c6"


def _digest_fits(authorization: str, path: str, secret: str, simulator: HttpSimulator) -> bool:
    """RFC 7616, 3.4.1, from the side that checks it; as strict as the strictest firmware."""
    fields = dict(re.findall(r'(\w+)="?([^",]*)"?', authorization))
    user, password = secret.split(":")

    def hashed(*parts: str) -> str:
        name = simulator.challenge.replace("-", "").lower()
        return hashlib.new(name, ":".join(parts).encode()).hexdigest()

    a1, a2 = hashed(user, "shelly", password), hashed("GET", path)
    wanted = {
        "username": user,
        "uri": path,
        "nc": "00000001",
        "response": hashed(a1, _NONCE, "00000001", fields.get("cnonce", ""), "auth", a2),
    }
    if simulator.opaque is not None:
        wanted["opaque"] = simulator.opaque
    return wanted.items() <= fields.items()
