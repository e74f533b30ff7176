"""Which meter to record, one entry of the inventory, checked, or refused in a sentence."""

from __future__ import annotations

import errno
import re
import ssl
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from contract import schema, strict_json
from contract.errors import AgentError
from contract.extensions import ExtensionError
from contract.private import expanded, read_secret
from contract.strict_json import Document
from instrumentation.meters import registry
from instrumentation.meters.base import Meter, MeterError
from instrumentation.ports import (
    PortError,
    check_form,
    form_of,
    is_network,
    is_pseudo_terminal,
    looks_like,
    what_is_here,
)

SHOWN_BYTES = 40
_HELP_SLOW = "Is it on, and its address right? If it is slow, set answer_limit_s."
_HELP = {
    "mqtt": "Does the device publish to that topic at this broker, and each period_s?",
    "snmp": "Is it on, its address right, and its community the line in secret_file?",
}
_HELP["mqtts"] = _HELP["mqtt"]


def cannot_open(config: MeterConfig, error: OSError, device: str) -> str:
    """Why the port could not be opened. `device` is its path, empty if none was found."""
    where = f"{config.name}: {config.port}"
    if is_network(config.port):
        if isinstance(error, PortError):  # which says what to do
            return f"{where}: {error.strerror}."
        return f"{where} does not answer ({error.strerror}): is it on, and its address right?"
    return _cannot_open_port(config, error, device, where)


def _cannot_open_port(config: MeterConfig, error: OSError, device: str, where: str) -> str:
    if error.errno == errno.ENOENT:
        known = f" ({error.strerror})" if config.port.startswith("usb") else ""
        return f"{where} is not there{known}: is the meter plugged in? {what_is_here()}"
    if error.errno == errno.ENOTUNIQ:
        return f"{where} is not one port: {error.strerror}."
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"{where} may not be opened by this user: `sudo usermod -aG dialout $USER`, "
            "then log in again."
        )
    if error.errno in (errno.EAGAIN, errno.EBUSY):
        return (
            f"{where} is in use by another program: `fuser -v {device}` names it; end that, or "
            f"name another port. {what_is_here(device)}"
        )
    if error.errno == errno.ETIMEDOUT:
        return f"{where} does not open ({error.strerror}): unplug the meter and plug it in again."
    return f"{where} cannot be opened ({error}). {what_is_here(device)}"


def silent(config: MeterConfig, limit_s: float, device: str) -> str:
    """Not a byte came."""
    if is_network(config.port):
        where = f"{config.name} at {config.port} is silent: nothing came in {limit_s:.3g} s"
        return f"{where}. {_HELP.get(form_of(config.port), _HELP_SLOW)}"
    return (
        f"{config.name} at {config.port} is silent: not a byte in {limit_s:.3g} s at {config.baud} "
        f"baud. Is it switched on, and its logging? {what_is_here(device)}"
    )


def foreign(config: MeterConfig, data: bytes, device: str, reason: str = "") -> str:
    """Return a sentence on bytes that hold no record of this kind; `reason` is the driver's."""
    other = looks_like(data, config.kind)
    where = f"{config.name} at {config.port}"
    if is_network(config.port) and reason and not other:
        return f"{where} gives no readings: {reason}. Check kind and settings."
    hint = "Check kind and settings." if is_network(config.port) else "Check kind and baud."
    hint = f"That is a {other}: set its kind." if other else hint
    at, elsewhere = "", ""
    if not is_network(config.port):  # where only what is named is looked for
        at, elsewhere = f" at {config.baud} baud", what_is_here(device)
    return (
        f"{where} sends no records of a {config.kind}{at}: what came starts with "
        f"{data[:SHOWN_BYTES]!r}. {hint} {elsewhere}"
    ).rstrip()


_FORMS = {
    "port": "a serial port",
    "tcpip": "TCPIP::HOST::PORT::SOCKET",
    **{name: f"{name}://HOST" for name in ("http", "https", "mqtt", "mqtts", "snmp")},
}


class RecorderError(Exception):
    """The recorder cannot start or continue; one sentence with the remedy."""


@dataclass(frozen=True)
class _Kind:
    kind: str


@dataclass(frozen=True)
class MeterConfig:
    """One entry of `meters` in the resolved target."""

    name: str
    kind: str
    port: str
    baud: int
    origin: Literal["measured", "modelled"]
    channels: Mapping[str, str]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str) -> MeterConfig:
        """Return the entry, checked.

        Raises RecorderError.
        """
        try:
            entry = {k: v for k, v in dict(strict_json.loads(text)).items() if v is not None}
            baud = registry.load(schema.read(_Kind, entry).kind).default_baud
            config = schema.read(cls, {"baud": baud, **entry})
        except (TypeError, ValueError) as error:
            raise RecorderError(
                f"Invalid entry of a meter: {error}. Correct it in the inventory."
            ) from None
        except ExtensionError as error:
            raise RecorderError(str(error)) from None
        config.check()
        return config

    def check(self) -> None:
        """Raise RecorderError where the entry cannot be meant."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", self.name):
            raise RecorderError(f"{self.name!r} cannot name a meter: use letters, digits and - _ .")
        try:
            check_form(self.port)
        except ValueError as error:
            raise RecorderError(f"{self.name}: {error}") from None
        if self.origin == "measured" and is_pseudo_terminal(self.port):
            raise RecorderError(
                f"{self.name}: {self.port} is a pseudo-terminal, and a program at its other end is "
                "no instrument: set its origin to modelled, or name the port of a real meter."
            )
        self._check_driver(self.driver())

    def _check_driver(self, meter: Meter) -> None:
        if form_of(self.port) not in meter.addresses:
            forms = " or ".join(_FORMS[form] for form in meter.addresses)
            raise RecorderError(
                f"{self.name}: a {self.kind} is not at {self.port}: name {forms} as its port."
            )
        lowest = 1 if "port" in meter.addresses else 0
        if not isinstance(self.baud, int) or self.baud < lowest:
            raise RecorderError(f"{self.name}: {self.baud!r} is not a valid baud rate.")
        if meter.secret_file:
            try:
                read_secret(Path(meter.secret_file))
            except AgentError as error:
                raise RecorderError(f"{self.name}: {error}") from None

        if meter.ca_file:
            try:
                ssl.create_default_context(cafile=expanded(meter.ca_file))
            except OSError as error:  # ssl.SSLError is one
                raise RecorderError(
                    f"{self.name}: no certificates in ca_file {meter.ca_file} "
                    f"({error.strerror or error}): name a file of them in PEM."
                ) from None

    def driver(self) -> Meter:
        """Return a fresh driver for this meter.

        Raises RecorderError.
        """
        try:
            return registry.load(self.kind)(self.channels, self.settings)
        except MeterError as error:
            raise RecorderError(f"{self.name}: {error}") from None

    def described(self) -> Document:
        """Return the content of meter.json."""
        return {"format": "fde-meter/2", **asdict(self), **self.driver().described()}
