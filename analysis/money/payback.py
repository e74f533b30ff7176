"""Does the dearer disk pay for itself? Runs, hours, years, present value, with their intervals.

The saving is bounded first, in joules, paired within blocks. Prices are exact, so what follows from
the saving is monotone in it and takes its limits over: swapped where it falls with the saving, and
only where the saving's interval stays above 0 if it is divided by it. Hours of work divide one
random thing by another: Fieller. What the meter's limits of error may add to or take from the
saving belongs to its interval here (`analysis.stats.budget`). Where that holds 0 there is no
demonstrated payback, and the break-even price says what could be paid at most.

Runs and hours are without interest, as in the paper; years, break-even prices, the present
value and its probability are with the interest that is declared, so that they say the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from analysis.stats import budget as budgets
from analysis.stats.budget import Budget, Row
from analysis.stats.stats import Estimate, Span, estimate, ratio_of_means
from analysis.suite.assumptions import SLEEP, Assumptions

JOULES_PER_KWH = 3_600_000
DAYS_PER_YEAR = 365.25
SECONDS_PER_HOUR = 3600
BYTES_PER_GB = 1e9
PROFILE = "profile"  # stands for a workload where the unit is a day of the duty profile


@dataclass(frozen=True)
class Payback:
    """The saving of one configuration over another, and what follows from it.

    The unit is a run of `workload`, done `runs_per_day` times a day, which takes `hours_per_day` on
    the self-encrypting disk; for `PROFILE` it is a day of the duty profile. `runs`, `hours`,
    `years` and `break_even_electricity` (a price per kWh at which the disk is repaid within its
    life) are None unless the payback is demonstrated, i.e. the saving's 95 % interval, the meter's
    error included, lies above 0; `years` also where interest takes more than is saved.
    `break_even_price` is what may be paid extra for the disk to be repaid within its life; it is
    never below 0.

    `probability` of payback within the disk's life holds what the scatter between blocks leaves
    open, and nothing else: the assumptions are taken as they are, the meter as exact. None for one
    block. `budget` is that of the saving, with the scatter and the meter's error; its interval is
    carried on to all that follows. `meter_j` is the half width of the 95 % interval of what the
    meter's limits of error alone may add to or take from the saving; None where none is stated.
    Carbon is None without a grid's intensity. `otherwise` is the same for a machine that does the
    other thing than `after_work`; None where the suite does not tell the power at rest. `tail_j` is
    the part of the saving that lies after the work's end, in delayed writes.
    """

    workload: str
    against: str
    runs_per_day: float
    hours_per_day: float
    saving_j: Estimate
    demonstrated: bool
    runs: Span | None
    hours: Span | None
    years: Span | None
    saving_per_gb_j: Estimate | None
    kwh_per_year: Span
    saving_per_year: Span
    break_even_price: Span
    break_even_electricity: Span | None
    net_present_value: Span
    probability: float | None
    co2_kg_per_year: Span | None
    co2_kg_in_life: Span | None
    budget: Budget
    origin: str
    after_work: str = SLEEP
    otherwise: Payback | None = None
    tail_j: float = 0.0

    @property
    def whole_saving_j(self) -> Estimate:
        """The saving with the interval of its budget: `saving_j` knows of the scatter alone."""
        both = self.budget.interval
        return replace(self.saving_j, low=both.low, high=both.high)

    @property
    def meter_j(self) -> float | None:
        rows = tuple(row for row in self.budget.rows if row.evaluation == "B")
        known = any(row.half_width is not None for row in rows)
        return replace(self.budget, rows=rows).expanded if known else None

    @property
    def meter_share(self) -> float | None:
        """`meter_j` as a share of the saving."""
        if self.meter_j is None or self.saving_j.mean == 0:
            return None
        return self.meter_j / abs(self.saving_j.mean)


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


def annuity(rate: float, years: float) -> float:
    """Present value of 1 a year, paid at each year's end: (1 − (1 + rate)^−years) / rate."""
    return years if rate == 0 else (1 - (1 + rate) ** -years) / rate


def money_per_joule_a_day(assumptions: Assumptions) -> float:
    """What one joule saved each day is worth in a year."""
    return DAYS_PER_YEAR * assumptions.electricity_price_per_kwh / JOULES_PER_KWH


def net_present_value(saving_j: float, runs_per_day: float, assumptions: Assumptions) -> float:
    """Worth today of all that is saved in the disk's life, less its extra price."""
    a = assumptions
    yearly = saving_j * runs_per_day * money_per_joule_a_day(a)
    return yearly * annuity(a.discount_rate, a.life_years) - a.sed_extra_price


def payback(
    workload: str,
    against: str,
    base_j: Sequence[float],
    sed_j: Sequence[float],
    *,
    sed_s: Sequence[float],
    assumptions: Assumptions,
    origin: str,
    runs_per_day: float | None = None,
    saving_per_gb_j: Sequence[float] = (),
    meter: Sequence[Row] = (),
    after_work: str = SLEEP,
    otherwise: Payback | None = None,
    tail_j: float = 0.0,
) -> Payback:
    """Payback of the self-encrypting disk against one software configuration.

    `base_j[i]` (software) and `sed_j[i]` are system joules of one run in the same block, `sed_s[i]`
    the seconds that it took on the self-encrypting disk; `saving_per_gb_j` is one value a block
    too, where bytes were counted. `meter` are the terms of the meter's error in the saving.
    `runs_per_day` is the assumptions' where it is not given.
    """
    a = assumptions
    savings_j = [b - s for b, s in zip(base_j, sed_j, strict=True)]
    saving = estimate(savings_j)
    each_day = a.runs_per_day if runs_per_day is None else runs_per_day
    budget = _budget(savings_j, meter)
    span = budget.interval
    yearly = span.scaled(each_day * money_per_joule_a_day(a))
    in_life = annuity(a.discount_rate, a.life_years)
    scatter = Span(saving.mean, saving.low, saving.high).scaled(each_day * money_per_joule_a_day(a))
    kwh = span.scaled(each_day * DAYS_PER_YEAR / JOULES_PER_KWH)
    carbon = a.grid_g_co2_per_kwh
    co2_kg = None if carbon is None else kwh.scaled(carbon / 1000)
    demonstrated = span.low is not None and span.low > 0
    runs = hours = years = electricity = None
    if demonstrated:
        cost_j = a.sed_extra_price / a.electricity_price_per_kwh * JOULES_PER_KWH
        runs = span.dividing(cost_j)
        worked_h = [cost_j * seconds / SECONDS_PER_HOUR for seconds in sed_s]
        hours = _by_meter(ratio_of_means(worked_h, savings_j), saving, span).not_below(0.0)
        years = repaid_after_years(yearly, a)
        electricity = kwh.scaled(in_life).dividing(a.sed_extra_price)
    return Payback(
        workload=workload,
        against=against,
        runs_per_day=each_day,
        hours_per_day=each_day * estimate(sed_s).mean / SECONDS_PER_HOUR,
        saving_j=saving,
        demonstrated=demonstrated,
        runs=runs,
        hours=hours,
        years=years,
        saving_per_gb_j=estimate(saving_per_gb_j) if saving_per_gb_j else None,
        kwh_per_year=kwh,
        saving_per_year=yearly,
        break_even_price=yearly.scaled(in_life).not_below(0.0),
        break_even_electricity=electricity,
        net_present_value=yearly.scaled(in_life).shifted(-a.sed_extra_price),
        probability=_probability(scatter.scaled(in_life), a.sed_extra_price, saving.n),
        co2_kg_per_year=co2_kg,
        co2_kg_in_life=None if co2_kg is None else co2_kg.scaled(a.life_years),
        budget=budget,
        origin=origin,
        after_work=after_work,
        otherwise=otherwise,
        tail_j=tail_j,
    )


def _budget(savings_j: Sequence[float], meter: Sequence[Row]) -> Budget:
    """Of the saving: its scatter over blocks, and the meter's terms."""
    n = len(savings_j)
    error = float(np.std(savings_j, ddof=1)) / math.sqrt(n) if n > 1 else None
    rows = (budgets.scatter(error, n - 1, "J"), *meter)
    return Budget("saving", "J", float(np.mean(savings_j)), rows)


def _by_meter(hours: Span, saving: Estimate, span: Span) -> Span:
    """What is divided by the saving, its limits moved on by as much as the meter widens that."""
    if saving.low is None or saving.high is None or not span.low or not span.high:
        return hours
    return Span(
        hours.mid,
        None if hours.low is None else hours.low * saving.high / span.high,
        None if hours.high is None else hours.high * saving.low / span.low,
    )


def repaid_after_years(saved_per_year: Span, assumptions: Assumptions) -> Span | None:
    """Years until the net saving, with interest, is 0; None where even the middle never gets there.

    annuity(r, t) = price / saving solved for t. A limit is None where it is never reached: savings
    far in the future are worth too little.
    """

    def after(yearly: float | None) -> float | None:
        if yearly is None or yearly <= 0:
            return None
        rate, needed = assumptions.discount_rate, assumptions.sed_extra_price / yearly
        if rate == 0:
            return needed
        left = 1 - rate * needed
        return None if left <= 0 else -math.log(left) / math.log1p(rate)

    mid = after(saved_per_year.mid)
    if mid is None:
        return None
    return Span(mid, after(saved_per_year.high), after(saved_per_year.low))


def years_by_saving(saved_per_year: float, assumptions: Assumptions) -> float | None:
    """What the years of `repaid_after_years` change with a unit of money saved a year, in closed
    form: −p / (s² (1 − r p/s)) × r / ln(1 + r) with the price p, the saving s and the interest r.
    None where it is never repaid."""
    rate, price = assumptions.discount_rate, assumptions.sed_extra_price
    left = 1 - rate * price / saved_per_year if saved_per_year > 0 else 0.0
    if left <= 0:
        return None
    interest = rate / math.log1p(rate) if rate > 0 else 1.0
    return -price / saved_per_year / saved_per_year / left * interest


def _probability(saved: Span, price: float, n: int) -> float | None:
    """Share of Student's t distribution of what is saved in the disk's life that lies above price.

    The error of the mean is found back from the 95 % interval.
    """
    if saved.low is None or saved.high is None:
        return None
    error = (saved.high - saved.low) / 2 / float(special.stdtrit(n - 1, 0.975))
    if error <= 0 or not math.isfinite(error):
        return 1.0 if saved.mid >= price else 0.0
    return float(special.stdtr(n - 1, (saved.mid - price) / error))
