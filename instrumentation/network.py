"""The wire to a meter on a network: HTTP, MQTT, SNMP, and instruments by VISA over TCP.

What a driver writes are lines, and they are what stream.raw keeps: `GET PATH`, `SUBSCRIBE TOPIC`,
`PUBLISH TOPIC PAYLOAD`, `GET OID…`, or SCPI. Secrets are read from their file at each opening,
added here, and so are in no recording. An answer that is not there in time is none; a host that
refuses, or is not there when the meter is opened (again), is an OSError, as a lost port is.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import hashlib
import http.client
import json
import os
import queue
import socket
import ssl
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast
from urllib.parse import quote, urlsplit
from urllib.request import parse_http_list, parse_keqv_list

from contract.errors import AgentError
from contract.private import read_secret
from instrumentation.clock import monotonic_ns
from instrumentation.meters.answers import MOST_BODY_BYTES, Answer, Answers, envelope
from instrumentation.meters.base import Meter
from instrumentation.meters.http import PROFILES
from instrumentation.meters.json_paths import value_at
from instrumentation.meters.mqtt import FRESH, RETAINED
from instrumentation.meters.networked import AnswerError, document
from instrumentation.ports import PortError, form_of
from instrumentation.transports import QueryTransport, Transport

ANSWER_LIMIT_S = 2.0
_ANSWER_LIMIT_MS = round(ANSWER_LIMIT_S * 1000)
_USUAL_PORTS = {"http": 80, "https": 443, "mqtt": 1883, "mqtts": 8883, "snmp": 161}
_UNAUTHORIZED = 401


def opened(address: str, meter: Meter) -> Transport:
    """The wire to an address of the inventory. Raises OSError."""
    try:
        secret = read_secret(Path(meter.secret_file)) if meter.secret_file else ""
    except AgentError as error:
        raise PortError(errno.EACCES, str(error).rstrip(".")) from None
    form = form_of(address)
    if form == "tcpip":
        return VisaTransport(address, framed=meter.framed)
    if form.startswith("http"):
        return HttpTransport(address, login=meter.login, secret=secret)
    host, port, tls = _endpoint(address)
    if form.startswith("mqtt"):
        return MqttTransport(host, port, tls=tls, secret=secret)
    return SnmpTransport(host, port, community=secret or "public")


def _endpoint(address: str) -> tuple[str, int, bool]:
    """Host and port of a URL, and whether it is one of TLS."""
    url = urlsplit(address)
    return url.hostname or "", url.port or _USUAL_PORTS[url.scheme], url.scheme.endswith("s")


def recognised(address: str) -> tuple[str, tuple[str, ...]]:
    """The profile of the plug or meter that answers HTTP at an address, and those of its channels
    that give a power: each profile's question is asked once, without a login. Raises OSError."""
    why = "it answers as none of the known devices"
    for name, profile in PROFILES.items():
        if "{entity}" in profile.path:
            continue  # only its owner knows which
        with contextlib.closing(HttpTransport(address, login=profile.login, secret="")) as wire:
            wire.write(f"GET {profile.path.format(id=0)}\n".encode("ascii"))
            answer = next(Answers().add(wire.read(ANSWER_LIMIT_S)[1], 0), None)
        if not isinstance(answer, Answer):
            continue
        if answer.label[:3] in ("401", "403"):
            why = "it wants a login"
        places = profile.places
        with contextlib.suppress(AnswerError):
            found = document(answer.body)
            own = [c for c, at in places.power.items() if value_at(found, at) is not None]
            places.reading(found, dict.fromkeys(own, ""), counter=False)
            if own:
                return name, tuple(own)
    raise PortError(errno.ENODEV, why)


class HttpTransport(QueryTransport):
    """One request, one connection: small devices have few."""

    _answers_all: ClassVar[bool] = True

    def __init__(self, address: str, *, login: str, secret: str) -> None:
        super().__init__()
        self._login, self._secret = login, secret
        self._path = ""
        host, port, is_tls = _endpoint(address)
        connect = partial(http.client.HTTPConnection, host, port, timeout=ANSWER_LIMIT_S)
        self._connect: Callable[[], http.client.HTTPConnection] = connect
        tls = ssl.create_default_context() if is_tls else None
        with socket.create_connection((host, port), ANSWER_LIMIT_S) as connection:
            if tls is not None:  # a certificate that does not fit is found here
                tls.wrap_socket(connection, server_hostname=host).close()
                self._connect = partial(
                    http.client.HTTPSConnection, host, port, timeout=ANSWER_LIMIT_S, context=tls
                )

    def _put(self, message: bytes) -> None:
        self._path = message.decode("ascii").strip().removeprefix("GET ")

    def _get(self) -> bytes:
        try:
            response, body = self._request({})
            challenge = response.getheader("WWW-Authenticate", "")
            wanted = response.status == _UNAUTHORIZED and challenge.lower().startswith("digest ")
            if wanted and self._secret and self._login == "digest":
                response, body = self._request({"Authorization": self._digest(challenge)})
        except http.client.HTTPException as error:
            return envelope(f"no HTTP: {type(error).__name__}", b"")
        return envelope(f"{response.status} {response.reason}", body)

    def _request(self, headers: dict[str, str]) -> tuple[http.client.HTTPResponse, bytes]:
        path = self._path
        if self._secret and self._login == "bearer":
            headers["Authorization"] = f"Bearer {self._secret}"
        elif self._secret and self._login == "basic":
            login = base64.b64encode(self._secret.encode()).decode("ascii")
            headers["Authorization"] = f"Basic {login}"
        elif self._secret and self._login == "tasmota":
            user, _, password = self._secret.partition(":")
            path += f"&user={quote(user, safe='')}&password={quote(password, safe='')}"
        with contextlib.closing(self._connect()) as connection:
            encoded = {name: text.encode() for name, text in headers.items()}
            connection.request("GET", path, headers={"Connection": "close", **encoded})
            response = connection.getresponse()
            return response, response.read(MOST_BODY_BYTES)

    def _digest(self, challenge: str) -> str:
        """RFC 7616 with SHA-256 and `auth`, as Shelly's second generation wants it."""
        given = parse_keqv_list(parse_http_list(challenge[len("digest ") :]))
        user, _, password = self._secret.partition(":")
        realm, nonce, count = given.get("realm", ""), given.get("nonce", ""), "00000001"
        own = os.urandom(8).hex()

        def hashed(*parts: str) -> str:
            return hashlib.sha256(":".join(parts).encode()).hexdigest()

        answer = hashed(
            hashed(user, realm, password), nonce, count, own, "auth", hashed("GET", self._path)
        )
        return (
            f'Digest username="{user}", realm="{realm}", nonce="{nonce}", uri="{self._path}", '
            f'algorithm=SHA-256, response="{answer}", qop=auth, nc={count}, cnonce="{own}"'
        )

    def close(self) -> None:
        pass


class MqttTransport:
    """A client of a broker; `secret` is `user:password`. A message's time is that of its end."""

    def __init__(self, host: str, port: int, *, tls: bool, secret: str) -> None:
        from paho.mqtt import client as mqtt
        from paho.mqtt.enums import CallbackAPIVersion

        self._came: queue.SimpleQueue[tuple[int, bytes] | OSError] = queue.SimpleQueue()
        self._client = client = mqtt.Client(CallbackAPIVersion.VERSION2, reconnect_on_failure=False)
        client.connect_timeout = ANSWER_LIMIT_S
        if secret:
            user, _, password = secret.partition(":")
            client.username_pw_set(user, password)
        if tls:
            client.tls_set()
        answered = threading.Event()
        refused: list[str] = []

        def on_connect(_: object, __: object, ___: object, reason: Any, ____: object) -> None:
            if reason.is_failure:
                refused.append(str(reason))
            answered.set()

        def on_disconnect(*_: object) -> None:
            self._came.put(OSError(errno.ECONNRESET, "the broker closed the connection"))

        def on_subscribe(_: object, __: object, ___: object, reasons: Any, ____: object) -> None:
            for reason in reasons:
                if reason.is_failure:
                    self._came.put(OSError(errno.EACCES, f"the broker refuses the topic: {reason}"))

        def on_message(_: object, __: object, message: mqtt.MQTTMessage) -> None:
            kind = RETAINED if message.retain else FRESH
            self._came.put((monotonic_ns(), envelope(kind + message.topic, bytes(message.payload))))

        client.on_connect, client.on_disconnect = on_connect, on_disconnect
        client.on_subscribe, client.on_message = on_subscribe, on_message
        client.connect(host, port, keepalive=15)
        client.loop_start()
        if not answered.wait(ANSWER_LIMIT_S) or refused:
            self.close()
            why = f"the broker refuses: {refused[0]}" if refused else "the broker is silent"
            raise PortError(errno.ECONNREFUSED, why)

    def read(self, wait_s: float) -> tuple[int, bytes]:
        """See `Transport`."""
        try:
            came = self._came.get(timeout=wait_s) if wait_s else self._came.get_nowait()
        except queue.Empty:
            return monotonic_ns(), b""
        if isinstance(came, OSError):
            raise came
        return came

    def write(self, data: bytes) -> None:
        for line in data.decode().splitlines():
            verb, _, rest = line.partition(" ")
            topic, _, payload = rest.partition(" ")
            if verb == "SUBSCRIBE":
                self._client.subscribe(topic)
            else:
                self._client.publish(topic, payload)

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._client.disconnect()
        self._client.loop_stop()


class SnmpTransport(QueryTransport):
    """GET requests of SNMP version 2c; an answer is a JSON list of `[OID, type, value]`."""

    _answers_all: ClassVar[bool] = True

    def __init__(self, host: str, port: int, *, community: str) -> None:
        super().__init__()
        from pysnmp.hlapi.v3arch import asyncio as snmp

        self._snmp = snmp
        self._loop = asyncio.new_event_loop()
        self._engine = snmp.SnmpEngine()
        self._community = snmp.CommunityData(community, mpModel=1)
        self._oids: list[str] = []
        family = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0][0]
        kind = snmp.Udp6TransportTarget if family == socket.AF_INET6 else snmp.UdpTransportTarget
        self._target = self._loop.run_until_complete(
            kind.create((host, port), timeout=ANSWER_LIMIT_S, retries=0)
        )

    def _put(self, message: bytes) -> None:
        self._oids = message.decode("ascii").split()[1:]

    def _get(self) -> bytes:
        snmp = self._snmp
        wanted = [snmp.ObjectType(snmp.ObjectIdentity(oid)) for oid in self._oids]
        failure, status, _, found = self._loop.run_until_complete(
            snmp.get_cmd(
                self._engine,
                self._community,
                self._target,
                snmp.ContextData(),
                *wanted,
                lookupMib=False,
            )
        )
        if failure:
            raise TimeoutError(str(failure))
        if status:
            return envelope(status.prettyPrint(), b"")
        values = [[str(oid), type(value).__name__, _plain(value)] for oid, value in found]
        return envelope("ok", json.dumps(values).encode())

    def close(self) -> None:
        self._engine.close_dispatcher()
        self._loop.run_until_complete(asyncio.sleep(0))  # what it cancelled ends
        self._loop.close()


def _plain(value: Any) -> int | str | None:
    """A number where it is one, else its text; None where the agent has nothing there."""
    try:
        return int(value)
    except (TypeError, ValueError):
        pass
    return str(value) if len(value) else None


class VisaTransport(QueryTransport):
    """An instrument by PyVISA-py, which needs no maker's library; a line that ends in `?` is a
    query. `framed` answers are put into envelopes.
    """

    def __init__(self, address: str, *, framed: bool) -> None:
        super().__init__()
        import pyvisa

        self._errors = pyvisa.errors.VisaIOError
        self._timeout = pyvisa.constants.StatusCode.error_timeout
        self._framed = framed
        self._manager = pyvisa.ResourceManager("@py")
        try:
            self._instrument = cast(
                Any, self._manager.open_resource(address, open_timeout=_ANSWER_LIMIT_MS)
            )
            if address.endswith("SOCKET"):
                self._check_connected()
        except OSError:
            self._manager.close()
            raise
        except Exception as error:  # noqa: BLE001 - it raises what has no class of its own
            self._manager.close()
            raise PortError(errno.ECONNREFUSED, _one_line(error)) from None
        self._instrument.timeout = _ANSWER_LIMIT_MS
        self._instrument.read_termination = "\n"

    def _check_connected(self) -> None:
        """Raises OSError where the host refused, of which PyVISA-py takes no notice."""
        session = self._manager.visalib.sessions[self._instrument.session]  # type: ignore[attr-defined]
        number = session.interface.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise OSError(number, os.strerror(number))

    def _put(self, message: bytes) -> None:
        try:
            self._instrument.write_raw(message)
        except self._errors as error:
            raise OSError(errno.EIO, _one_line(error)) from None

    def _get(self) -> bytes:
        try:
            line: bytes = self._instrument.read_raw()
        except self._errors as error:
            if error.error_code == self._timeout:
                raise TimeoutError(_one_line(error)) from None
            raise OSError(errno.EIO, _one_line(error)) from None
        return envelope("ok", line.rstrip(b"\r\n")) if self._framed else line

    def close(self) -> None:
        with contextlib.suppress(self._errors, OSError):
            self._instrument.close()
            self._manager.close()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
