"""Which port a meter is at: named by a path, by its USB identity, or by a network address.

A `port` of the inventory is a path, or `usb:VVVV:PPPP`, `usb:VVVV:PPPP:SERIAL`,
`usb:VVVV:PPPP@LOCATION` (a place in the tree of hubs, such as 1-2.3), or `usb` alone: whatever has
one of the driver's own ids. It is looked up again at each opening, for a meter that is plugged in
again may get another number. In another socket it is accepted by a serial number that no other
adapter has; many adapters have none, or all of a kind the same. On a network it is at
`http://HOST[:PORT]`, `https://…`, `ipmi://HOST[:PORT]` or `TCPIP::HOST::PORT::SOCKET`, VISA's name
of an instrument; what is not named there is not looked for.
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
_URL = re.compile(r"(https?|ipmi)://(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(?::\d{1,5})?/?")
_VISA = re.compile(r"TCPIP\d*::[A-Za-z0-9_.-]+::(?:\d{1,5}::SOCKET|(?:\w+::)?INSTR)")
_NETWORK = re.compile(r"\w+://|TCPIP\d*::")
# A part of an address that holds a login.
SECRET_QUERY = re.compile(
    r"[?&;#][\w-]*(?:pass|passwd|password|pwd|token|secret|key|auth|sig|signature|login)=",
    re.IGNORECASE,
)
# Serial numbers of counterfeit FT232R chips, all of which have the same.
_COUNTERFEIT = frozenset({"A50285BI", "A601CKQK", "FTB6SPL3"})
_LEAST_SERIAL = 5  # characters besides leading zeros
_PTY_MAJORS = range(136, 144)  # kernel, Documentation/admin-guide/devices.txt


class PortError(ProblemError, OSError):
    """No port, or more than one, is meant by a name; `strerror` is a sentence for people."""

    def __init__(self, number: int, cause: str, **facts: object) -> None:
        super().__init__(cause, **facts)
        self.errno, self.strerror = number, str(self.problems[0])


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
        if is_identifying(self.serial_number):
            return f"usb:{self.usb_id}:{self.serial_number}"
        return self.name_of_socket

    @property
    def name_of_socket(self) -> str:
        """How to call whatever has this USB id in this socket."""
        return f"usb:{self.usb_id}@{self.location}"

    @property
    def label(self) -> str:
        """Device and name, for people."""
        words = [self.name] if self.usb_id else []
        words += [self.description] if self.description not in ("", "n/a") else []
        return f"{self.device} ({', '.join(words)})" if words else self.device

    def is_same_kind(self, other: Port) -> bool:
        """Whether USB id and serial number, if any, are the same."""
        return (self.usb_id, self.serial_number) == (other.usb_id, other.serial_number)

    def is_same_device(self, other: Port) -> bool:
        """Whether both are the same port of the same thing at perhaps different times.

        By a serial number that no other thing has, else by its socket.
        """
        if not self.is_same_kind(other):
            return False
        if not self.usb_id:
            return self.device == other.device
        if not is_identifying(self.serial_number):
            return self.location == other.location
        return self.location.partition(":")[2] == other.location.partition(":")[2]


def is_identifying(serial_number: str) -> bool:
    """Whether a USB serial number may be taken for that of one device alone.

    Many are the same for all of a kind: a CP2102 is sold with 0001, others with 0, 000000000001,
    123456 or AAAAAAAA, and counterfeit chips share those that they were copied from.
    """
    core = serial_number.lstrip("0")
    counted = {ord(after) - ord(before) for before, after in pairwise(core)} <= {1}
    varied = len(core) >= _LEAST_SERIAL and len(set(core)) > 2
    return varied and not counted and core not in _COUNTERFEIT


Finder = Callable[[], Sequence[Port]]


def has_chip(name: str, sys_class: Path = Path("/sys/class/tty")) -> bool:
    """Whether the kernel knows a chip behind a built-in port; it makes dozens that have none.

    pyserial 3.5 knows those by a subsystem that Linux 6.5 renamed (pyserial, issue 763). Their type
    is 0 (linux/serial_core.h, PORT_UNKNOWN), and what is no port of a driver of chips has none.
    """
    if not name.startswith("ttyS"):
        return True
    return system_text.read_line_or_empty(sys_class / name / "type") not in ("", "0")


def serial_ports() -> list[Port]:
    """Return the serial ports of this machine, as pyserial lists them, but those without a chip."""
    try:
        ports = list_ports.comports()
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
        for port in sorted(ports)
        if has_chip(port.name)
    ]


def usbtmc_ports(sys_class: Path = Path("/sys/class/usbmisc")) -> list[Port]:
    """Return the USB test and measurement devices (`/dev/usbtmcN`) of this machine."""
    ports = []
    for entry in sorted(sys_class.glob("usbtmc*")):
        interface = (entry / "device").resolve()
        usb = interface.parent
        vendor, product_id, serial, *words = (
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
                description=" ".join(word for word in words if word),
            )
        )
    return ports


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
    """`http`, `https`, `ipmi`, `tcpip`, or `port` of this machine."""
    if not is_network(wanted):
        return "port"
    return "tcpip" if wanted.startswith("TCPIP") else wanted.partition(":")[0]


def check_form(wanted: str) -> None:
    """Raise ValueError, with a sentence, where a name looks like one of these and is none."""
    if is_network(wanted) and not (_URL.fullmatch(wanted) or _VISA.fullmatch(wanted)):
        if "@" in wanted or SECRET_QUERY.search(wanted):  # not shown: it may hold a password
            raise ValueError("a login does not belong into the address: put it into secret_file.")
        raise ValueError(
            f"{wanted} names no meter: write http://HOST, https://HOST or ipmi://HOST, each with "
            ":PORT where it is another than usual, or TCPIP::HOST::PORT::SOCKET."
        )
    if (wanted == "usb" or wanted.startswith("usb:")) and not _USB.fullmatch(wanted):
        raise ValueError(
            f"{wanted} names no port: write usb:VVVV:PPPP, usb:VVVV:PPPP:SERIAL, "
            "usb:VVVV:PPPP@LOCATION, usb, or a path."
        )


class Lookup:
    """Finds one meter's device, again and again: the same one, wherever it has been plugged in.

    `wanted` is the `port` of the inventory, `usb_ids` those of the driver. What was found first is
    remembered (`known`, which an earlier recorder may have found): afterwards only what is known to
    be the same device is taken for it.
    """

    def __init__(
        self,
        wanted: str,
        usb_ids: Sequence[str],
        finder: Finder = all_ports,
        known: Port | None = None,
    ) -> None:
        check_form(wanted)
        self._wanted = wanted
        self._match = _USB.fullmatch(wanted)
        self._usb_ids = usb_ids
        self._finder = finder
        self.known = known

    def device(self) -> str:
        """Path or address to open now.

        Raises PortError (ENOENT: it is not there, ENOTUNIQ: several are).
        """
        if is_network(self._wanted):
            return self._wanted
        ports = self._finder()
        port = self._first(ports) if self.known is None else self._again(ports, self.known)
        self.known = port
        is_here = os.path.realpath(port.device) == os.path.realpath(self._wanted)
        return self._wanted if is_here else port.device

    def _first(self, ports: Sequence[Port]) -> Port:
        """Return what the name means before anything was opened."""
        if self._match is None:
            if not Path(self._wanted).exists():
                raise PortError(errno.ENOENT, "path-absent")
            return self._at_path(ports) or Port(self._wanted)
        fitting = self._fitting(ports, self._match)
        if not fitting:
            raise self._missing(ports, self._match)
        if len(fitting) > 1:
            raise _ambiguous(fitting)
        return fitting[0]

    def _again(self, ports: Sequence[Port], known: Port) -> Port:
        """Where the device that was opened first is now."""
        match, at_path = self._match, self._at_path(ports)
        if not known.usb_id and at_path in (None, known):
            if not Path(self._wanted).exists():
                raise PortError(errno.ENOENT, "path-absent")
            return known
        fitting = ports if match is None else self._fitting(ports, match)
        same = [port for port in fitting if port.is_same_device(known)]
        if len(same) > 1:  # of two with one serial number, the one that did not move
            same = [port for port in same if port.location == known.location]
        if len(same) == 1:
            return same[0]
        alike = [port for port in fitting if port.usb_id and port.is_same_kind(known)]
        if alike:
            serial = known.serial_number
            why = "it has no serial number"
            why = f"others have the serial number {serial}, too" if serial else why
            facts = {"device": alike[0].device, "socket": alike[0].location, "reason": why}
            facts |= {"before": known.location, "port": alike[0].name_of_socket}
            raise PortError(errno.ENOTUNIQ, "device-moved", **facts)
        if match is not None:
            raise self._missing(ports, match)
        other = f"; {self._wanted} is {at_path.label} now" if at_path is not None else ""
        raise PortError(errno.ENOENT, "device-gone", device=known.name, other=other)

    def _at_path(self, ports: Sequence[Port]) -> Port | None:
        real = os.path.realpath(self._wanted)
        return next((port for port in ports if os.path.realpath(port.device) == real), None)

    def _fitting(self, ports: Sequence[Port], match: re.Match[str]) -> list[Port]:
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


def looks_like(data: bytes, besides: str) -> str:
    """Return the kind of meter, other than one, that these bytes are a stream of.

    Empty if of none.
    """
    for kind in registry.kinds():
        if kind == besides:
            continue
        driver = registry.load(kind)
        try:
            meter = driver({key: f"ch_{n}" for n, key in enumerate(driver.own_channels)})
        except (MeterError, AttributeError):  # its channels are known by its settings alone
            continue
        meter.opened()
        if len(meter.feed(data, 0).rows):
            return kind
    return ""


def what_is_here(besides: str = "", finder: Finder = all_ports) -> str:
    """Return a sentence on the other ports of this machine, by what the kernel knows of them."""
    real = os.path.realpath(besides) if besides else ""
    ports = [port for port in finder() if os.path.realpath(port.device) != real]
    labels = []
    for port in ports:
        kinds = [kind for kind in registry.kinds() if port.usb_id in registry.load(kind).usb_ids]
        labels.append(f"{port.label}, perhaps a {' or '.join(kinds)}" if kinds else port.label)
    shown = "; ".join(labels) or "none"
    return f"{'Other ports' if besides else 'Ports'} here (none was opened): {shown}."
