"""What a meter with ranges tells of them, for a ranging run (`instrumentation.ranging`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Extremes:
    """The highest that was read so far (rms in V and A, mean power in W), the highest ranges that
    were in use, and how many readings were beyond them.
    """

    readings: int = 0
    voltage_v: float = 0.0
    current_a: float = 0.0
    power_w: float = 0.0
    voltage_range_v: float = 0.0
    current_range_a: float = 0.0
    over_range: int = 0

    def including(
        self, voltage_v: float, current_a: float, power_w: float, ranges: tuple[float, float]
    ) -> Extremes:
        """With one more reading, taken in these ranges (V, A)."""
        return replace(
            self,
            readings=self.readings + 1,
            voltage_v=max(self.voltage_v, abs(voltage_v)),
            current_a=max(self.current_a, abs(current_a)),
            power_w=max(self.power_w, abs(power_w)),
            voltage_range_v=max(self.voltage_range_v, ranges[0]),
            current_range_a=max(self.current_range_a, ranges[1]),
        )


@runtime_checkable
class Ranged(Protocol):
    """A driver of a meter whose ranges can be fixed by the settings `voltage_range_v` and
    `current_range_a`; None lets the meter choose. A range takes peaks up to `peak_factor` times
    itself.
    """

    extremes: Extremes
    peak_factor: float

    @property
    def voltage_ranges_v(self) -> tuple[float, ...]:
        """From the smallest to the largest."""

    @property
    def current_ranges_a(self) -> tuple[float, ...]:
        """From the smallest to the largest."""
