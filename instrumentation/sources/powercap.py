"""RAPL counters from the kernel's powercap files, read at the price of one system call each.

Layout: `/sys/class/powercap/intel-rapl/intel-rapl:N[/intel-rapl:N:M]/{name,energy_uj,
max_energy_range_uj}` (kernel, Documentation/power/powercap). `intel-rapl-mmio` shows package
counters a second time; its zones are used only where `intel-rapl` has none of that name.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from instrumentation.clock import monotonic_ns
from instrumentation.sources.counter import ReadFailure, Reading

ROOT = Path("/sys/class/powercap")
_CONTROL_TYPES = ("intel-rapl", "intel-rapl-mmio")
_TOP_ZONE = re.compile(r"intel-rapl(?:-mmio)?:\d+")


class PowercapError(Exception):
    """No counter can be read; the message gives the command that mends it."""


@dataclass(frozen=True)
class Zone:
    """One counter. `name` is the kernel's: package-0, package-0-die-1, psys, and below a package
    core, uncore or dram, led by the package's (`package-1/dram`) where there are several packages.
    `max_range_uj` is None where the kernel does not tell it."""

    name: str
    path: Path
    max_range_uj: int | None


def _name(zone: Path) -> str:
    return (zone / "name").read_text(encoding="ascii").strip()


def _max_range_uj(zone: Path) -> int | None:
    try:
        return int((zone / "max_energy_range_uj").read_text(encoding="ascii")) or None
    except (OSError, ValueError):
        return None


def _numbered(folder: Path, pattern: str) -> list[Path]:
    """Zone folders in the order of their numbers."""
    zones = [zone for zone in folder.glob(pattern) if (zone / "name").is_file()]
    return sorted(zones, key=lambda zone: [int(n) for n in re.findall(r"\d+", zone.name)])


def _top_zones(root: Path, control_type: str) -> list[Path]:
    """Top zones below their control type, or beside it where only the flat links are there."""
    for folder in (root / control_type, root):
        zones = _numbered(folder, f"{control_type}:*")
        tops = [zone for zone in zones if _TOP_ZONE.fullmatch(zone.name)]
        if tops:
            return tops
    return []


def discover(root: Path = ROOT) -> tuple[Zone, ...]:
    """All counters below a powercap tree, each once, in the kernel's order."""
    found: dict[str, Zone] = {}
    for control_type in _CONTROL_TYPES:
        tops = {top: _name(top) for top in _top_zones(root, control_type)}
        packages = sum(name.startswith("package") for name in tops.values())
        for name, path in _named_zones(tops, control_type, packages > 1):
            found.setdefault(name, Zone(name, path, _max_range_uj(path)))
    return tuple(found.values())


def _named_zones(
    tops: Mapping[Path, str], control_type: str, several: bool
) -> Iterator[tuple[str, Path]]:
    for top, top_name in tops.items():
        yield top_name, top
        for child in _numbered(top, f"{control_type}:*:*"):
            name = _name(child)
            plain = not several and top_name.startswith("package")
            yield (name if plain else f"{top_name}/{name}"), child


class PowercapSource:
    """The counters of this machine, their files held open."""

    def __init__(self, zones: tuple[Zone, ...], descriptors: tuple[int, ...]) -> None:
        self.zones = zones
        self._descriptors = descriptors

    @classmethod
    def open(cls, root: Path = ROOT) -> PowercapSource:
        """Find the counters and open them. Raises PowercapError."""
        zones = discover(root)
        if not zones:
            raise PowercapError(
                f"There is no RAPL zone under {root}: load the driver with "
                "`sudo modprobe intel_rapl_msr`, or name another energy source."
            )
        descriptors: list[int] = []
        try:
            for zone in zones:
                descriptors.append(os.open(zone.path / "energy_uj", os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            for descriptor in descriptors:
                os.close(descriptor)
            raise PowercapError(_cannot_open(zones, error)) from None
        return cls(zones, tuple(descriptors))

    def read(self) -> dict[str, Reading | ReadFailure]:
        """Every counter by zone name; a zone that cannot be read gives the reason instead."""
        readings: dict[str, Reading | ReadFailure] = {}
        for zone, descriptor in zip(self.zones, self._descriptors, strict=True):
            t_before_ns = monotonic_ns()
            try:
                energy_uj = int(os.pread(descriptor, 32, 0))
            except (OSError, ValueError) as error:
                readings[zone.name] = ReadFailure(t_before_ns, str(error))
            else:
                readings[zone.name] = Reading(t_before_ns, monotonic_ns(), energy_uj)
        return readings

    def close(self) -> None:
        """Close the files. The source is not used after this."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = ()

    def __enter__(self) -> PowercapSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _cannot_open(zones: tuple[Zone, ...], error: OSError) -> str:
    if not isinstance(error, PermissionError):
        return f"{error.filename} cannot be opened: {error.strerror}."
    files = " ".join(shlex.quote(str(zone.path / "energy_uj")) for zone in zones)
    return f"{error.filename} may be read by root only: run as root, or `sudo chmod a+r {files}`."
