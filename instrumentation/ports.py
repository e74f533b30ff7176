"""Find the port of a meter: by a path, by its USB identity, or by a network address.

A `port` of the inventory is a path, or `usb:VVVV:PPPP`, `usb:VVVV:PPPP:SERIAL`,
`usb:VVVV:PPPP@LOCATION` (a place in the tree of hubs, such as 1-2.3), or `usb`: any device with one
of the driver's ids. It is looked up again at each opening, for a meter that is plugged in again may
get another number. In another socket it is accepted by a unique serial number; many adapters have
none, or all of a kind the same. On a network it is at `http://HOST[:PORT]`, `https://…`,
`TCPIP::HOST::PORT::SOCKET`, VISA's name of an instrument, or at a driver's `SCHEME://HOST[:PORT]`.
A network is never searched.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from serial.tools import list_ports

from contract import names, system_text
from contract.problem import ProblemError
from instrumentation.meters import registry
from instrumentation.meters.base import MeterError

_USB = re.compile(r"usb(?::([0-9a-fA-F]{4}:[0-9a-fA-F]{4})(?::(?P<serial>.+)|@(?P<location>.+))?)?")
_URL = re.compile(r"[a-z]+://(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(?::\d{1,5})?/?")
_VISA = re.compile(r"TCPIP\d*::[A-Za-z0-9_.-]+::(?:\d{1,5}::SOCKET|(?:\w+::)?INSTR)")
_NETWORK = re.compile(r"\w+://|TCPIP\d*::")
# A part of an address that contains a login.
SECRET_QUERY = re.compile(
    r"[?&;#][\w-]*(?:pass|passwd|password|pwd|token|secret|key|auth|sig|signature|login)=",
    re.IGNORECASE,
)
# Serial numbers of counterfeit FT232R chips, all of which have the same.
_COUNTERFEIT = frozenset({"A50285BI", "A601CKQK", "FTB6SPL3"})
_LEAST_SERIAL = 5  # characters besides leading zeros
_PTY_MAJORS = range(136, 144)  # kernel, Documentation/admin-guide/devices.txt


class PortError(ProblemError, OSError):
    """A name that stands for no port, or for several; `strerror` is a sentence for people."""

    def __init__(self, number: int, cause: str, **facts: object) -> None:
        super().__init__(cause, **facts)
        self.errno, self.strerror = number, str(self.problems[0])


@dataclass(frozen=True, slots=True)
class Port:
    """A port of this machine. `usb_id` is `vvvv:pppp`, empty if it is not a USB device."""

    device: str
    usb_id: str = ""
    serial_number: str = ""
    location: str = ""
    description: str = ""

    @property
    def name(self) -> str:
        """Name for the inventory, unique if possible."""
        if not self.usb_id:
            return self.device
        if is_identifying(self.serial_number):
            return f"usb:{self.usb_id}:{self.serial_number}"
        return self.name_of_socket

    @property
    def name_of_socket(self) -> str:
        """Name of the device with this USB id in this socket."""
        return f"usb:{self.usb_id}@{self.location}"

    @property
    def label(self) -> str:
        """Device, name and description, for people."""
        details = [self.name] if self.usb_id else []
        details += [self.description] if self.description else []
        return f"{self.device} ({', '.join(details)})" if details else self.device

    def is_same_kind(self, other: Port) -> bool:
        """Return whether USB id and serial number, if any, are the same."""
        return (self.usb_id, self.serial_number) == (other.usb_id, other.serial_number)

    def is_same_device(self, other: Port) -> bool:
        """Return whether both are the same port of the same device, perhaps at different times.

        A device is identified by a unique serial number, otherwise by its socket.
        """
        if not self.is_same_kind(other):
            return False
        if not self.usb_id:
            return self.device == other.device
        if not is_identifying(self.serial_number):
            return self.location == other.location
        return self.location.partition(":")[2] == other.location.partition(":")[2]


def is_identifying(serial_number: str) -> bool:
    """Return whether a USB serial number is likely to be unique.

    Many are the same for all devices of a kind: a CP2102 is sold with 0001, others with 0,
    000000000001, 123456 or AAAAAAAA, and counterfeit chips share those that they were copied from.
    """
    core = serial_number.lstrip("0")
    is_sequence = {ord(after) - ord(before) for before, after in pairwise(core)} <= {1}
    is_varied = len(core) >= _LEAST_SERIAL and len(set(core)) > 2
    return is_varied and not is_sequence and core not in _COUNTERFEIT


Finder = Callable[[], Sequence[Port]]


def has_chip(name: str, sys_class: Path = Path("/sys/class/tty")) -> bool:
    """Return whether a built-in port has a chip; the kernel creates dozens that have none.

    pyserial 3.5 knows those by a subsystem that Linux 6.5 renamed (pyserial, issue 763). Their type
    is 0 (linux/serial_core.h, PORT_UNKNOWN); other drivers' ports have no type.
    """
    if not name.startswith("ttyS"):
        return True
    return system_text.read_line_or_empty(sys_class / name / "type") not in ("", "0")


def serial_ports() -> list[Port]:
    """Return the serial ports of this machine that have a chip, as pyserial lists them."""
    try:
        ports = list_ports.comports()
    except (OSError, TypeError, ValueError):  # a device vanished while its attributes were read
        return []
    return [
        Port(
            device=port.device,
            usb_id=f"{port.vid:04x}:{port.pid:04x}" if port.vid is not None else "",
            serial_number=port.serial_number or "",
            location=port.location or "",
            description=port.description if port.description not in (port.name, "n/a") else "",
        )
        for port in sorted(ports)
        if has_chip(port.name)
    ]


def usbtmc_ports(sys_class: Path = Path("/sys/class/usbmisc")) -> list[Port]:
    """Return the USB test and measurement devices (`/dev/usbtmcN`) of this machine."""
    ports = []
    for entry in sorted(sys_class.glob("usbtmc*")):
        interface = (entry / "device").resolve()
        usb = interface.parent
        vendor, product_id, serial, *names_of_device = (
            names.printable(system_text.read_line_or_empty(usb / name))
            for name in ("idVendor", "idProduct", "serial", "manufacturer", "product")
        )
        if not vendor or not product_id:
            continue
        ports.append(
            Port(
                device=f"/dev/{entry.name}",
                usb_id=f"{vendor}:{product_id}",
                serial_number=serial,
                location=usb.name,
                description=" ".join(filter(None, names_of_device)),
            )
        )
    return ports


def all_ports() -> list[Port]:
    """Return every port that a meter could be at."""
    return [*serial_ports(), *usbtmc_ports()]


def is_pseudo_terminal(path: str) -> bool:
    """Return whether a path, links followed, is the slave end of a pseudo-terminal."""
    if os.path.realpath(path).startswith("/dev/pts/"):
        return True
    try:
        return os.major(Path(path).stat().st_rdev) in _PTY_MAJORS
    except OSError:
        return False


def is_network(port: str) -> bool:
    """Return whether a port of the inventory is an address on a network."""
    return _NETWORK.match(port) is not None


def form_of(port: str) -> str:
    """Return the form of a port: `http` or another scheme, `tcpip`, or `port` of this machine."""
    if not is_network(port):
        return "port"
    return "tcpip" if port.startswith("TCPIP") else port.partition(":")[0]


def check_form(port: str) -> None:
    """Raise ValueError, with a sentence, if a port starts like an address or USB id but is none."""
    if is_network(port) and not (_URL.fullmatch(port) or _VISA.fullmatch(port)):
        if "@" in port or SECRET_QUERY.search(port):  # not shown: it may contain a password
            raise ValueError("a login does not belong into the address: put it into secret_file.")
        raise ValueError(
            f"{port} names no meter: write http://HOST or https://HOST, each with :PORT where it "
            "is another than usual, or TCPIP::HOST::PORT::SOCKET."
        )
    if (port == "usb" or port.startswith("usb:")) and not _USB.fullmatch(port):
        raise ValueError(
            f"{port} names no port: write usb:VVVV:PPPP, usb:VVVV:PPPP:SERIAL, "
            "usb:VVVV:PPPP@LOCATION, usb, or a path."
        )


class Lookup:
    """A search for one meter's device that finds the same one in whichever socket it is.

    `port` is that of the inventory, `usb_ids` those of the driver. The device of the first search
    is remembered as `device_port` (an earlier recorder may have set it); later searches accept only
    that device.
    """

    def __init__(self, port: str, usb_ids: Sequence[str], finder: Finder = all_ports) -> None:
        check_form(port)
        self._port = port
        self._match = _USB.fullmatch(port)
        self._usb_ids = usb_ids
        self._finder = finder
        self.device_port: Port | None = None

    def device(self) -> str:
        """Return the path or address to open now.

        Raises PortError (ENOENT: no such device, ENOTUNIQ: several).
        """
        if is_network(self._port):
            return self._port
        ports = self._finder()
        first = self.device_port
        self.device_port = self._find_first(ports) if first is None else self._find(ports, first)
        device = self.device_port.device
        is_same = os.path.realpath(device) == os.path.realpath(self._port)
        return self._port if is_same else device

    def _find_first(self, ports: Sequence[Port]) -> Port:
        """Find the device before any was opened."""
        if self._match is None:
            if not Path(self._port).exists():
                raise PortError(errno.ENOENT, "path-absent")
            return self._at_path(ports) or Port(self._port)
        matching = self._matching(ports, self._match)
        if not matching:
            raise self._missing(ports, self._match)
        if len(matching) > 1:
            raise _ambiguous(matching)
        return matching[0]

    def _find(self, ports: Sequence[Port], first: Port) -> Port:
        """Find the device that was opened first."""
        match, at_path = self._match, self._at_path(ports)
        if not first.usb_id and at_path in (None, first):
            if not Path(self._port).exists():
                raise PortError(errno.ENOENT, "path-absent")
            return first
        matching = ports if match is None else self._matching(ports, match)
        same = [port for port in matching if port.is_same_device(first)]
        if len(same) > 1:  # of two with one serial number, the one that did not move
            same = [port for port in same if port.location == first.location]
        if len(same) == 1:
            return same[0]
        alike = [port for port in matching if port.usb_id and port.is_same_kind(first)]
        if alike:
            serial = first.serial_number
            why = "it has no serial number"
            why = f"others have the serial number {serial}, too" if serial else why
            facts = {"device": alike[0].device, "socket": alike[0].location, "reason": why}
            facts |= {"before": first.location, "port": alike[0].name_of_socket}
            raise PortError(errno.ENOTUNIQ, "device-moved", **facts)
        if match is not None:
            raise self._missing(ports, match)
        other = f"; {self._port} is {at_path.label} now" if at_path is not None else ""
        raise PortError(errno.ENOENT, "device-gone", device=first.name, other=other)

    def _at_path(self, ports: Sequence[Port]) -> Port | None:
        real = os.path.realpath(self._port)
        return next((port for port in ports if os.path.realpath(port.device) == real), None)

    def _matching(self, ports: Sequence[Port], match: re.Match[str]) -> list[Port]:
        return [port for port in ports if _matches(port, match, self._usb_ids)]

    def _missing(self, ports: Sequence[Port], match: re.Match[str]) -> PortError:
        ids = [match[1].lower()] if match[1] else list(self._usb_ids)
        alike = [port.label for port in ports if port.usb_id in ids]
        if alike:
            return PortError(errno.ENOENT, "device-absent", alike=", ".join(alike))
        if not ids:
            return PortError(errno.ENOENT, "no-usb-id")
        return PortError(errno.ENOENT, "no-usb-device", ids=" or ".join(ids))


def _matches(port: Port, match: re.Match[str], usb_ids: Sequence[str]) -> bool:
    if port.usb_id not in ([match[1].lower()] if match[1] else usb_ids):
        return False
    if match["serial"]:
        return port.serial_number == match["serial"]
    if match["location"]:  # an adapter with several ports has 1-2:1.0, 1-2:1.1 …
        return match["location"] in (port.location, port.location.partition(":")[0])
    return True


def _ambiguous(ports: Sequence[Port]) -> PortError:
    choices = "; ".join(
        f"{port.device}: serial number {port.serial_number or 'none'}, location {port.location}"
        for port in ports
    )
    serials = {port.serial_number for port in ports}
    alike = len(serials) < len(ports) or not all(map(is_identifying, serials))
    way = f"usb:{ports[0].usb_id}" + ("@LOCATION" if alike else ":SERIAL")
    facts = {"count": len(ports), "choices": choices, "form": way}
    return PortError(errno.ENOTUNIQ, "several-devices", **facts)


def recognise_kind(data: bytes, besides: str) -> str:
    """Return the kind of meter, other than `besides`, that sends such bytes; empty if none does."""
    for kind in registry.kinds():
        if kind == besides:
            continue
        driver = registry.load(kind)
        try:
            meter = driver({key: f"ch_{n}" for n, key in enumerate(driver.own_channels)})
        except (MeterError, AttributeError):  # only its settings name its channels
            continue
        meter.opened()
        if len(meter.feed(data, 0).rows):
            return kind
    return ""


def describe_ports(besides: str = "", finder: Finder = all_ports) -> str:
    """Describe the ports of this machine other than `besides` in a sentence; opens none."""
    real = os.path.realpath(besides) if besides else ""
    ports = [port for port in finder() if os.path.realpath(port.device) != real]
    labels = []
    for port in ports:
        kinds = [kind for kind in registry.kinds() if port.usb_id in registry.load(kind).usb_ids]
        labels.append(f"{port.label}, perhaps a {' or '.join(kinds)}" if kinds else port.label)
    shown = "; ".join(labels) or "none"
    return f"{'Other ports' if besides else 'Ports'} here (none was opened): {shown}."
