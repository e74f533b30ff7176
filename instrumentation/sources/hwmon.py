"""Energy and power of the kernel's hardware monitoring: chips on the board, AMD's counters.

`/sys/class/hwmon/hwmon*/` (kernel, Documentation/ABI/testing/sysfs-class-hwmon): `energy*_input` in
µJ counts up and is read at the caller's edges; `power*_average` or `power*_input` in µW is polled.
A quantity is named by its chip and label: `amd_energy/Esocket0`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from instrumentation.sources.counter import not_a_number, stamped
from instrumentation.sources.polled import PolledSource
from instrumentation.sources.registry import SourceError

ROOT = Path("/sys/class/hwmon")
PERIOD_S = 0.2  # a chip on a bus converts for 1 to 100 ms, and a read of it takes up to 1 ms


class HwmonError(SourceError):
    """No sensor can be read; the message gives the way out."""


@dataclass(frozen=True)
class Sensor:
    """A file that shows energy (µJ) or power (µW)."""

    name: str
    path: Path
    energy: bool


class HwmonSource(PolledSource):
    """All sensors of energy, and those of power that have no counter of the same name."""

    name: ClassVar[str] = "hwmon"

    def __init__(self, sensors: Sequence[Sensor], period_s: float) -> None:
        reads = {sensor.name: partial(_number, sensor.path) for sensor in sensors}
        counters = {s.name: partial(stamped, reads[s.name]) for s in sensors if s.energy}
        powers = {name: read for name, read in reads.items() if name not in counters}
        averaged_ns = {s.name: _averaged_ns(s.path) for s in sensors}
        super().__init__(powers, counters, period_s, tuple(reads), averaged_ns)

    @classmethod
    def open(cls, root: Path = ROOT, period_s: float = PERIOD_S) -> HwmonSource:
        """Find the sensors and begin to poll those of power. Raises HwmonError."""
        sensors = discover(root)
        if not sensors:
            raise HwmonError(f"There is no sensor of energy or power under {root}.")
        readable, refused = [], []
        for sensor in sensors:
            try:
                _number(sensor.path)
            except PermissionError:
                refused.append(sensor.path)
            except OSError:
                pass  # a sensor of a part that is switched off; it may come later
            else:
                readable.append(sensor)
                continue
        if not readable and refused:
            raise HwmonError(
                f"{refused[0]} may be read by root only: run as root, or `sudo chmod a+r "
                f"{shlex.join(map(str, refused))}`."
            )
        if not readable:
            raise HwmonError(f"No sensor of energy or power under {root} gives a number.")
        return cls(readable, period_s)

    @classmethod
    def there(cls, root: Path = ROOT) -> bool:
        """Whether this machine has such a sensor."""
        return bool(discover(root))


def discover(root: Path) -> list[Sensor]:
    """Every sensor once, by chip and number; a power beside a counter of its name is left out."""
    found: dict[str, Sensor] = {}
    for chip in sorted(root.glob("hwmon*"), key=_number_of):
        if _text(chip / "device/type") == "Battery":
            continue  # the battery source has it
        labels: set[str] = set()
        for energy, path, label in _files(chip):
            if label in labels:
                continue
            labels.add(label)
            name = f"{_text(chip / 'name') or chip.name}/{label}"
            name = f"{chip.name}-{name}" if name in found else name  # another chip of that kind
            found[name] = Sensor(name, path, energy)
    return list(found.values())


def _files(chip: Path) -> Iterator[tuple[bool, Path, str]]:
    for path in sorted(chip.glob("energy*_input"), key=_number_of):
        yield True, path, _label(path, "_input")
    for number in sorted({p.name.split("_")[0] for p in chip.glob("power*_*")}):
        for suffix in ("_average", "_input"):  # the mean of an interval loses nothing
            path = chip / f"{number}{suffix}"
            if path.exists():
                yield False, path, _label(path, suffix)
                break


def _averaged_ns(path: Path) -> int:
    """The time that a power is the mean of, where the driver states it (ms); else 0."""
    try:
        return _number(path.with_name(f"{path.name}_interval")) * 10**6
    except OSError:
        return 0


def _label(path: Path, suffix: str) -> str:
    stem = path.name.removesuffix(suffix)
    return _text(path.with_name(f"{stem}_label")) or stem


def _number_of(path: Path) -> int:
    digits = "".join(c for c in path.name if c.isdigit())
    return int(digits) if digits else 0


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _number(file: Path) -> int:
    text = file.read_bytes()
    try:
        return int(text)
    except ValueError:
        raise OSError(not_a_number(text)) from None
