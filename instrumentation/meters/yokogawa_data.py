"""Settings and measured data of Yokogawa's power meters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from instrumentation.meters.base import Accuracy

RATES_S = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
VOLTAGE_RANGES_V = (15.0, 30.0, 60.0, 150.0, 300.0, 600.0)
# One number of a line; NAN where there is none, INF or 9.9E37 beyond the range.
NUMBER = r"([+-]?\d+(?:\.\d+)?(?:E[+-]\d\d)?|NAN|INF)"

_NOTHING = 9.9e37


@dataclass(frozen=True)
class RangeSettings:
    """`rate_s` is the update interval, `voltage_range_v` and `current_range_a` the fixed ranges;
    null lets the meter choose them, at the cost of an accuracy that nobody knows beforehand.
    """

    rate_s: float = 0.25
    voltage_range_v: float | None = None
    current_range_a: float | None = None

    def __post_init__(self) -> None:
        _one_of("rate_s", self.rate_s, RATES_S)
        if self.voltage_range_v is not None:
            _one_of("voltage_range_v", self.voltage_range_v, VOLTAGE_RANGES_V)
        if self.current_range_a is not None:
            _one_of("current_range_a", self.current_range_a, self.current_ranges_a)

    @property
    def current_ranges_a(self) -> tuple[float, ...]:
        """What the meter has."""
        return (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)


def _one_of(name: str, value: float, possible: tuple[float, ...]) -> None:
    if value not in possible:
        raise ValueError(f"{name} is one of {', '.join(f'{each:g}' for each in possible)}.")


def accuracy_of(settings: RangeSettings, range_part: float, source: str) -> Accuracy:
    """±(0.1 % of reading + `range_part` of the power range): voltage range times current range."""
    set_v, set_a = settings.voltage_range_v, settings.current_range_a
    range_w = (set_v or VOLTAGE_RANGES_V[-1]) * (set_a or settings.current_ranges_a[-1])
    how = "fixed" if set_v and set_a else "a range is left to the meter: its largest"
    return Accuracy(
        relative_limit=0.001,
        absolute_limit_w=range_part * range_w,
        source=f"{source}; ±(0.1 % of reading + {range_part * 100:g} % of range), range "
        f"{range_w:g} W ({how}); at power factor 1 and crest factor 3",
    )


class Reading(NamedTuple):
    """One line of measured data; `ranges` in V and A, `condition` the meter's register."""

    power_w: float
    voltage_v: float
    current_a: float
    ranges: tuple[float, float]
    condition: int


def number(text: str) -> float:
    """A number of a line: NaN where there is none, infinite beyond the range."""
    value = float(text)
    return math.copysign(math.inf, value) if abs(value) >= _NOTHING else value


def plausible(power_w: float, voltage_v: float, current_a: float, range_w: float) -> bool:
    """Whether a power can belong to these rms values: it is at most their product (Cauchy and
    Schwarz), but for the errors of three readings. Readings that are no numbers are plausible.
    """
    limit_w = 1.02 * abs(voltage_v * current_a) + 0.01 * range_w
    return not abs(power_w) > limit_w or not math.isfinite(power_w)
