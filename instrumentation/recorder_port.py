"""Check a meter of the inventory before it is recorded, and explain errors of its port."""

from __future__ import annotations

import errno
import ssl
from dataclasses import asdict, replace
from pathlib import Path

from contract import strict_json
from contract.errors import AgentError
from contract.extensions import ExtensionError
from contract.plan import MeterEntry
from contract.private import expanded, read_secret
from contract.problem import ProblemError
from contract.strict_json import Document
from instrumentation.meters import registry
from instrumentation.meters.base import Meter, MeterError
from instrumentation.ports import (
    PortError,
    check_form,
    describe_ports,
    form_of,
    is_network,
    is_pseudo_terminal,
    recognise_kind,
)

SHOWN_BYTES = 40


class RecorderError(ProblemError):
    """A recorder that cannot start or continue; one sentence with the remedy."""


_OPEN_CODES = {
    errno.ENOENT: "port-absent",
    errno.ENOTUNIQ: "not-one-port",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "port-denied"),
    **dict.fromkeys((errno.EAGAIN, errno.EBUSY), "port-in-use"),
    errno.ETIMEDOUT: "port-hangs",
}


def cannot_open(config: MeterEntry, error: OSError, device: str) -> RecorderError:
    """Return why the port could not be opened; `device` is its path, empty if it has none."""
    facts = {"meter": config.name, "port": config.port, "reason": error.strerror or str(error)}
    if is_network(config.port):
        has_remedy = isinstance(error, PortError)
        return RecorderError("address-refused" if has_remedy else "no-answer", **facts)
    code = _OPEN_CODES.get(error.errno or 0, "port-unopened")
    by_usb = code == "port-absent" and config.port.startswith("usb")
    detail = f" ({error.strerror})" if by_usb else ""
    ports = describe_ports("" if code == "port-absent" else device)
    return RecorderError(code, **facts, device=device, known=detail, ports=ports)


def silence_error(config: MeterEntry, limit_s: float, device: str) -> RecorderError:
    """Return the error for a meter that sent nothing."""
    facts = {"meter": config.name, "port": config.port, "limit_s": limit_s}
    if is_network(config.port):
        return RecorderError("address-silent", **facts)
    return RecorderError("port-silent", **facts, baud=config.baud, ports=describe_ports(device))


def foreign_error(config: MeterEntry, data: bytes, device: str, reason: str = "") -> RecorderError:
    """Return the error for bytes that contain no record of this kind; `reason` is the driver's."""
    other = recognise_kind(data, config.kind)
    facts = {"meter": config.name, "port": config.port}
    reason = reason or "all its answers are of one reading" * is_network(config.port)
    if reason and not other and (is_network(config.port) or data.isascii()):
        return RecorderError("no-readings", **facts, reason=reason)
    hint = f"That is a {other}: set its kind." if other else "Check kind and baud."
    at, ports = "", ""
    if not is_network(config.port):  # a network is never searched
        at, ports = f" at {config.baud} baud", f" {describe_ports(device)}".rstrip()
    first = repr(data[:SHOWN_BYTES])
    facts |= {"kind": config.kind, "at": at, "first": first, "hint": hint, "ports": ports}
    return RecorderError("foreign-records", **facts)


_FORMS = {"port": "a serial port", "tcpip": "TCPIP::HOST::PORT::SOCKET"}


def parse_meter(text: str) -> MeterEntry:
    """Parse an entry of `meters`, checked and complete. Raises RecorderError."""
    try:
        return check_meter(strict_json.parse(MeterEntry, text))
    except ValueError as error:
        raise RecorderError("invalid-entry", error=error) from None


def check_meter(entry: MeterEntry) -> MeterEntry:
    """Return the entry with its kind's defaults. Raises RecorderError if it cannot be recorded."""
    try:
        baud = registry.load(entry.kind).default_baud if entry.baud is None else entry.baud
    except ExtensionError as error:
        raise RecorderError(error) from None
    try:
        check_form(entry.port)
    except ValueError as error:
        raise RecorderError("invalid-port", meter=entry.name, error=error) from None
    if entry.origin == "measured" and is_pseudo_terminal(entry.port):
        raise RecorderError("pseudo-terminal", meter=entry.name, port=entry.port)
    meter = driver_of(entry)
    if form_of(entry.port) not in meter.addresses:
        forms = " or ".join(_FORMS.get(form, f"{form}://HOST") for form in meter.addresses)
        facts = {"meter": entry.name, "kind": entry.kind, "port": entry.port}
        raise RecorderError("wrong-form", **facts, forms=forms)
    if baud < ("port" in meter.addresses):
        raise RecorderError("invalid-baud", meter=entry.name, baud=baud)
    if meter.secret_file:
        try:
            read_secret(Path(meter.secret_file))
        except AgentError as error:
            raise RecorderError("secret-unusable", meter=entry.name, error=error) from None
    if meter.ca_file:
        try:
            ssl.create_default_context(cafile=expanded(meter.ca_file))
        except OSError as error:  # ssl.SSLError is one
            facts = {"meter": entry.name, "ca_file": meter.ca_file}
            reason = error.strerror or error
            raise RecorderError("no-certificates", **facts, reason=reason) from None
    return replace(entry, baud=baud, settings=entry.settings or {})


def describe(entry: MeterEntry) -> Document:
    """Return the description of a meter for meter.json."""
    return {"format": "fde-meter/2", **asdict(entry), **driver_of(entry).description()}


def driver_of(entry: MeterEntry) -> Meter:
    """Return a fresh driver for a meter. Raises RecorderError."""
    try:
        return registry.load(entry.kind)(entry.channels, entry.settings)
    except MeterError as error:
        raise RecorderError("meter-refused", meter=entry.name, error=error) from None
