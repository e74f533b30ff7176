"""Connections to meters on a network: HTTP, and instruments by VISA over TCP.

A driver writes lines, and stream.raw records them: `GET PATH`, or SCPI. A driver of another address
connects by its own `Meter.connect`.
Secrets are read from their file at each opening and added here, and so are in no recording. A late
answer counts as none; a host that refuses, or cannot be reached when the meter is opened, raises
OSError, as a lost port does.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from pathlib import Path
from typing import Any, cast

from contract.errors import AgentError
from contract.private import read_secret
from instrumentation.clock import monotonic_ns
from instrumentation.endpoints import OPEN_LIMIT_S, explain_missing
from instrumentation.meters.answers import MOST_BODY_BYTES, Answer, Answers, envelope
from instrumentation.meters.base import Meter
from instrumentation.meters.http import PROFILES
from instrumentation.meters.json_paths import value_at
from instrumentation.meters.networked import USUAL_LIMIT_S, AnswerError, document
from instrumentation.ports import PortError, form_of
from instrumentation.transports import QueryTransport, Transport

_LOOK_S = 5.0  # for the answer of an unknown device
_QUIET_S = 0.1  # without a byte, after which an instrument has sent all its old answers
_MOST_BLOCKED_S = 5.0  # a recorder writes its state more often


def open_network_meter(address: str, meter: Meter) -> Transport:
    """Connect to an address of the inventory. Raises OSError."""
    try:
        secret = read_secret(Path(meter.secret_file)) if meter.secret_file else ""
    except AgentError as error:
        raise PortError(errno.EACCES, str(error).rstrip(".")) from None
    form = form_of(address)
    blocked_s = min(max(USUAL_LIMIT_S, meter.period_s), _MOST_BLOCKED_S)
    if form == "tcpip":
        return VisaTransport(address, framed=meter.framed, limit_s=blocked_s)
    if form.startswith("http"):
        with explain_missing("plugs"):
            from instrumentation.http_transport import HttpTransport
        return HttpTransport(
            address,
            login=meter.login,
            secret=secret,
            ca_file=meter.ca_file,
            limit_s=meter.answer_limit_s,
        )
    return meter.connect(address, secret, blocked_s)


def recognise_plug(address: str) -> tuple[str, tuple[str, ...]]:
    """Return the profile of the plug that answers HTTP at an address, and its channels.

    Each profile's question is asked once, without a login; channels are those that report a power.
    Raises OSError.
    """
    with explain_missing("plugs"):
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


class VisaTransport(QueryTransport):
    """An instrument by its VISA name; a line with a `?` is a query.

    `framed` answers are put into envelopes. A socket is read here; an instrument that requires
    VXI-11 or HiSLIP (`INSTR`) by PyVISA-py, which needs no maker's library. An answer that does not
    end within `limit_s`, or is too long, ends the connection: the rest would be the next answer.

    Answers that arrive before a question are another client's, or late ones, and are discarded. A
    session begins with a clear and, for framed answers, with `*OPC?`, whose answer is 1 (IEEE
    488.2); so does the next question after one without an answer in time.
    """

    _TRIES, _OPC_LIMIT_S = 2, 1.0

    def __init__(self, address: str, *, framed: bool, limit_s: float = USUAL_LIMIT_S) -> None:
        super().__init__()
        self._framed = framed
        _, host, *port, kind = address.split("::")
        self._instrument: _LineSocket | _PyvisaInstrument
        if kind == "SOCKET":
            self._instrument = _LineSocket(host, int(port[0]), limit_s)
        else:
            self._instrument = _PyvisaInstrument(address, limit_s)
        self._is_late = framed
        self._knows_opc, self._is_behind = True, False
        try:
            self._instrument.clear(_QUIET_S)
            self._synchronise()
        except OSError:
            self.close()
            raise

    def _synchronise(self) -> None:
        """Let the next answer be that of the next question. Raises OSError if that fails."""
        if not (self._is_late and self._knows_opc):
            return
        for _ in range(self._TRIES):
            lines = self._ask_opc()
            if lines and lines[-1] == b"1":
                if self._is_behind:
                    raise OSError(
                        errno.EPROTO,
                        "its answers belong to earlier questions: end its other clients, and "
                        "switch it off and on",
                    )
                self._is_late = False
                return
            self._is_behind = bool(lines)
        self._knows_opc = self._is_behind = False

    def _ask_opc(self) -> list[bytes]:
        """Ask `*OPC?`; return the lines that came up to its answer, 1, or in the time for it."""
        self._instrument.clear(0.0)
        self._instrument.write(b"*OPC?\n")
        lines: list[bytes] = []
        until_ns = monotonic_ns() + round(self._OPC_LIMIT_S * 1e9)
        with contextlib.suppress(TimeoutError):
            while b"1" not in lines[-1:] and (left_s := (until_ns - monotonic_ns()) / 1e9) > 0:
                lines.append(self._instrument.read(left_s).strip())
        return lines

    def _put(self, message: bytes) -> None:
        self._synchronise()
        self._instrument.clear(0.0)
        self._instrument.write(message)

    def _get(self) -> bytes:
        try:
            line = self._instrument.read()
        except TimeoutError:
            self._is_late = self._framed
            raise
        return envelope("ok", line.rstrip(b"\r\n")) if self._framed else line

    def close(self) -> None:
        self._instrument.close()


class _LineSocket:
    """A plain TCP socket on which each answer is a line."""

    def __init__(self, host: str, port: int, limit_s: float) -> None:
        self._limit_s = limit_s
        self._next = b""  # bytes behind the end of the last answer
        self._socket = socket.create_connection((host, port), OPEN_LIMIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def write(self, message: bytes) -> None:
        self._socket.settimeout(self._limit_s)
        self._socket.sendall(message)

    def clear(self, quiet_s: float) -> None:
        """Discard what arrived until now, and until nothing more comes for `quiet_s`."""
        self._next = b""
        until_ns = monotonic_ns() + round(self._limit_s * 1e9)
        self._socket.settimeout(quiet_s)
        with contextlib.suppress(TimeoutError, BlockingIOError):
            while monotonic_ns() < until_ns and self._socket.recv(MOST_BODY_BYTES):
                pass

    def read(self, limit_s: float | None = None) -> bytes:
        """Return the next line with its end.

        Raises TimeoutError if nothing arrived, otherwise OSError.
        """
        until_ns = monotonic_ns() + round((limit_s or self._limit_s) * 1e9)
        parts, count = [self._next], len(self._next)
        while b"\n" not in parts[-1]:
            if count > MOST_BODY_BYTES:
                raise OSError(errno.EMSGSIZE, "an answer without an end")
            try:
                self._socket.settimeout(max((until_ns - monotonic_ns()) / 1e9, 1e-3))
                parts.append(self._socket.recv(MOST_BODY_BYTES))
            except TimeoutError:
                if not count:
                    raise
                half = f"half an answer came: {b''.join(parts)[:40]!r}"
                raise OSError(errno.ECONNRESET, half) from None
            if not parts[-1]:
                raise OSError(errno.ECONNRESET, "the instrument closed the connection")
            count += len(parts[-1])
            if monotonic_ns() > until_ns and b"\n" not in parts[-1]:
                raise OSError(errno.ECONNRESET, "an answer took too long")
        line, _, self._next = b"".join(parts).partition(b"\n")
        return line + b"\n"

    def close(self) -> None:
        self._socket.close()


class _PyvisaInstrument:
    """An instrument that PyVISA-py talks to."""

    def __init__(self, address: str, limit_s: float) -> None:
        with explain_missing("lan"):
            import pyvisa
            import pyvisa_py  # noqa: F401 - pyvisa loads it

        self._timeout = pyvisa.constants.StatusCode.error_timeout
        self._manager = pyvisa.ResourceManager("@py")
        try:
            self._instrument = cast(
                Any, self._manager.open_resource(address, open_timeout=round(1000 * OPEN_LIMIT_S))
            )
        except Exception as error:  # noqa: BLE001 - pyvisa raises plain exceptions
            self._manager.close()
            raise OSError(errno.ECONNREFUSED, one_line(error)) from None
        self._limit_s = limit_s
        self._instrument.read_termination = "\n"

    def write(self, message: bytes) -> None:
        try:
            self._instrument.write_raw(message)
        except Exception as error:  # noqa: BLE001 - as above
            raise OSError(errno.EIO, one_line(error)) from None

    def clear(self, quiet_s: float) -> None:
        """Clear the device at the begin of a session; its answers carry their question's number."""
        if quiet_s:
            with contextlib.suppress(Exception):  # not every link has such a message
                self._instrument.clear()

    def read(self, limit_s: float | None = None) -> bytes:
        """Return the next answer. Raises TimeoutError if none arrived, otherwise OSError."""
        self._instrument.timeout = round(1000 * (limit_s or self._limit_s))
        try:
            return bytes(self._instrument.read_bytes(MOST_BODY_BYTES, break_on_termchar=True))
        except Exception as error:  # noqa: BLE001 - as above
            if getattr(error, "error_code", None) == self._timeout:
                raise TimeoutError(one_line(error)) from None
            raise OSError(errno.EIO, one_line(error)) from None

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._instrument.close()
            self._manager.close()


def one_line(error: object) -> str:
    """Return the text of an error in one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
