"""The wire to a meter on a network: HTTP, MQTT, SNMP, and instruments by VISA over TCP.

What a driver writes are lines, and they are what stream.raw keeps: `GET PATH`, `SUBSCRIBE TOPIC`,
`PUBLISH TOPIC PAYLOAD`, `GET OID…`, or SCPI. Secrets are read from their file at each opening,
added here, and so are in no recording. An answer that is not there in time is none; a host that
refuses, or is not there when the meter is opened (again), is an OSError, as a lost port is.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import queue
import socket
import ssl
import threading
from pathlib import Path
from typing import Any, cast

from contract.errors import AgentError
from contract.private import read_secret
from instrumentation.clock import monotonic_ns
from instrumentation.endpoints import OPEN_LIMIT_S, certificates_explained, endpoint, trusted
from instrumentation.http_transport import HttpTransport
from instrumentation.meters.answers import Answer, Answers, envelope
from instrumentation.meters.base import Meter
from instrumentation.meters.http import PROFILES
from instrumentation.meters.json_paths import value_at
from instrumentation.meters.mqtt import FRESH, RETAINED
from instrumentation.meters.networked import USUAL_LIMIT_S, AnswerError, document
from instrumentation.ports import PortError, form_of
from instrumentation.transports import QueryTransport, Transport

_LOOK_S = 5.0  # at what is not known yet
MOST_BLOCKED_S = 5.0  # a recorder tells its state more often


def opened(address: str, meter: Meter) -> Transport:
    """The wire to an address of the inventory. Raises OSError."""
    try:
        secret = read_secret(Path(meter.secret_file)) if meter.secret_file else ""
    except AgentError as error:
        raise PortError(errno.EACCES, str(error).rstrip(".")) from None
    form = form_of(address)
    limit_s = meter.answer_limit_s
    if form == "tcpip":
        blocked_s = min(max(USUAL_LIMIT_S, meter.period_s), MOST_BLOCKED_S)
        return VisaTransport(address, framed=meter.framed, limit_s=blocked_s)
    if form.startswith("http"):
        return HttpTransport(
            address, login=meter.login, secret=secret, ca_file=meter.ca_file, limit_s=limit_s
        )
    host, port, tls = endpoint(address)
    if form.startswith("mqtt"):
        return MqttTransport(
            host, port, trusted=trusted(meter.ca_file) if tls else None, secret=secret
        )
    return SnmpTransport(host, port, community=secret or "public", limit_s=limit_s)


def recognised(address: str) -> tuple[str, tuple[str, ...]]:
    """The profile of the plug or meter that answers HTTP at an address, and those of its channels
    that give a power: each profile's question is asked once, without a login. Raises OSError."""
    why = "it answers as none of the known devices"
    for name, profile in PROFILES.items():
        if "{entity}" in profile.path:
            continue  # only its owner knows which
        with contextlib.closing(
            HttpTransport(address, login=profile.login, limit_s=_LOOK_S)
        ) as wire:
            wire.write(f"GET {profile.path.format(id=0)}\n".encode("ascii"))
            answer = next(Answers().add(wire.read(_LOOK_S)[1], 0), None)
        if not isinstance(answer, Answer):
            continue
        if answer.label[:3] in ("401", "403"):
            why = "it wants a login"
        places = profile.places
        try:
            found = document(answer.body)
            own = [c for c, at in places.power.items() if value_at(found, at) is not None]
            places.reading(found, dict.fromkeys(own, ""), counter=False)
        except AnswerError as error:
            why = "it wants a login" if error.kind == "configuration" else why
            continue
        if own:
            return name, tuple(own)
    raise PortError(errno.ENODEV, why)


class MqttTransport:
    """A client of a broker; `secret` is `user:password`. A message's time is that of its end."""

    def __init__(
        self, host: str, port: int, *, trusted: ssl.SSLContext | None, secret: str
    ) -> None:
        from paho.mqtt import client as mqtt
        from paho.mqtt.enums import CallbackAPIVersion

        self._came: queue.SimpleQueue[tuple[int, bytes] | OSError] = queue.SimpleQueue()
        self._client = client = mqtt.Client(CallbackAPIVersion.VERSION2, reconnect_on_failure=False)
        client.connect_timeout = OPEN_LIMIT_S
        if secret:
            user, _, password = secret.partition(":")
            client.username_pw_set(user, password)
        if trusted is not None:
            client.tls_set_context(trusted)
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
        with certificates_explained():
            client.connect(host, port, keepalive=15)
        client.loop_start()
        if not answered.wait(OPEN_LIMIT_S):
            self.close()
            raise OSError(errno.ECONNREFUSED, "the broker is silent")
        if refused:
            self.close()
            what = f"the broker refuses ({refused[0]}): check secret_file"
            raise PortError(errno.ECONNREFUSED, what)

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


class SnmpTransport:
    """GET requests of SNMP version 2c; an answer is a JSON list of `[OID, type, value]`."""

    def __init__(self, host: str, port: int, *, community: str, limit_s: float) -> None:
        from pysnmp.hlapi.v3arch import asyncio as snmp

        self._snmp = snmp
        self._loop = asyncio.new_event_loop()
        self._engine = snmp.SnmpEngine()
        self._community = snmp.CommunityData(community, mpModel=1)
        self._asking: asyncio.Task[bytes] | None = None
        family = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0][0]
        kind = snmp.Udp6TransportTarget if family == socket.AF_INET6 else snmp.UdpTransportTarget
        self._target = self._loop.run_until_complete(
            kind.create((host, port), timeout=limit_s, retries=0)
        )

    def read(self, wait_s: float) -> tuple[int, bytes]:
        """See `Transport`."""
        waiting = (
            {self._asking} if self._asking else {self._loop.create_task(asyncio.sleep(wait_s))}
        )
        self._loop.run_until_complete(asyncio.wait(waiting, timeout=wait_s))
        if self._asking is None or not self._asking.done():
            return monotonic_ns(), b""
        asked, self._asking = self._asking, None
        return monotonic_ns(), asked.result()

    def write(self, data: bytes) -> None:
        """Ask; an earlier question without an answer is given up."""
        self._give_up()
        self._asking = self._loop.create_task(self._ask(data.decode("ascii").split()[1:]))

    async def _ask(self, oids: list[str]) -> bytes:
        """The answer, nothing where none came."""
        snmp = self._snmp
        wanted = [snmp.ObjectType(snmp.ObjectIdentity(oid)) for oid in oids]
        context = snmp.ContextData()
        failure, status, _, found = await snmp.get_cmd(
            self._engine, self._community, self._target, context, *wanted, lookupMib=False
        )
        if failure:
            return b""
        if status:
            return envelope(status.prettyPrint(), b"")
        values = [[str(oid), type(value).__name__, _plain(value)] for oid, value in found]
        return envelope("ok", json.dumps(values).encode())

    def _give_up(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            self._loop.run_until_complete(asyncio.wait({self._asking}))
            self._asking = None

    def close(self) -> None:
        self._give_up()
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

    def __init__(self, address: str, *, framed: bool, limit_s: float) -> None:
        super().__init__()
        import pyvisa

        self._errors = pyvisa.errors.VisaIOError
        self._timeout = pyvisa.constants.StatusCode.error_timeout
        self._framed = framed
        self._manager = pyvisa.ResourceManager("@py")
        try:
            self._instrument = cast(
                Any, self._manager.open_resource(address, open_timeout=round(1000 * OPEN_LIMIT_S))
            )
            if address.endswith("SOCKET"):
                self._check_connected()
        except OSError:
            self._manager.close()
            raise
        except Exception as error:  # noqa: BLE001 - it raises what has no class of its own
            self._manager.close()
            raise OSError(errno.ECONNREFUSED, _one_line(error)) from None
        self._instrument.timeout = round(1000 * limit_s)
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
