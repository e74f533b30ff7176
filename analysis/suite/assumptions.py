"""What the money rests on; declared in the plan before the first run (data/README.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

PAPER_WORKLOAD = "kernel_tree"  # the one the paper's payback uses
NEEDED = (
    "sed_extra_price",
    "electricity_price_per_kwh",
    "battery_wh",
    "life_years",
    "runs_per_day",
)
# What the net present value depends on, besides the saving: what may have a range of its own.
RANGED = (
    "sed_extra_price",
    "electricity_price_per_kwh",
    "life_years",
    "runs_per_day",
    "discount_rate",
)


SLEEP, IDLE = "sleep", "idle"


@dataclass(frozen=True)
class Assumptions:
    """Prices in `currency`, life in years; `duty` and `ranges` as declared, empty where not.

    `after_work`: what the machine does once its work is done: `sleep`, so that time that is saved
    saves all that the machine takes, or `idle`, so that its power at rest is taken all the same.
    """

    sed_extra_price: float
    currency: str
    electricity_price_per_kwh: float
    battery_wh: float
    life_years: float
    runs_per_day: float
    discount_rate: float = 0.03
    grid_g_co2_per_kwh: float | None = None
    after_work: str = SLEEP
    duty: Mapping[str, float] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def profile(self) -> Mapping[str, float]:
        """Runs a day by workload: as declared, else the paper's workload alone."""
        return self.duty or {PAPER_WORKLOAD: self.runs_per_day}

    def range_of(self, name: str) -> tuple[float, float]:
        """Low and high end of an assumption: as declared, else half and double."""
        value = float(getattr(self, name))
        return self.ranges.get(name, (value / 2, value * 2))


def assumptions_of(given: Mapping[str, object]) -> Assumptions | None:
    """The plan's assumptions, or None where one is missing or is not what it must be.

    Prices, capacities and counts are positive numbers, the discount rate is 0 or more; what is
    optional may be missing or null.
    """
    rate, grid = given.get("discount_rate"), given.get("grid_g_co2_per_kwh")
    try:
        return Assumptions(
            currency=str(given.get("currency", "")),
            discount_rate=Assumptions.discount_rate if rate is None else _not_negative(rate),
            grid_g_co2_per_kwh=None if grid is None else _positive(grid),
            after_work=_one_of(given.get("after_work") or SLEEP, (SLEEP, IDLE)),
            duty={str(k): _positive(v) for k, v in _mapping(given.get("duty")).items()},
            ranges={str(k): _range(v) for k, v in _mapping(given.get("ranges")).items()},
            **{key: _positive(given.get(key)) for key in NEEDED},
        )
    except ValueError:
        return None


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("not a number")
    return float(value)


def _positive(value: object) -> float:
    number = _number(value)
    if number <= 0:
        raise ValueError("not positive")
    return number


def _not_negative(value: object) -> float:
    number = _number(value)
    if number < 0:
        raise ValueError("negative")
    return number


def _one_of(value: object, known: Sequence[str]) -> str:
    if value not in known:
        raise ValueError("not known")
    return str(value)


def _mapping(value: object) -> Mapping[object, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError("not a mapping")
    return value


def _range(value: object) -> tuple[float, float]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError("not two ends")
    low, high = _not_negative(value[0]), _not_negative(value[1])
    if low >= high:
        raise ValueError("no range")
    return low, high
