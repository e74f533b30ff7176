"""What answers at the ports of this machine: listened to, and asked only where that is harmless."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from instrumentation.meters import registry
from instrumentation.meters.base import Meter, MeterError
from instrumentation.ports import Port, all_ports
from instrumentation.transports import Transport, open_transport

DEFAULT_BAUD = 115200
LISTEN_S = (1.5, 5.5)  # at least and at most
_SHOWN_BYTES = 40
_KEPT_BYTES = 1 << 16
_PAUSE_S = 0.01

# Chips that are sold in adapters for anything: whatever is behind one must not be spoken to.
_ADAPTERS = ("0403:6001", "0403:6010", "0403:6015", "067b:2303", "10c4:ea60", "1a86:7523")

# What may be said to a meter, by kind, without changing anything at it.
_QUESTIONS = {
    "mcp39f511n": bytes.fromhex("A5 08 41 00 16 4E 08 5A"),  # reads the power registers
    "powersensor3": b"V",  # its version
    "wt210": b"*IDN?\n",
    "wt310": b"*IDN?\n",
}


@dataclass
class _Heard:
    """One port that is listened to."""

    port: Port
    transport: Transport
    data: bytes = b""
    drivers: list[Meter] = field(default_factory=list)
    kind: str = ""

    def take(self) -> None:
        t_ns, data = self.transport.read(0.0)
        self.data = (self.data + data)[:_KEPT_BYTES]
        if data and not self.kind:
            self.kind = _known_by(self.drivers, data, t_ns)


def _known_by(drivers: Sequence[Meter], data: bytes, t_ns: int) -> str:
    for driver in drivers:
        if len(driver.feed(data, t_ns).rows):
            return driver.kind
    return ""


def _drivers(besides: str = "") -> list[Meter]:
    """Every driver that needs no description of its own, as it would be without one."""
    made = []
    for kind in registry.kinds():
        if kind == besides:
            continue
        cls = registry.load(kind)
        try:
            driver = cls({own: f"ch_{n}" for n, own in enumerate(cls.own_channels)})
        except (MeterError, AttributeError):  # its channels are known by its settings alone
            continue
        driver.opened()
        made.append(driver)
    return made


def looks_like(data: bytes, besides: str) -> str:
    """The kind of meter, other than one, that these bytes are a stream of; empty if of none."""
    return _known_by(_drivers(besides), data, 0)


def question_for(usb_id: str) -> bytes:
    """What may be asked of a device with this USB id; empty where nothing may."""
    if not usb_id or usb_id in _ADAPTERS:
        return b""
    kinds = [kind for kind in registry.kinds() if usb_id in registry.load(kind).usb_ids]
    questions = {_QUESTIONS.get(kind, b"") for kind in kinds}
    return questions.pop() if len(questions) == 1 else b""


def _baud_for(usb_id: str, baud: int) -> int:
    for kind in registry.kinds():
        driver = registry.load(kind)
        if usb_id and usb_id in driver.usb_ids:
            return driver.default_baud
    return baud


def _told(heard: _Heard) -> str:
    if heard.kind:
        return f"a {heard.kind} answers"
    if heard.data:
        return f"sends {heard.data[:_SHOWN_BYTES]!r}"
    return "silent"


def survey(ports: Sequence[Port], *, baud: int = DEFAULT_BAUD, listen_s: float) -> list[str]:
    """For each port, what it is and what answers there, for people. Takes about `listen_s`."""
    listened: dict[str, _Heard] = {}
    said = {}
    for port in ports:
        try:
            transport = open_transport(port.device, _baud_for(port.usb_id, baud), 1.0)
        except OSError:
            said[port.device] = "in use, or may not be opened"
            continue
        listened[port.device] = _Heard(port, transport, drivers=_drivers())
        if question := question_for(port.usb_id):
            try:
                transport.write(question)
            except OSError:
                said[port.device] = "does not answer"
    end = time.monotonic() + listen_s
    while time.monotonic() < end and len(said) < len(ports):
        for device, heard in listened.items():
            if device in said:
                continue
            try:
                heard.take()
            except OSError:
                said[device] = "is gone"
            if heard.kind:
                said[device] = _told(heard)
        time.sleep(_PAUSE_S)
    for device, heard in listened.items():
        heard.transport.close()
        said.setdefault(device, _told(heard))
    return [f"{port.told}: {said[port.device]}" for port in ports]


def what_is_here(besides: str = "", *, baud: int = DEFAULT_BAUD, period_s: float = 1.0) -> str:
    """A sentence about the ports of this machine other than one, after listening to them."""
    ports = [port for port in all_ports() if port.device != besides]
    listen_s = min(max(period_s + 0.5, LISTEN_S[0]), LISTEN_S[1])
    told = survey(ports, baud=baud, listen_s=listen_s) if ports else []
    return f"{'Other ports' if besides else 'Ports'} here: {'; '.join(told) or 'none'}."
