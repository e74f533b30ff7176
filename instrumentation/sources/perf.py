"""RAPL counters from perf_event: the kernel extends them to 64 bits, so they never wrap.

`/sys/bus/event_source/devices/power` describes them: `type`, `cpumask` (one processor for each
package or die), and for each event `events/energy-pkg` (`event=0x02`), its `.scale` and its `.unit`
(kernel, arch/x86/events/rapl.c). A counter is opened by perf_event_open(2) and gives the count
since then at each read.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import ClassVar

from contract.system_text import read_line as _text
from instrumentation.sources.counter import ReadFailure, Reading, read_stamped, reason
from instrumentation.sources.registry import SourceError
from instrumentation.sources.zones import HeldZones, Zone, default_max_power_w, watch_counters

SYS = Path("/sys")
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")

# Names of the kinds in perf_event and in powercap.
_KINDS = {"pkg": "package", "cores": "core", "gpu": "uncore", "ram": "dram", "psys": "psys"}
# System call numbers of perf_event_open (kernel, arch/x86/entry/syscalls). RAPL is x86 only.
_SYSTEM_CALL = {"x86_64": 298, "i686": 336}
# struct perf_event_attr, first version: type, size, config, sample_period, sample_type,
# read_format, flags, wakeup_events, bp_type, config1.
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
_CLOSE_ON_EXEC = 8
_COUNT = struct.Struct("=Q")


class PerfError(SourceError):
    """No perf_event counter can be read; the message gives the command that fixes it."""


@dataclass(frozen=True)
class Event:
    """One counter on one processor; µJ are its count times `uj_per_count`."""

    zone: Zone
    type: int
    config: int
    cpu: int
    uj_per_count: Fraction

    def energy_uj(self, count: int) -> int:
        """Return a count in µJ, rounded down."""
        return count * self.uj_per_count.numerator // self.uj_per_count.denominator


class PerfSource(HeldZones):
    """All energy counters of the `power` unit, named as in the powercap source."""

    name: ClassVar[str] = "perf"

    def __init__(self, events: tuple[Event, ...], descriptors: tuple[int, ...]) -> None:
        super().__init__(tuple(event.zone for event in events), descriptors)
        self._events = events

    @classmethod
    def open(cls, root: Path = SYS) -> PerfSource:
        """Find the counters and start them. Raises PerfError."""
        unit = root / "bus/event_source/devices/power"
        try:
            events = tuple(_events(root, unit))
        except FileNotFoundError as error:
            raise PerfError("no-perf-events", path=error.filename) from None
        except (OSError, ValueError) as error:
            raise PerfError("perf-unreadable", unit=unit, error=error) from None
        if not events:
            raise PerfError("no-joules", unit=unit)
        descriptors: list[int] = []
        try:
            for event in events:
                descriptors.append(_open(event))
        except OSError as error:
            for descriptor in descriptors:
                os.close(descriptor)
            raise _refused(event, error) from None
        source = cls(events, tuple(descriptors))
        reads = [partial(source.value_uj, index) for index in range(len(events))]
        source.zones = watch_counters(source.zones, reads)
        return source

    @classmethod
    def is_present(cls, root: Path = SYS) -> bool:
        """Return whether the kernel has the unit."""
        return (root / "bus/event_source/devices/power").exists()

    def read(self) -> dict[str, Reading | ReadFailure]:
        """Return each counter's energy since `open` by zone name; the reason if a read failed."""
        return {
            zone.name: read_stamped(partial(_energy_uj, event, descriptor), zone.update_ns or 0)
            for zone, event, descriptor in zip(
                self.zones, self._events, self._descriptors, strict=True
            )
        }

    def value_uj(self, index: int) -> int | None:
        """Return one counter's count; None if it cannot be read."""
        try:
            return _energy_uj(self._events[index], self._descriptors[index])
        except OSError:  # each read gives the reason
            return None


def _energy_uj(event: Event, descriptor: int) -> int:
    data = os.read(descriptor, _COUNT.size)
    if len(data) != _COUNT.size:  # the kernel's sign of a counter in error
        raise OSError("the counter gave no count")
    return event.energy_uj(_COUNT.unpack(data)[0])


def _events(root: Path, unit: Path) -> Iterator[Event]:
    """Yield every event in joules on every processor of the mask."""
    kind = int(_text(unit / "type"))
    spans = [part.partition("-") for part in _text(unit / "cpumask").split(",") if part]
    cpus = [n for first, _, last in spans for n in range(int(first), int(last or first) + 1)]
    packages = _package_names(root, cpus)
    several = len(cpus) > 1
    names: set[str] = set()
    for file in sorted((unit / "events").glob("energy-*")):
        zone_kind = _KINDS.get(file.name.removeprefix("energy-"))
        if zone_kind is None or _text(Path(f"{file}.unit")) != "Joules":
            continue
        scale = Fraction(_text(Path(f"{file}.scale"))) * 10**6
        config = re.fullmatch(r"event=(0x[0-9a-fA-F]+|\d+)", _text(file))
        if config is None:
            raise ValueError(f"the event {_text(file)!r} is of an unknown form")
        for cpu in cpus:
            name, parent = _zone_name(zone_kind, packages[cpu], several)
            if name in names:  # there is one platform, even if it is read on several dies
                continue
            names.add(name)
            most_uj = (2**64 - 1) * scale.numerator // scale.denominator
            zone = Zone(name, file, most_uj, parent, None, default_max_power_w(name))
            yield Event(zone, kind, int(config[1], 0), cpu, scale)


def _zone_name(kind: str, package: str, several: bool) -> tuple[str, str | None]:
    """Return name and parent of a zone as the powercap source gives them."""
    if kind == "package":
        return package, None
    if kind == "psys":
        number = package.split("-")[1]
        return ("psys" if number == "0" else f"psys-{number}"), None
    return (f"{package}/{kind}" if several else kind), package


def _package_names(root: Path, cpus: list[int]) -> dict[int, str]:
    """Return the package of each processor, with the die if the mask has several of a package."""

    def topology(cpu: int, file: str) -> int:
        return int(_text(root / f"devices/system/cpu/cpu{cpu}/topology/{file}"))

    packages = {cpu: topology(cpu, "physical_package_id") for cpu in cpus}
    counts = Counter(packages.values())
    return {
        cpu: f"package-{package}"
        + (f"-die-{topology(cpu, 'die_id')}" if counts[package] > 1 else "")
        for cpu, package in packages.items()
    }


def _open(event: Event) -> int:
    machine = platform.machine()
    number = _SYSTEM_CALL.get(machine)
    if number is None:
        raise OSError(f"perf_event_open has no known number on {machine}")
    attributes = _ATTRIBUTES.pack(event.type, _ATTRIBUTES.size, event.config, *[0] * 7)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    libc = ctypes.CDLL(None, use_errno=True)
    every_process, no_group = -1, -1
    arguments = (every_process, event.cpu, no_group, _CLOSE_ON_EXEC)
    descriptor = int(libc.syscall(number, buffer, *map(ctypes.c_long, arguments)))
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return descriptor


def _refused(event: Event, error: OSError) -> PerfError:
    facts = {"zone": event.zone.name, "cpu": event.cpu}
    if not isinstance(error, PermissionError):
        return PerfError("counter-unopened", **facts, error=reason(error))
    try:
        level = f" (kernel.perf_event_paranoid is {_text(PARANOID)})"
    except OSError:
        level = ""
    return PerfError("counter-root-only", **facts, level=level)
