"""A laptop's battery gauge: energy of the whole machine while it runs on its battery.

`/sys/class/power_supply/*` (kernel, Documentation/ABI/testing/sysfs-class-power): `type`, `status`,
`energy_now` in µWh or `charge_now` in µAh with `voltage_now` in µV, and `power_now` in µW or
`current_now` in µA. On mains these show the charging, so the source refuses; so it does while a
supply is `online` and the battery is discharging, which then supplies only a part.

Two figures of the same energy: `battery` adds up the power shown, `battery/gauge` is the gauge's
count. The second has steps of many joules, the first follows the load late.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from contract import system_text
from instrumentation.sources.counter import ReadFailure, Reading, read_stamped, reason
from instrumentation.sources.polled import PolledSource
from instrumentation.sources.registry import SourceError

ROOT = Path("/sys/class/power_supply")
PERIOD_S = 0.5  # gauges renew their figures every 1 to 30 s, and each read costs firmware time
POWER, GAUGE = "battery", "battery/gauge"
NJ_PER_UWH = 3_600_000
# A gauge's difference of fewer steps shows where the steps fell, not the energy.
FEW_STEPS = 10
# Least and highest power that a machine takes from its batteries; other units are beyond.
LEAST_W, MOST_W = 0.5, 500
_IDLE = {"Not charging", "Unknown", "Full"}  # of one battery while another is discharged


class BatteryError(SourceError):
    """No battery shows the machine's energy; the message has the remedy."""


@dataclass(frozen=True)
class _Battery:
    """The files of one battery."""

    folder: Path

    def status(self) -> str:
        return system_text.read_line(self.folder / "status")

    def is_usable(self) -> bool:
        """Return whether a battery is in this bay and shows its power or energy."""
        if system_text.read_line_or_empty(self.folder / "present") == "0":
            return False
        return self.has_power() or self.has_gauge()

    def has_power(self) -> bool:
        return self.has("power_now") or self.has("current_now", "voltage_now")

    def has_gauge(self) -> bool:
        return self.has("energy_now") or self.has("charge_now", "voltage_now")

    def has(self, *files: str) -> bool:
        return all((self.folder / file).exists() for file in files)

    def number(self, file: str) -> int:
        return system_text.read_number(self.folder / file)

    def power_uw(self) -> int:
        """Return the power it supplies; some drivers show a discharge below 0."""
        if self.has("power_now"):
            return abs(self.number("power_now"))
        return abs(self.number("current_now")) * self.number("voltage_now") // 10**6

    def count(self) -> tuple[int, int]:
        """Return the remaining charge by the gauge, in counts, and a count's energy in nJ."""
        if self.has("energy_now"):
            return self.number("energy_now"), NJ_PER_UWH
        return self.number("charge_now"), self.number("voltage_now") * NJ_PER_UWH // 10**6


class BatterySource(PolledSource):
    """All batteries of this machine as one supply; on mains every read fails.

    `supplies` are mains and USB supplies.
    """

    name: ClassVar[str] = "battery"

    def __init__(
        self, batteries: tuple[_Battery, ...], supplies: tuple[Path, ...], period_s: float
    ) -> None:
        self._batteries = batteries
        self._supplies = supplies
        self._counts: list[int] = []
        self._used_nj = 0
        self._step_nj: int | None = None
        self._away = 0  # how often the machine was on mains
        self._gauge_lock = threading.Lock()
        has_power = all(battery.has_power() for battery in batteries)
        self._has_gauge = all(battery.has_gauge() for battery in batteries)
        powers = {POWER: self._power_uw} if has_power else {}
        gauges = {GAUGE: self._gauge} if self._has_gauge else {}
        super().__init__(powers, gauges, period_s, (*powers, *gauges), watches_updates=False)

    @classmethod
    def open(cls, root: Path = ROOT, period_s: float = PERIOD_S) -> BatterySource:
        """Find the batteries and begin to poll. Raises BatteryError, on mains too."""
        batteries = _batteries(root)
        if not batteries:
            raise BatteryError("no-battery", root=root)
        supplies = tuple(
            folder
            for folder, kind in _machine_supplies(root)
            if kind in ("Mains", "Wireless", "UPS") or kind.startswith("USB")
        )
        try:
            present = tuple(battery for battery in batteries if battery.is_usable())
            if not present:
                names = ", ".join(battery.folder.name for battery in batteries)
                raise BatteryError("battery-shows-nothing", batteries=names)
            _require_discharging(present, supplies)
        except OSError as error:
            raise BatteryError("battery-hides", reason=reason(error)) from None
        return cls(present, supplies, period_s)

    @classmethod
    def is_present(cls, root: Path = ROOT) -> bool:
        """Return whether this machine has a battery."""
        return bool(_batteries(root))

    @property
    def least_uj(self) -> Mapping[str, int]:
        """Smallest usable difference of a quantity; smaller ones only show its steps."""
        return {GAUGE: max(1, FEW_STEPS * (self._step_nj or 0) // 1000)}

    @property
    def totals(self) -> tuple[float, float, float, float] | None:
        """Joules since the opening by power and by gauge, the gauge's step, and `held_share`.

        None if one of these is unknown, or the machine was on mains meanwhile.
        """
        power = self.sums.get(POWER)
        if power is None or power.gaps or self._away or not self._step_nj:
            return None
        gauge_j, step_j = self._used_nj * 1e-9, self._step_nj * 1e-9
        return power.energy_j, gauge_j, step_j, power.held_share

    def _power_uw(self) -> int:
        self._require_discharging()
        if self._has_gauge:
            with self._gauge_lock:  # often enough to see the gauge's single steps
                self._used_uj()
        for battery in self._batteries:
            if battery.status() == "Unknown" and battery.power_uw():
                raise OSError(f"{battery.folder.name} shows a power and 'Unknown', not a discharge")
        power_uw = sum(b.power_uw() for b in self._batteries if b.status() == "Discharging")
        if not power_uw:
            raise OSError("it is being discharged and shows 0 W: its firmware has no rate")
        if not LEAST_W * 1e6 <= power_uw <= MOST_W * 1e6:  # or all bits set, an unknown rate
            raise OSError(f"it shows {power_uw / 1e6:.3g} W, not {LEAST_W:g} to {MOST_W} W")
        return power_uw

    def _gauge(self) -> Reading | ReadFailure:
        with self._gauge_lock:
            reading = read_stamped(self._used_uj)
        # The gauge does not show the energy from the mains meanwhile.
        return replace(reading, epoch=self._away) if isinstance(reading, Reading) else reading

    def _require_discharging(self) -> None:
        try:
            _require_discharging(self._batteries, self._supplies)
        except OSError:
            self._away += 1
            raise

    def _used_uj(self) -> int:
        """Return the energy that the gauge has counted since the first read. Raises OSError."""
        self._require_discharging()
        counts = [battery.count() for battery in self._batteries]
        for last, (count, nj) in zip(self._counts, counts, strict=False):
            step_nj = (last - count) * nj
            self._used_nj += step_nj
            if step_nj:
                self._step_nj = min(abs(step_nj), self._step_nj or abs(step_nj))
        self._counts = [count for count, _ in counts]
        return self._used_nj // 1000


def _batteries(root: Path) -> tuple[_Battery, ...]:
    """Return the batteries of the machine, not those of a mouse (`scope` Device)."""
    return tuple(_Battery(folder) for folder, kind in _machine_supplies(root) if kind == "Battery")


def _machine_supplies(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield folder and type of the supplies that do not belong to another device."""
    for folder in sorted(root.glob("*")):
        if system_text.read_line_or_empty(folder / "scope") != "Device":
            yield folder, system_text.read_line_or_empty(folder / "type")


def _require_discharging(batteries: Sequence[_Battery], supplies: Sequence[Path]) -> None:
    """Raise OSError unless the machine runs on its batteries only."""
    states = {battery.folder.name: battery.status() for battery in batteries}
    others = [f"{name} is {state!r}" for name, state in states.items() if state != "Discharging"]
    if len(others) == len(states) or any(
        state not in _IDLE | {"Discharging"} for state in states.values()
    ):
        raise OSError(f"{' and '.join(others)}, so the machine is on mains")
    # 1 is a fixed supply that is connected, 2 one that can be set.
    shown = {folder.name: system_text.read_line_or_empty(folder / "online") for folder in supplies}
    if online := [name for name, state in shown.items() if state not in ("", "0")]:
        raise OSError(
            f"{', '.join(online)} is online while {', '.join(states)} is discharged, so the "
            "battery gives only what the supply does not"
        )
