"""Ranges of Yokogawa's power meters: possible settings, extremes reached, and limits of error."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

from contract.schema import Range
from instrumentation.accuracy import NOT_STATED, ErrorTerm

RATES_S = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
VOLTAGE_RANGES_V = (15.0, 30.0, 60.0, 150.0, 300.0, 600.0)


@dataclass(frozen=True)
class RangeSettings:
    """`rate_s` is the update interval, `voltage_range_v` and `current_range_a` the fixed ranges.

    With null the meter chooses them, at the cost of an accuracy that is not known beforehand.
    `power_factor` is the machine's lowest, as the meter shows it; null if it was not read.
    """

    rate_s: float = 0.25
    voltage_range_v: float | None = None
    current_range_a: float | None = None
    power_factor: Annotated[float, Range(above=0, most=1)] | None = None

    def __post_init__(self) -> None:
        for name, value, possible in (
            ("rate_s", self.rate_s, RATES_S),
            ("voltage_range_v", self.voltage_range_v, VOLTAGE_RANGES_V),
            ("current_range_a", self.current_range_a, self.current_ranges_a),
        ):
            if value is not None and value not in possible:
                raise ValueError(f"{name} must be {', '.join(f'{n:g}' for n in possible)}")

    @property
    def current_ranges_a(self) -> tuple[float, ...]:
        """Current ranges of the meter, in A."""
        return (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True)
class Limits:
    """Limits of error in addition to 0.1 % of the reading, and their source.

    As a share of the power range, and at a power factor of 0 as a share of the apparent power, None
    if that is not stated.
    """

    range_part: float
    apparent_part: float | None
    source: str


def power_factor_term(power_factor: float | None, limits: Limits) -> ErrorTerm:
    """Return the influence of the machine's power factor, by the maker's limit."""
    if limits.apparent_part is None:
        return ErrorTerm("power_factor", None, NOT_STATED)
    influence = f"{limits.source}; {limits.apparent_part * 100:g} % × tan φ of reading"
    if power_factor is None:
        return ErrorTerm("power_factor", None, f"{influence}; the power factor is {NOT_STATED}")
    tangent = math.sqrt(1 - power_factor**2) / power_factor
    source = f"{influence}, at a power factor of {power_factor:g}"
    return ErrorTerm("power_factor", limits.apparent_part * tangent, source)


@dataclass(frozen=True)
class Extremes:
    """Highest values and current range so far, and the number of readings beyond the ranges.

    Values are rms in V and A, and mean power in W.
    """

    readings: int = 0
    voltage_v: float = 0.0
    current_a: float = 0.0
    power_w: float = 0.0
    current_range_a: float = 0.0
    over_range: int = 0

    def with_reading(
        self, voltage_v: float, current_a: float, power_w: float, current_range_a: float
    ) -> Extremes:
        """Return the extremes with one more reading, taken in this current range (A)."""
        return replace(
            self,
            readings=self.readings + 1,
            voltage_v=max(self.voltage_v, abs(voltage_v)),
            current_a=max(self.current_a, abs(current_a)),
            power_w=max(self.power_w, abs(power_w)),
            current_range_a=max(self.current_range_a, current_range_a),
        )
