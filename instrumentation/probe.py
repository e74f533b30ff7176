"""Which ports there are besides the one that was named, and whose stream some bytes are.

A port that nobody has named is not opened, let alone written to: opening alone restarts many a
device (DTR), and what looks like a meter's USB chip may be a power supply's or another machine's
console.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from instrumentation.meters import registry
from instrumentation.meters.base import Meter, MeterError
from instrumentation.ports import Finder, Port, all_ports


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


def what_is_here(besides: str = "", finder: Finder = all_ports) -> str:
    """A sentence on the ports of this machine other than one, by what the kernel knows of them."""
    ports = [port for port in finder() if not besides or _real(port.device) != _real(besides)]
    told = "; ".join(map(_told, ports))
    return f"{'Other ports' if besides else 'Ports'} here (none was opened): {told or 'none'}."


def _real(device: str) -> str:
    return os.path.realpath(device)


def _told(port: Port) -> str:
    kinds = [kind for kind in registry.kinds() if port.usb_id in registry.load(kind).usb_ids]
    return f"{port.told}, perhaps a {' or '.join(kinds)}" if kinds else port.told
