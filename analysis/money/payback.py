"""Does the dearer disk pay for itself? Runs, hours, years, batteries, with their intervals.

The saving per run is bounded first. The price is exact, so runs = price / saving is monotone in the
saving and the limits of one give the limits of the other; that holds only while the saving's
interval stays above 0. Otherwise there is no demonstrated payback, and the break-even price says
what could be paid at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.inference.stats import Estimate, estimate
from analysis.money.span import Span as Span

JOULES_PER_KWH = 3_600_000
DAYS_PER_YEAR = 365.25
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class Assumptions:
    """What the money rests on; declared in the plan before the first run."""

    sed_extra_price: float
    currency: str
    electricity_price_per_kwh: float
    battery_wh: float
    life_years: float
    runs_per_day: float


@dataclass(frozen=True)
class Payback:
    """The saving of one configuration over another in one workload, and what follows from it.

    `runs`, `hours`, `years` are None unless the payback is demonstrated, i.e. the saving's 95 %
    interval lies above 0. `break_even_price` is what may be paid extra for the disk to be repaid
    within `life_years` at `runs_per_day`; it is never below 0.
    """

    workload: str
    against: str
    saving_j: Estimate
    demonstrated: bool
    runs: Span | None
    hours: Span | None
    years: Span | None
    break_even_price: Span
    origin: str


def assumptions_of(given: Mapping[str, object]) -> Assumptions | None:
    """The plan's assumptions, or None where one is missing or not a positive number."""
    numbers: dict[str, float] = {}
    for key in Assumptions.__dataclass_fields__:
        if key == "currency":
            continue
        value = given.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            return None
        numbers[key] = float(value)
    return Assumptions(currency=str(given.get("currency", "")), **numbers)


def runs_to_repay(price: float, saving_j: float, electricity_price_per_kwh: float) -> float:
    """Runs until `price` is saved: price / (J × price per kWh / 3.6 MJ), for a saving above 0."""
    if saving_j <= 0:
        raise ValueError("a disk that saves nothing is never repaid")
    return price / (saving_j * electricity_price_per_kwh / JOULES_PER_KWH)


def battery_runs(battery_j: float, energy_j: Estimate) -> Span:
    """Runs that a battery holds: battery_j / energy_j, the limits swapped."""
    low = battery_j / energy_j.high if energy_j.high else None
    high = battery_j / energy_j.low if energy_j.low and energy_j.low > 0 else None
    return Span(battery_j / energy_j.mean, low, high)


def payback(
    workload: str,
    against: str,
    base_j: Sequence[float],
    sed_j: Sequence[float],
    *,
    run_s: float,
    assumptions: Assumptions,
    origin: str,
) -> Payback:
    """Payback of the self-encrypting disk in one workload against one software configuration.

    `base_j[i]` (software) and `sed_j[i]` are system joules of one run in the same block; `run_s` is
    the mean duration of a run on the self-encrypting disk.
    """
    saving = estimate([b - s for b, s in zip(base_j, sed_j, strict=True)])
    a = assumptions
    demonstrated = saving.low is not None and saving.low > 0
    runs = hours = years = None
    if demonstrated and saving.low is not None and saving.high is not None:
        price, rate = a.sed_extra_price, a.electricity_price_per_kwh
        runs = Span(
            runs_to_repay(price, saving.mean, rate),
            runs_to_repay(price, saving.high, rate),
            runs_to_repay(price, saving.low, rate),
        )
        hours = _times(runs, run_s / SECONDS_PER_HOUR)
        years = _times(runs, 1 / (a.runs_per_day * DAYS_PER_YEAR))
    life_runs = a.runs_per_day * DAYS_PER_YEAR * a.life_years
    worth = life_runs * a.electricity_price_per_kwh / JOULES_PER_KWH
    low, high = (
        None if limit is None else max(0.0, limit * worth) for limit in (saving.low, saving.high)
    )
    break_even = Span(max(0.0, saving.mean * worth), low, high)
    return Payback(workload, against, saving, demonstrated, runs, hours, years, break_even, origin)


def _times(span: Span, factor: float) -> Span:
    low = None if span.low is None else span.low * factor
    high = None if span.high is None else span.high * factor
    return Span(span.mid * factor, low, high)
