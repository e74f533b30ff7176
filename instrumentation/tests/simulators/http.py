"""Simulator of plugs that answer HTTP; their answers are described in `meters.http`."""

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
from typing import Any, ClassVar
from urllib.parse import unquote

from contract import schema
from contract.strict_json import Document, Json
from instrumentation.meters.http import Settings
from instrumentation.tests.simulators.networked import NetworkSimulator


class HttpSimulator(NetworkSimulator):
    """A device of one of the profiles. `period_s` of the settings is its refresh.

    `delay_s` is how long it takes for an answer on the network, byte by byte with `dribbles`.
    `challenge` is the login that it asks for, Digest's algorithm or `Basic`, and `opaque` what must
    come back with it. `elsewhere` is an address that it sends everybody to. A reading that names
    itself has another name for the same power only with `reports_anew`.
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
        usual = "Basic" if profile.startswith("shelly-gen1") else "SHA-256"
        self.challenge, self.opaque = challenge or usual, opaque
        self.elsewhere = ""
        self._reports_anew = reports_anew
        self._reported: tuple[list[float], int] = ([], 0)  # powers and the number of their refresh
        self._device = schema.read(Settings, self.settings).device

    @property
    def settings(self) -> Document:
        described: dict[str, dict[str, Json]] = {
            "home-assistant": {"entity": "sensor.plug_power", "averaged_s": self.refresh_s},
            "generic": {
                "path": "/data?what=all",
                "power": "/meter/power",
                "energy": "/meter/energy",
                "stamp": "/n",
                "averaged_s": self.refresh_s,
                "power_unit_w": 1,
                "energy_unit_j": 3600,
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
        if self.broken:
            return "503 Service Unavailable", b"busy"
        if request.strip() != f"GET {self._device.path}":
            return "404 Not Found", b"<html>no such page</html>"
        return "200 OK", json.dumps(self._document()).encode()

    def _document(self) -> Any:
        """Return a document of the profile; test_networked checks its form."""
        device, places = self._device, self._device.places
        step_w = max(self.step_w, device.resolution_w)
        watts = [round(power_w / step_w) * step_w for power_w in self.power_w]
        if self._reports_anew or watts != self._reported[0]:
            self._reported = watts, self.refreshes
        figures: dict[str, Json] = {place: str(self._reported[1]) for place in places.stamps[:1]}
        for key, power_w, energy_j in zip(self.channels, watts, self.energy_j, strict=True):
            figures[places.power[key]] = round(power_w, 3)
            if key in places.energy:
                figures[places.energy[key]] = energy_j / places.energy_unit_j
            if key in device.valid:
                figures[device.valid[key]] = True
        if device.unit:
            figures[device.unit] = "W"
        document: Any = None
        for pointer, value in figures.items():
            document = put(document, pointer.split("/")[1:], value)
        return document

    def serve(
        self, host: str, port: int, secret: str = "", tls: ssl.SSLContext | None = None
    ) -> HttpServer:
        return HttpServer(self, host, port, secret, tls)


def put(document: Any, tokens: list[str], value: Json) -> Any:
    """Return a document with a value at the tokens of a JSON Pointer."""
    if not tokens:
        return value
    token, *further = tokens
    if token.isdecimal():
        entries = [*(document or []), *[None] * (int(token) + 1)][: int(token) + 1]
        entries[int(token)] = put(entries[int(token)], further, value)
        return entries
    return {**(document or {}), token: put((document or {}).get(token), further, value)}


class HttpServer:
    """An HTTP server of a simulator; `secret` is the required token or `user:password`."""

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
    """Return the path without a login, and the challenge if the login is wrong."""
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
    """Return whether a Digest answer is right (RFC 7616, 3.4.1), as strictly as any firmware."""
    fields = dict(re.findall(r'(\w+)="?([^",]*)"?', authorization))
    user, password = secret.split(":")

    def hashed(*parts: str) -> str:
        name = simulator.challenge.replace("-", "").lower()
        return hashlib.new(name, ":".join(parts).encode()).hexdigest()

    a1, a2 = hashed(user, "shelly", password), hashed("GET", path)
    expected = {
        "username": user,
        "uri": path,
        "nc": "00000001",
        "response": hashed(a1, _NONCE, "00000001", fields.get("cnonce", ""), "auth", a2),
    }
    if simulator.opaque is not None:
        expected["opaque"] = simulator.opaque
    return expected.items() <= fields.items()
