"""Assumptions behind figures in money, declared before the first run (data/README.md)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Final, Literal

from contract import schema
from contract.schema import Items, Range

PAPER_WORKLOAD = "kernel_tree"  # the one the paper's payback uses
# Inputs of the net present value other than the saving; each may have a separate range.
RANGED = (
    "sed_extra_price",
    "electricity_price_per_kwh",
    "life_years",
    "runs_per_day",
    "discount_rate",
)


HourlyWork = Literal["video_min", "transactions", "read_gib", "written_gib"]
SLEEP: Final = "sleep"
IDLE: Final = "idle"
Positive = Annotated[float, Range(above=0, most=sys.float_info.max)]
NotNegative = Annotated[float, Range(least=0, most=sys.float_info.max)]


@dataclass(frozen=True)
class Assumptions:
    """Prices in `currency`, life in years; a mapping that is not declared is empty.

    `after_work`: what the machine does after its work: `sleep`, so that saved time saves all of its
    power, or `idle`, so that it draws its idle power anyway. `battery_hour` is the work of an hour
    on battery: minutes of video, SQL transactions, GiB read and written; for the rest of the hour
    the machine is idle. `plain_price` is the price of the disk bought if `sed_extra_price` is not
    paid. `hours_per_day` are hours of the suite's work a day instead of runs: of `duty` in its
    proportions, else of every workload in turn. `machines` is the size of the fleet.
    """

    sed_extra_price: Positive
    currency: str
    electricity_price_per_kwh: Positive
    battery_wh: Positive
    life_years: Positive
    runs_per_day: Positive
    discount_rate: Annotated[float, Range(least=0, below=1)] = 0.03
    grid_g_co2_per_kwh: Positive | None = None
    after_work: Literal["sleep", "idle"] = SLEEP
    plain_price: Positive | None = None
    hours_per_day: Annotated[float, Range(above=0, most=24)] | None = None
    machines: Annotated[int, Range(least=1, most=10**9)] = 1
    duty: Annotated[Mapping[str, Positive], Items(1)] = field(default_factory=dict)
    battery_hour: Annotated[Mapping[HourlyWork, NotNegative], Items(1)] = field(
        default_factory=dict
    )
    ranges: Mapping[str, tuple[NotNegative, NotNegative]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if any(low >= high for low, high in self.ranges.values()):
            raise ValueError("a range ends before it begins")


def parse_assumptions(document: Mapping[str, object]) -> Assumptions:
    """Parse the assumptions of a plan; optional ones may be missing or null.

    Raises ValueError if one is missing, unknown or invalid.
    """
    if unknown := document.keys() - {parameter.name for parameter in fields(Assumptions)}:
        raise ValueError(f"there is no assumption called {', '.join(sorted(unknown))}")
    stated = {key: value for key, value in document.items() if value is not None}
    return schema.read(Assumptions, stated)
