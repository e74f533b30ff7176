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
from contract.problem import ProblemError
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


class RecorderError(ProblemError):
    """The recorder cannot start or continue; one sentence with the remedy."""


_OPEN_CODES = {
    errno.ENOENT: "port-absent",
    errno.ENOTUNIQ: "not-one-port",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "port-denied"),
    **dict.fromkeys((errno.EAGAIN, errno.EBUSY), "port-in-use"),
    errno.ETIMEDOUT: "port-hangs",
}


def cannot_open(config: MeterConfig, error: OSError, device: str) -> RecorderError:
    """Why the port could not be opened. `device` is its path, empty if none was found."""
    facts = {"meter": config.name, "port": config.port, "reason": error.strerror or str(error)}
    if is_network(config.port):
        refuses = isinstance(error, PortError)  # which says what to do
        return RecorderError("address-refused" if refuses else "no-answer", **facts)
    code = _OPEN_CODES.get(error.errno or 0, "port-unopened")
    by_usb = code == "port-absent" and config.port.startswith("usb")
    found_ports = what_is_here("" if code == "port-absent" else device)
    known = f" ({error.strerror})" if by_usb else ""
    return RecorderError(code, **facts, device=device, known=known, ports=found_ports)


def silent(config: MeterConfig, limit_s: float, device: str) -> RecorderError:
    """Not a byte came."""
    facts = {"meter": config.name, "port": config.port, "limit_s": limit_s}
    if is_network(config.port):
        remedy = _HELP.get(form_of(config.port), _HELP_SLOW)
        return RecorderError("address-silent", **facts, help=remedy)
    return RecorderError("port-silent", **facts, baud=config.baud, ports=what_is_here(device))


def foreign(config: MeterConfig, data: bytes, device: str, reason: str = "") -> RecorderError:
    """Refuse bytes that hold no record of this kind; `reason` is the driver's."""
    other = looks_like(data, config.kind)
    facts = {"meter": config.name, "port": config.port}
    if is_network(config.port) and reason and not other:
        return RecorderError("no-readings", **facts, reason=reason)
    hint = "Check kind and settings." if is_network(config.port) else "Check kind and baud."
    hint = f"That is a {other}: set its kind." if other else hint
    at, elsewhere = "", ""
    if not is_network(config.port):  # where only what is named is looked for
        at, elsewhere = f" at {config.baud} baud", f" {what_is_here(device)}".rstrip()
    first = repr(data[:SHOWN_BYTES])
    facts |= {"kind": config.kind, "at": at, "first": first, "hint": hint, "ports": elsewhere}
    return RecorderError("foreign-records", **facts)


_FORMS = {
    "port": "a serial port",
    "tcpip": "TCPIP::HOST::PORT::SOCKET",
    **{name: f"{name}://HOST" for name in ("http", "https", "mqtt", "mqtts", "snmp", "ipmi")},
}


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
            raise RecorderError("invalid-entry", error=error) from None
        except ExtensionError as error:
            raise RecorderError(error) from None
        config.check()
        return config

    def check(self) -> None:
        """Raise RecorderError where the entry cannot be meant."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", self.name):
            raise RecorderError("invalid-meter-name", name=self.name)
        try:
            check_form(self.port)
        except ValueError as error:
            raise RecorderError("invalid-port", meter=self.name, error=error) from None
        if self.origin == "measured" and is_pseudo_terminal(self.port):
            raise RecorderError("pseudo-terminal", meter=self.name, port=self.port)
        self._check_driver(self.driver())

    def _check_driver(self, meter: Meter) -> None:
        if form_of(self.port) not in meter.addresses:
            forms = " or ".join(_FORMS[form] for form in meter.addresses)
            raise RecorderError(
                "wrong-form", meter=self.name, kind=self.kind, port=self.port, forms=forms
            )
        lowest = 1 if "port" in meter.addresses else 0
        if not isinstance(self.baud, int) or self.baud < lowest:
            raise RecorderError("invalid-baud", meter=self.name, baud=self.baud)
        if meter.secret_file:
            try:
                read_secret(Path(meter.secret_file))
            except AgentError as error:
                raise RecorderError("secret-unusable", meter=self.name, error=error) from None

        if meter.ca_file:
            try:
                ssl.create_default_context(cafile=expanded(meter.ca_file))
            except OSError as error:  # ssl.SSLError is one
                raise RecorderError(
                    "no-certificates",
                    meter=self.name,
                    ca_file=meter.ca_file,
                    reason=error.strerror or error,
                ) from None

    def driver(self) -> Meter:
        """Return a fresh driver for this meter.

        Raises RecorderError.
        """
        try:
            return registry.load(self.kind)(self.channels, self.settings)
        except MeterError as error:
            raise RecorderError("meter-refused", meter=self.name, error=error) from None

    def described(self) -> Document:
        """Return the content of meter.json."""
        return {"format": "fde-meter/2", **asdict(self), **self.driver().described()}
