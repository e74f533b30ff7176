"""The wire to a meter on a network: HTTP, MQTT, SNMP, IPMI, and instruments by VISA over TCP.

What a driver writes are lines, and they are what stream.raw keeps: `GET PATH`, `SUBSCRIBE TOPIC`,
`PUBLISH TOPIC PAYLOAD`, `GET OID…`, ipmitool's commands, or SCPI. Secrets are read from their file
at each opening, added here, and so are in no recording. An answer that is not there in time is
none; a host that refuses, or is not there when the meter is opened (again), is an OSError, as a
lost port is.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import queue
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from contract import system_text
from contract.errors import AgentError
from contract.private import read_secret
from instrumentation.clock import monotonic_ns
from instrumentation.endpoints import (
    OPEN_LIMIT_S,
    certificates_explained,
    endpoint,
    missing_explained,
    trusted,
)
from instrumentation.meters.answers import MOST_BODY_BYTES, Answer, Answers, envelope
from instrumentation.meters.base import Meter
from instrumentation.meters.http import PROFILES
from instrumentation.meters.json_paths import value_at
from instrumentation.meters.mqtt import FRESH, RETAINED
from instrumentation.meters.networked import USUAL_LIMIT_S, AnswerError, document
from instrumentation.ports import PortError, form_of
from instrumentation.transports import QueryTransport, Transport

_LOOK_S = 5.0  # at what is not known yet
_MOST_WAITING = 256  # messages that came and are not read yet
_MOST_PACKET_BYTES = 2 * MOST_BODY_BYTES  # a topic and a payload
_JOIN_S = 0.5
MOST_BLOCKED_S = 5.0  # a recorder tells its state more often


def opened(address: str, meter: Meter) -> Transport:
    """Return the wire to an address of the inventory.

    Raises OSError.
    """
    try:
        secret = read_secret(Path(meter.secret_file)) if meter.secret_file else ""
    except AgentError as error:
        raise PortError(errno.EACCES, str(error).rstrip(".")) from None
    form = form_of(address)
    limit_s = meter.answer_limit_s
    blocked_s = min(max(USUAL_LIMIT_S, meter.period_s), MOST_BLOCKED_S)
    if form == "tcpip":
        return VisaTransport(address, framed=meter.framed, limit_s=blocked_s)
    if form.startswith("http"):
        with missing_explained("plugs"):
            from instrumentation.http_transport import HttpTransport
        return HttpTransport(
            address, login=meter.login, secret=secret, ca_file=meter.ca_file, limit_s=limit_s
        )
    host, port, tls = endpoint(address)
    if form == "ipmi":
        return IpmiTransport(host, port, secret=secret, limit_s=blocked_s)
    if form.startswith("mqtt"):
        return MqttTransport(
            host, port, trusted=trusted(meter.ca_file) if tls else None, secret=secret
        )
    return SnmpTransport(host, port, community=secret or "public", limit_s=limit_s)


def recognised(address: str) -> tuple[str, tuple[str, ...]]:
    """Return the profile of a plug that answers HTTP at an address, and its channels.

    Each profile's question is asked once, without a login; channels are those that give a power.
    Raises OSError.
    """
    with missing_explained("plugs"):
        from instrumentation.http_transport import HttpTransport
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
            content = document(answer.body)
            keys = [c for c, at in places.power.items() if value_at(content, at) is not None]
            places.reading(content, dict.fromkeys(keys, ""), counter=False)
        except AnswerError as error:
            why = "it wants a login" if error.kind == "configuration" else why
            continue
        if keys:
            return name, tuple(keys)
    raise PortError(errno.ENODEV, why)


class MqttTransport:
    """A client of a broker; `secret` is `user:password`. A message's time is that of its end.

    A broker that sends more than is read, or what was not asked for, is left: an OSError.
    """

    def __init__(
        self, host: str, port: int, *, trusted: ssl.SSLContext | None, secret: str
    ) -> None:
        with missing_explained("plugs"):
            from paho.mqtt import client as mqtt
            from paho.mqtt.enums import CallbackAPIVersion

        class BoundedClient(mqtt.Client):
            """A client that accepts no packet that this meter's broker has no reason to send."""

            def _sock_recv(self, bufsize: int) -> bytes:
                command = self._in_packet["command"]
                is_acknowledged = command & 0xF0 == mqtt.PUBLISH and command & 0b110
                if bufsize > _MOST_PACKET_BYTES or is_acknowledged:
                    raise ConnectionError("a packet that was not asked for")
                return bytes(super()._sock_recv(bufsize))

        self._came: queue.Queue[tuple[int, bytes]] = queue.Queue(_MOST_WAITING)
        self._failure: OSError | None = None
        self._client = client = BoundedClient(
            CallbackAPIVersion.VERSION2, reconnect_on_failure=False
        )
        client.connect_timeout = OPEN_LIMIT_S
        if secret:
            user, _, password = secret.partition(":")
            client.username_pw_set(user, password)
        if trusted is not None:
            client.tls_set_context(trusted)
        answered = threading.Event()
        refused: list[str] = []

        def fail(number: int, reason: str) -> None:
            self._failure = self._failure or OSError(number, reason)

        def on_connect(_: object, __: object, ___: object, reason: Any, ____: object) -> None:
            if reason.is_failure:
                refused.append(str(reason))
            answered.set()

        def on_disconnect(*_: object) -> None:
            fail(errno.ECONNRESET, "the broker closed the connection")

        def on_subscribe(_: object, __: object, ___: object, reasons: Any, ____: object) -> None:
            for reason in reasons:
                if reason.is_failure:
                    fail(errno.EACCES, f"the broker refuses the topic: {reason}")

        def on_message(_: object, __: object, message: mqtt.MQTTMessage) -> None:
            kind = RETAINED if message.retain else FRESH
            came = monotonic_ns(), envelope(kind + _topic(message), bytes(message.payload))
            try:
                if self._failure is None:
                    self._came.put_nowait(came)
            except queue.Full:
                fail(errno.ENOBUFS, "the broker sends more than any meter")
                client.disconnect()

        client.on_connect, client.on_disconnect = on_connect, on_disconnect
        client.on_subscribe, client.on_message = on_subscribe, on_message
        with certificates_explained():
            client.connect(host, port, keepalive=15)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        if not answered.wait(OPEN_LIMIT_S):
            self.close()
            raise OSError(errno.ECONNREFUSED, "the broker is silent")
        if refused:
            self.close()
            what = f"the broker refuses ({refused[0]}): check secret_file"
            raise PortError(errno.ECONNREFUSED, what)

    def _listen(self) -> None:
        try:
            self._client.loop_forever()
        except Exception as error:  # noqa: BLE001 - the library's parser raises what it meets
            self._failure = self._failure or OSError(errno.EPROTO, _one_line(error))

    def read(self, wait_s: float) -> tuple[int, bytes]:
        """See `Transport`."""
        with contextlib.suppress(queue.Empty):
            return self._came.get(timeout=wait_s) if wait_s else self._came.get_nowait()
        if self._failure is not None:
            raise self._failure
        return monotonic_ns(), b""

    def write(self, data: bytes) -> None:
        for line in data.decode().splitlines():
            verb, _, rest = line.partition(" ")
            topic, _, payload = rest.partition(" ")
            if verb == "SUBSCRIBE":
                self._client.subscribe(topic)
            else:
                self._client.publish(topic, payload)

    def close(self) -> None:
        """Leave the broker, also one that takes nothing more."""
        wire = self._client.socket()
        with contextlib.suppress(OSError, ValueError):
            self._client.disconnect()
        self._thread.join(_JOIN_S)
        with contextlib.suppress(OSError, AttributeError):
            wire.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]


def _topic(message: Any) -> str:
    """Return the topic of a message.

    Empty where it is no text, and so not what was subscribed to.
    """
    try:
        return str(message.topic)
    except UnicodeDecodeError:
        return ""


class SnmpTransport:
    """Requests of SNMP version 2c: `GET OID…`, or `SET OID NUMBER`.

    An answer is a JSON list of `[OID, type, value]`.
    """

    def __init__(self, host: str, port: int, *, community: str, limit_s: float) -> None:
        with missing_explained("plugs"):
            from pysnmp.hlapi.v3arch import asyncio as snmp

        self._snmp = snmp
        self._loop = asyncio.new_event_loop()
        self._broken = ""  # why the library's wire cannot be used any more
        self._loop.set_exception_handler(self._note)
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
        if self._broken:
            raise OSError(errno.EPROTO, self._broken)
        if self._asking is None or not self._asking.done():
            return monotonic_ns(), b""
        asked, self._asking = self._asking, None
        return monotonic_ns(), asked.result()

    def _note(self, _: object, context: Mapping[str, Any]) -> None:
        """Keep what no task of ours raised: a datagram that the library could not read."""
        self._broken = _one_line(context.get("exception") or context["message"])

    def write(self, data: bytes) -> None:
        """Ask; an earlier question without an answer is given up."""
        self._give_up()
        self._asking = self._loop.create_task(self._ask(*data.decode("ascii").split()))

    async def _ask(self, verb: str, *words: str) -> bytes:
        """Return the answer, nothing where none came."""
        try:
            return await self._answer(verb, words)
        except Exception as error:  # noqa: BLE001 - the library's parser raises what it meets
            return envelope(f"what cannot be read ({type(error).__name__})", b"")

    async def _answer(self, verb: str, words: Sequence[str]) -> bytes:
        snmp = self._snmp
        if verb == "SET":
            value = snmp.Integer32(int(words[1]))
            wanted = [snmp.ObjectType(snmp.ObjectIdentity(words[0]), value)]
        else:
            wanted = [snmp.ObjectType(snmp.ObjectIdentity(oid)) for oid in words]
        context = snmp.ContextData()
        command = snmp.set_cmd if verb == "SET" else snmp.get_cmd
        failure, status, _, bindings = await command(
            self._engine, self._community, self._target, context, *wanted, lookupMib=False
        )
        if failure:
            return b""
        if status:
            return envelope(status.prettyPrint(), b"")
        values = [[str(oid), type(value).__name__, _plain(value)] for oid, value in bindings]
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
    """Return a number where it is one, else its text; None where the agent has nothing there."""
    try:
        return int(value)
    except (TypeError, ValueError):
        pass
    return str(value) if len(value) else None


class IpmiTransport(QueryTransport):
    """Commands of ipmitool by IPMI 2.0 (`lanplus`); `secret` is `user:password`.

    The password is in the program's environment, not on its command line.
    """

    _answers_all = True

    def __init__(self, host: str, port: int, *, secret: str, limit_s: float) -> None:
        super().__init__()
        if shutil.which("ipmitool") is None:
            raise PortError(errno.ENOPKG, "the program ipmitool is missing: install its package")
        user, _, password = secret.partition(":")
        self._argv = ["ipmitool", "-I", "lanplus", "-H", host, "-p", str(port), "-U", user, "-E"]
        self._environment = {**os.environ, "LC_ALL": "C", "IPMITOOL_PASSWORD": password}
        self._limit_s = limit_s

    def _put(self, message: bytes) -> None:
        self._message = message.decode("ascii").split()

    def _get(self) -> bytes:
        try:
            done = subprocess.run(
                [*self._argv, *self._message],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        if done.returncode:
            return envelope(_one_line(system_text.decode(done.stderr)), b"")
        return envelope("ok", done.stdout)

    def close(self) -> None:
        """Nothing stays open between two questions."""


class VisaTransport(QueryTransport):
    """An instrument under its VISA name; a line that ends in `?` is a query.

    `framed` answers are put into envelopes. A socket is read here; an instrument that wants VXI-11
    or HiSLIP (`INSTR`) by PyVISA-py, which needs no maker's library. An answer that has not ended
    after `limit_s`, or is longer than is kept, ends the connection: its rest would be the next one.
    """

    def __init__(self, address: str, *, framed: bool, limit_s: float = USUAL_LIMIT_S) -> None:
        super().__init__()
        self._framed = framed
        _, host, *port, kind = address.split("::")
        self._wire: _LineSocket | _Instrument
        if kind == "SOCKET":
            self._wire = _LineSocket(host, int(port[0]), limit_s)
        else:
            self._wire = _Instrument(address, limit_s)

    def _put(self, message: bytes) -> None:
        self._wire.write(message)

    def _get(self) -> bytes:
        line = self._wire.read()
        return envelope("ok", line.rstrip(b"\r\n")) if self._framed else line

    def close(self) -> None:
        self._wire.close()


class _LineSocket:
    """A plain socket on which each answer is a line."""

    def __init__(self, host: str, port: int, limit_s: float) -> None:
        self._limit_s = limit_s
        self._rest = b""  # what came behind the end of an answer
        self._socket = socket.create_connection((host, port), OPEN_LIMIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def write(self, message: bytes) -> None:
        self._socket.settimeout(self._limit_s)
        self._socket.sendall(message)

    def read(self) -> bytes:
        """Return the next line with its end.

        Raises TimeoutError where nothing came, other OSErrors.
        """
        until_ns = monotonic_ns() + round(self._limit_s * 1e9)
        parts, count = [self._rest], len(self._rest)
        while b"\n" not in parts[-1]:
            if count > MOST_BODY_BYTES:
                raise OSError(errno.EMSGSIZE, "an answer without an end")
            try:
                self._socket.settimeout(max((until_ns - monotonic_ns()) / 1e9, 1e-3))
                parts.append(self._socket.recv(MOST_BODY_BYTES))
            except TimeoutError:
                if not count:
                    raise
                raise OSError(errno.ECONNRESET, "half an answer came") from None
            if not parts[-1]:
                raise OSError(errno.ECONNRESET, "the instrument closed the connection")
            count += len(parts[-1])
            if monotonic_ns() > until_ns and b"\n" not in parts[-1]:
                raise OSError(errno.ECONNRESET, "an answer took too long")
        line, _, self._rest = b"".join(parts).partition(b"\n")
        return line + b"\n"

    def close(self) -> None:
        self._socket.close()


class _Instrument:
    """An instrument of PyVISA-py."""

    def __init__(self, address: str, limit_s: float) -> None:
        with missing_explained("lan"):
            import pyvisa
            import pyvisa_py  # noqa: F401 - pyvisa takes it up by itself

        self._timeout = pyvisa.constants.StatusCode.error_timeout
        self._manager = pyvisa.ResourceManager("@py")
        try:
            self._instrument = cast(
                Any, self._manager.open_resource(address, open_timeout=round(1000 * OPEN_LIMIT_S))
            )
        except Exception as error:  # noqa: BLE001 - it raises what has no class of its own
            self._manager.close()
            raise OSError(errno.ECONNREFUSED, _one_line(error)) from None
        self._instrument.timeout = round(1000 * limit_s)
        self._instrument.read_termination = "\n"

    def write(self, message: bytes) -> None:
        try:
            self._instrument.write_raw(message)
        except Exception as error:  # noqa: BLE001 - as above
            raise OSError(errno.EIO, _one_line(error)) from None

    def read(self) -> bytes:
        """Return the next answer.

        Raises TimeoutError where none came, other OSErrors.
        """
        try:
            return bytes(self._instrument.read_bytes(MOST_BODY_BYTES, break_on_termchar=True))
        except Exception as error:  # noqa: BLE001 - as above
            if getattr(error, "error_code", None) == self._timeout:
                raise TimeoutError(_one_line(error)) from None
            raise OSError(errno.EIO, _one_line(error)) from None

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._instrument.close()
            self._manager.close()


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
