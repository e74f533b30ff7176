"""Which port a meter is at: named by a path, by what its USB side says, or by a network address.

A `port` of the inventory is a path, or `usb:VVVV:PPPP`, `usb:VVVV:PPPP:SERIAL`,
`usb:VVVV:PPPP@LOCATION` (a place in the tree of hubs, such as 1-2.3), or `usb` alone: whatever has
one of the driver's own ids. It is looked up again at each opening, for a meter that is plugged in
again may get another number. On a network it is at `http://HOST[:PORT]`, `https://…`,
`mqtt://HOST[:PORT]` of a broker, `mqtts://…`, `snmp://HOST[:PORT]` or `TCPIP::HOST::PORT::SOCKET`,
VISA's name of an instrument; what is not named there is not looked for.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from serial.tools import list_ports

from instrumentation.meters import registry
from instrumentation.meters.base import MeterError

_USB = re.compile(r"usb(?::([0-9a-fA-F]{4}:[0-9a-fA-F]{4})(?::(?P<serial>.+)|@(?P<location>.+))?)?")
_URL = re.compile(
    r"(https?|mqtts?|snmp)://(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(?::\d{1,5})?/?"
)
_VISA = re.compile(r"TCPIP\d*::[A-Za-z0-9_.-]+::(?:\d{1,5}::SOCKET|(?:\w+::)?INSTR)")
_NETWORK = re.compile(r"\w+://|TCPIP\d*::")
_PTY_MAJORS = range(136, 144)  # kernel, Documentation/admin-guide/devices.txt


class PortError(OSError):
    """No port, or more than one, is meant by a name; `strerror` is a sentence for people."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port of this machine. `usb_id` is `vvvv:pppp`, empty where it is no USB device."""

    device: str
    usb_id: str = ""
    serial_number: str = ""
    location: str = ""
    description: str = ""

    @property
    def name(self) -> str:
        """How to call it in the inventory so that no other device is meant, if that can be."""
        if not self.usb_id:
            return self.device
        if self.serial_number:
            return f"usb:{self.usb_id}:{self.serial_number}"
        return f"usb:{self.usb_id}@{self.location}"

    @property
    def label(self) -> str:
        """Device and name, for people."""
        words = [self.name] if self.usb_id else []
        words += [self.description] if self.description not in ("", "n/a") else []
        return f"{self.device} ({', '.join(words)})" if words else self.device

    def is_same_device(self, other: Port) -> bool:
        """Whether both are the same thing at perhaps different times."""
        if self.serial_number or other.serial_number:
            mine, its = (self.usb_id, self.serial_number), (other.usb_id, other.serial_number)
            return mine == its
        return self.usb_id == other.usb_id


Finder = Callable[[], Sequence[Port]]


def has_chip(name: str, sys_class: Path = Path("/sys/class/tty")) -> bool:
    """Whether the kernel knows a chip behind a built-in port; it makes dozens that have none.

    pyserial 3.5 tells those by a subsystem that Linux 6.5 renamed (pyserial, issue 763). Their type
    is 0 (linux/serial_core.h, PORT_UNKNOWN), and what is no port of a driver of chips has none.
    """
    if not name.startswith("ttyS"):
        return True
    return _line_or_nothing(sys_class / name / "type") not in ("", "0")


def serial_ports() -> list[Port]:
    """The serial ports of this machine, as pyserial lists them, but those without a chip."""
    try:
        found = list_ports.comports()
    except (OSError, TypeError, ValueError):  # a device went while its attributes were read
        return []
    return [
        Port(
            device=port.device,
            usb_id=f"{port.vid:04x}:{port.pid:04x}" if port.vid is not None else "",
            serial_number=port.serial_number or "",
            location=port.location or "",
            description=port.description if port.description != port.name else "",
        )
        for port in sorted(found)
        if has_chip(port.name)
    ]


def usbtmc_ports(sys_class: Path = Path("/sys/class/usbmisc")) -> list[Port]:
    """The USB test and measurement devices (`/dev/usbtmcN`) of this machine."""
    found = []
    for entry in sorted(sys_class.glob("usbtmc*")):
        interface = (entry / "device").resolve()
        usb = interface.parent
        try:
            usb_id = f"{_line(usb / 'idVendor')}:{_line(usb / 'idProduct')}"
        except OSError:
            continue
        words = [_line_or_nothing(usb / name) for name in ("manufacturer", "product")]
        found.append(
            Port(
                device=f"/dev/{entry.name}",
                usb_id=usb_id,
                serial_number=_line_or_nothing(usb / "serial"),
                location=usb.name,
                description=" ".join(word for word in words if word),
            )
        )
    return found


def _line(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip()


def _line_or_nothing(path: Path) -> str:
    try:
        return _line(path)
    except OSError:
        return ""


def all_ports() -> list[Port]:
    """Every port that a meter could be at."""
    return [*serial_ports(), *usbtmc_ports()]


def is_pseudo_terminal(path: str) -> bool:
    """Whether a path, links followed, is the slave end of a pseudo-terminal."""
    if os.path.realpath(path).startswith("/dev/pts/"):
        return True
    try:
        return os.major(Path(path).stat().st_rdev) in _PTY_MAJORS
    except OSError:
        return False


def is_network(wanted: str) -> bool:
    """Whether a name is an address on a network."""
    return _NETWORK.match(wanted) is not None


def form_of(wanted: str) -> str:
    """`http`, `https`, `mqtt`, `mqtts`, `snmp`, `tcpip`, or `port` of this machine."""
    if not is_network(wanted):
        return "port"
    return "tcpip" if wanted.startswith("TCPIP") else wanted.partition(":")[0]


def check_form(wanted: str) -> None:
    """Raises ValueError, with a sentence, where a name looks like one of these and is none."""
    if is_network(wanted) and not (_URL.fullmatch(wanted) or _VISA.fullmatch(wanted)):
        if "@" in wanted:  # not shown: it may hold a password
            raise ValueError("a login does not belong into the address: put it into secret_file.")
        raise ValueError(
            f"{wanted} names no meter: write http://HOST, https://HOST, mqtt://BROKER, "
            "mqtts://BROKER, snmp://HOST, each with :PORT where it is another than usual, or "
            "TCPIP::HOST::PORT::SOCKET."
        )
    if (wanted == "usb" or wanted.startswith("usb:")) and not _USB.fullmatch(wanted):
        raise ValueError(
            f"{wanted} names no port: write usb:VVVV:PPPP, usb:VVVV:PPPP:SERIAL, "
            "usb:VVVV:PPPP@LOCATION, usb, or a path."
        )


class Lookup:
    """Finds one meter's device, again and again: the same one, wherever it has been plugged in.

    `wanted` is the `port` of the inventory, `usb_ids` those of the driver. What was found first is
    remembered: afterwards another device of the same kind is not taken for it.
    """

    def __init__(self, wanted: str, usb_ids: Sequence[str], finder: Finder = all_ports) -> None:
        check_form(wanted)
        self._wanted = wanted
        self._usb_ids = usb_ids
        self._finder = finder
        self._known: Port | None = None

    def device(self) -> str:
        """Path or address to open now. Raises PortError (ENOENT: it is not there, ENOTUNIQ: several
        are).
        """
        if is_network(self._wanted):
            return self._wanted
        ports = self._finder()
        match = _USB.fullmatch(self._wanted)
        if match is None:
            return self._by_path(ports)
        found = [port for port in ports if _matches(port, match, self._usb_ids)]
        if self._known is not None:
            found = [port for port in found if port.is_same_device(self._known)]
        if not found:
            raise PortError(errno.ENOENT, self._missing(ports, match))
        if len(found) > 1:
            raise PortError(errno.ENOTUNIQ, _ambiguous(found))
        self._known = found[0]
        return found[0].device

    def _by_path(self, ports: Sequence[Port]) -> str:
        """The path itself, or where its device is now if that has another number."""
        real = os.path.realpath(self._wanted)
        here = next((port for port in ports if os.path.realpath(port.device) == real), None)
        known = self._known
        if known is None:
            self._known = here
        elif known.serial_number and (here is None or not here.is_same_device(known)):
            moved = [port.device for port in ports if port.is_same_device(known)]
            if len(moved) == 1:
                return moved[0]
            raise PortError(errno.ENOENT, f"{known.name} is not plugged in")
        if not Path(self._wanted).exists():
            raise PortError(errno.ENOENT, "it is not there")
        return self._wanted

    def _missing(self, ports: Sequence[Port], match: re.Match[str]) -> str:
        ids = [match[1].lower()] if match[1] else list(self._usb_ids)
        alike = [port.label for port in ports if port.usb_id in ids]
        if alike:
            return f"it is not plugged in; of its kind there is {', '.join(alike)}"
        if not ids:
            return "this kind of meter has no USB id of its own: name its port"
        return f"no USB device {' or '.join(ids)} is plugged in"


def _matches(port: Port, match: re.Match[str], usb_ids: Sequence[str]) -> bool:
    if port.usb_id not in ([match[1].lower()] if match[1] else usb_ids):
        return False
    if match["serial"]:
        return port.serial_number == match["serial"]
    if match["location"]:  # an adapter with several ports has 1-2:1.0, 1-2:1.1 …
        return match["location"] in (port.location, port.location.partition(":")[0])
    return True


def _ambiguous(found: Sequence[Port]) -> str:
    choices = "; ".join(
        f"{port.device}: serial number {port.serial_number or 'none'}, location {port.location}"
        for port in found
    )
    alike = len({port.serial_number for port in found}) < len(found)
    way = f"usb:{found[0].usb_id}" + ("@LOCATION" if alike else ":SERIAL")
    return f"{len(found)} devices fit ({choices}): say which one, as {way} or by its path"


def looks_like(data: bytes, besides: str) -> str:
    """The kind of meter, other than one, that these bytes are a stream of; empty if of none."""
    for kind in registry.kinds():
        if kind == besides:
            continue
        driver = registry.load(kind)
        try:
            meter = driver({own: f"ch_{n}" for n, own in enumerate(driver.own_channels)})
        except (MeterError, AttributeError):  # its channels are known by its settings alone
            continue
        meter.opened()
        if len(meter.feed(data, 0).rows):
            return kind
    return ""


def what_is_here(besides: str = "", finder: Finder = all_ports) -> str:
    """A sentence on the ports of this machine other than one, by what the kernel knows of them."""
    real = os.path.realpath(besides) if besides else ""
    ports = [port for port in finder() if os.path.realpath(port.device) != real]
    labels = "; ".join(map(_label_with_kinds, ports))
    return f"{'Other ports' if besides else 'Ports'} here (none was opened): {labels or 'none'}."


def _label_with_kinds(port: Port) -> str:
    kinds = [kind for kind in registry.kinds() if port.usb_id in registry.load(kind).usb_ids]
    return f"{port.label}, perhaps a {' or '.join(kinds)}" if kinds else port.label
