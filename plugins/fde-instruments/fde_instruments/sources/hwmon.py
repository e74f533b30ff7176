"""Energy and power of the kernel's hardware monitoring: chips on the board, AMD's counters.

`/sys/class/hwmon/hwmon*/` (kernel, Documentation/ABI/testing/sysfs-class-hwmon): `energy*_input` in
µJ counts up and is read at the caller's edges; `power*_average` or `power*_input` in µW is polled,
whichever can be read. For a TI INA chip without a power it is `curr*_input` (mA) × `in*_input` (mV)
of the same number. A quantity is named by its chip and label: `amd_energy/Esocket0`.
Older kernels have these files in `device/`; ACPI's power meters have no label but
`power*_oem_info` (kernel, Documentation/hwmon/acpi_power_meter.rst).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from contract import system_text
from contract.system_text import read_line_or_empty as _text
from fde_instruments.sources import COVERAGE, WORDINGS
from instrumentation.sources import coverage
from instrumentation.sources.counter import PLATFORM_MAX_POWER_W, read_stamped
from instrumentation.sources.polled import PolledSource
from instrumentation.sources.registry import SourceError
from instrumentation.sources.zones import MOST_APART_UJ

ROOT = Path("/sys/class/hwmon")
PERIOD_S = 0.2  # a chip on a bus converts for 1 to 100 ms, and a read of it takes up to 1 ms
LEAST_MACHINE_W = 0.5  # no machine with such a sensor takes less while it reads it
_SATURATED_UW = (2**31 - 1, 2**32 - 1)  # shown by some drivers for no value
# Chips whose current and voltage of one number are those of one rail; from number 4 on of the
# INA3221, `in` is a shunt and `curr` a sum of rails.
_INA, _INA_RAILS = re.compile(r"ina\d.*"), (1, 2, 3)


class HwmonError(SourceError):
    """No sensor can be read; the message has the remedy."""

    WORDINGS = WORDINGS


@dataclass(frozen=True)
class Sensor:
    """A file that shows energy (µJ), power (µW), or current (mA) with the file `voltage` (mV)."""

    name: str
    path: Path
    energy: bool
    voltage: Path | None = None

    def read(self) -> int:
        """Return energy in µJ, or power in µW. Raises OSError."""
        number = system_text.read_number(self.path)
        return number if self.voltage is None else number * system_text.read_number(self.voltage)


class HwmonSource(PolledSource):
    """All sensors of energy, and those of power that have no counter of the same name."""

    name: ClassVar[str] = "hwmon"
    coverage: ClassVar[Path] = COVERAGE
    omitted: str = ""  # a sentence on counters that are not read

    def __init__(self, sensors: Sequence[Sensor], period_s: float) -> None:
        names = [sensor.name for sensor in sensors]
        counters = {s.name: partial(read_stamped, s.read) for s in sensors if s.energy}
        covers = {name: coverage.table().category(name, names) for name in names}
        never_zero = {name for name, category in covers.items() if category and category.never_zero}
        powers = {
            s.name: partial(_power_uw, s, s.name in never_zero) for s in sensors if not s.energy
        }
        averaged_ns = {}  # averaging times of powers that the driver states (ms)
        for sensor in sensors:
            with suppress(OSError):
                interval = sensor.path.with_name(f"{sensor.path.name}_interval")
                averaged_ns[sensor.name] = system_text.read_number(interval) * 10**6
        super().__init__(powers, counters, period_s, names, averaged_ns)

    @classmethod
    def open(cls, root: Path = ROOT, period_s: float = PERIOD_S) -> HwmonSource:
        """Find the sensors and begin to poll those of power. Raises HwmonError."""
        sensors = _candidates(root)
        if not sensors:
            raise HwmonError("no-sensor", root=root)
        readable: list[Sensor] = []
        silent: list[Sensor] = []
        refused: list[Path] = []
        for name, ways in sensors.items():
            denied: list[Path] = []
            for sensor in ways:
                try:
                    sensor.read()
                except PermissionError:
                    denied.append(sensor.path)
                except OSError:
                    pass  # a sensor of a part that is switched off; it may work later
                else:
                    readable.append(sensor)
                    break
            else:
                refused += denied
                covers = coverage.table().category(name)
                if covers and covers.never_zero:  # the others are then incomplete
                    silent.append(ways[0])
        mirrored = _mirrored(readable)
        names = ", ".join(sensor.name for sensor in mirrored)
        readable = [sensor for sensor in readable if sensor not in mirrored]
        if not readable and mirrored:
            raise HwmonError("one-count", sensors=names)
        if not readable and refused:
            raise HwmonError(
                "sensors-root-only", first=refused[0], paths=shlex.join(map(str, refused))
            )
        if not readable:
            raise HwmonError("no-sensor-readable", root=root)
        source = cls([*readable, *silent], period_s)
        if mirrored:
            source.omitted = f"{names} show one count, so they have no joules."
        return source

    @classmethod
    def is_present(cls, root: Path = ROOT) -> bool:
        """Return whether this machine has such a sensor."""
        return bool(discover(root))


def discover(root: Path) -> list[Sensor]:
    """Return each sensor once, by chip and number, without powers that have a counter too."""
    return [ways[0] for ways in _candidates(root).values()]


def _candidates(root: Path) -> Mapping[str, Sequence[Sensor]]:
    """Return the files of each quantity by name, the best first."""
    sensors: dict[str, list[Sensor]] = {}
    # By its device: another one may get this number later.
    for chip in (link.resolve() for link in sorted(root.glob("hwmon*"), key=_number_of)):
        if _text(chip / "device/type") == "Battery":
            continue  # the battery source reads it
        chip_sensors: dict[str, list[Sensor]] = {}
        driver = _text(chip / "name") or _text(chip / "device/name") or chip.name
        if driver == "amdgpu" and "vddnb" in map(_text, chip.glob("in*_label")):
            driver = "amdgpu-apu"  # only APUs have this voltage (kernel, gpu/amdgpu/thermal)
        products = _products(chip) if _INA.fullmatch(driver) else ()
        for sensor in (*(list(_files(chip)) or _files(chip / "device")), *products):
            ways = chip_sensors.setdefault(sensor.name, [])
            if not ways or not ways[0].energy:
                ways.append(sensor)
        for label, ways in chip_sensors.items():
            name = f"{driver}/{label}"
            name = f"{chip.name}-{name}" if name in sensors else name  # another chip of that kind
            sensors[name] = [replace(way, name=name) for way in ways]
    return sensors


def _files(chip: Path) -> Iterator[Sensor]:
    """Yield the sensors of a chip that show energy or power, named by their labels."""
    for path in sorted(chip.glob("energy*_input"), key=_number_of):
        yield Sensor(_label(path, "_input"), path, True)
    for number in sorted({p.name.split("_")[0] for p in chip.glob("power[0-9]*_*")}):
        if _text(chip / f"{number}_is_battery") == "1":
            continue  # charging power is not used by the machine
        for suffix in ("_average", "_input"):  # the mean of an interval loses nothing
            path = chip / f"{number}{suffix}"
            if path.exists():
                yield Sensor(_label(path, suffix), path, False)


def _products(chip: Path) -> Iterator[Sensor]:
    """Yield the rails with current and voltage of a chip that shows no power."""
    if any(chip.glob("power*_input")) or any(chip.glob("power*_average")):
        return
    for number in _INA_RAILS:
        current, voltage = chip / f"curr{number}_input", chip / f"in{number}_input"
        if current.exists() and voltage.exists():
            label = _text(chip / f"curr{number}_label") or _label(voltage, "_input")
            yield Sensor(label, current, False, voltage)


def _mirrored(sensors: Sequence[Sensor]) -> list[Sensor]:
    """Return the energy counters of one chip that show the count of another one there.

    A driver may read one socket's register for all sockets. Separate counters that have counted
    some thousand joules are further apart.
    """
    counts: dict[tuple[Path, int], list[Sensor]] = {}
    for sensor in sensors:
        if sensor.energy and (count_uj := sensor.read()) > 1000 * MOST_APART_UJ:
            counts.setdefault((sensor.path.parent, count_uj // MOST_APART_UJ), []).append(sensor)
    return [sensor for alike in counts.values() if len(alike) > 1 for sensor in alike]


def _power_uw(sensor: Sensor, never_zero: bool) -> int:
    """Return a sensor's power in µW.

    Raises OSError for an impossible power: if the firmware answers with all bits set or, for a
    running machine, with 0 or in another unit.
    """
    power_uw = sensor.read()
    if power_uw in _SATURATED_UW:
        raise OSError(f"it shows {power_uw} µW, the largest number of its kind")
    if never_zero and power_uw < LEAST_MACHINE_W * 1e6:
        raise OSError(f"it shows less than {LEAST_MACHINE_W:g} W, and the machine runs")
    if abs(power_uw) > PLATFORM_MAX_POWER_W * 1e6:
        raise OSError(f"it shows more than {PLATFORM_MAX_POWER_W / 1e3:g} kW")
    return power_uw


def _label(path: Path, suffix: str) -> str:
    stem = path.name.removesuffix(suffix)
    for name in (f"{stem}_label", f"{stem}_oem_info", f"device/{stem}_oem_info"):
        if label := _text(path.parent / name).replace("/", "-"):
            return label
    return stem


def _number_of(path: Path) -> int:
    digits = "".join(c for c in path.name if c.isdigit())
    return int(digits) if digits else 0
