"""Does the dearer disk pay for itself? Runs, years, present value, with their intervals.

The saving is bounded first, in joules, paired within blocks. Prices are exact, so what follows from
the saving is monotone in it and takes its limits over: swapped where it falls with the saving, and
only where the saving's interval stays above 0 if it is divided by it. What the meter's limits of
error may add to or take from the
saving belongs to its interval here (`analysis.stats.budget`). Where that holds 0 there is no
demonstrated payback, and the break-even price is what could be paid at most.

Runs are without interest, as in the paper; years, break-even prices, the present
value and its probability are with the interest that is declared, so that they agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from analysis.stats import budget as budgets
from analysis.stats.budget import Budget, Row
from analysis.stats.stats import Estimate, Floats, Span, estimate
from contract.assumptions import RANGED, SLEEP, Assumptions

JOULES_PER_KWH = 3_600_000
DAYS_PER_YEAR = 365.25
SECONDS_PER_HOUR = 3600
PROFILE = "profile"  # stands for a workload where the unit is a day of the duty profile


@dataclass(frozen=True)
class Payback:
    """The saving of one configuration over another, and what follows from it.

    The unit is a run of `workload`, done `runs_per_day` times a day; for `PROFILE` it is a day of
    the duty profile. `runs`,
    `years` and `break_even_electricity` (a price per kWh at which the disk is repaid within its
    life) are None unless it `saves`, i.e. the saving's 95 % interval, the meter's error included,
    lies above 0; `years` also where interest takes more than is saved.
    `break_even_price` is what may be paid extra for the disk to be repaid within its life; it is
    never below 0.

    `probability` of payback within the disk's life holds what the scatter between blocks and the
    meter's error leave open, and the declared `ranges` of the assumptions, each uniform; an
    assumption without a range is fixed. None where the saving has no interval. A payback
    is `demonstrated` where it is at least `DEMONSTRATED`. `budget` is that of the saving, with the
    scatter and the meter's error; its interval is
    carried on to all that follows. `meter_j` is the half width of the 95 % interval of what the
    meter's limits of error alone may add to or take from the saving; None where none is stated.
    Carbon is None without a grid's intensity. `tail_j` is the part of the saving that lies
    after the work's end, in delayed writes; `run_s` is how long a run takes on the drive.
    """

    workload: str
    against: str
    runs_per_day: float
    saving_j: Estimate
    saves: bool
    runs: Span | None
    years: Span | None
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
    tail_j: float = 0.0
    run_s: float = 0.0

    @property
    def hours(self) -> Span | None:
        """How long the machine works until the disk is repaid, without interest."""
        return None if self.runs is None else self.runs.scaled(self.run_s / SECONDS_PER_HOUR)

    @property
    def demonstrated(self) -> bool:
        return self.probability is not None and self.probability >= DEMONSTRATED

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


def battery_runs(battery_j: float, energy_j: Estimate) -> Span:
    """Return runs that a battery holds: battery_j / energy_j, the limits swapped."""
    low = battery_j / energy_j.high if energy_j.high else None
    high = battery_j / energy_j.low if energy_j.low and energy_j.low > 0 else None
    return Span(battery_j / energy_j.mean, low, high)


def annuity(rate: float, years: float) -> float:
    """Present value of 1 a year, paid at each year's end: (1 − (1 + rate)^−years) / rate."""
    return years if rate == 0 else (1 - (1 + rate) ** -years) / rate


def money_per_joule_a_day(assumptions: Assumptions) -> float:
    """Return what one joule saved each day is worth in a year."""
    return DAYS_PER_YEAR * assumptions.electricity_price_per_kwh / JOULES_PER_KWH


def payback(
    workload: str,
    against: str,
    base_j: Sequence[float],
    sed_j: Sequence[float],
    *,
    assumptions: Assumptions,
    origin: str,
    runs_per_day: float | None = None,
    meter: Sequence[Row] = (),
    after_work: str = SLEEP,
    tail_j: float = 0.0,
    run_s: float = 0.0,
) -> Payback:
    """Payback of the self-encrypting disk against one software configuration.

    `base_j[i]` (software) and `sed_j[i]` are system joules of one run in the same block. `meter`
    are the terms of the meter's error in the saving; `run_s` is how long a run takes.
    `runs_per_day` is the assumptions' where it is not given.
    """
    a = assumptions
    savings_j = [b - s for b, s in zip(base_j, sed_j, strict=True)]
    saving = estimate(savings_j)
    each_day = a.runs_per_day if runs_per_day is None else runs_per_day
    n = len(savings_j)
    error = float(np.std(savings_j, ddof=1)) / math.sqrt(n) if n > 1 else None
    rows = (budgets.scatter(error, n - 1, "J"), *meter)
    budget = Budget("saving", "J", float(np.mean(savings_j)), rows)
    span = budget.interval
    yearly = span.scaled(each_day * money_per_joule_a_day(a))
    in_life = annuity(a.discount_rate, a.life_years)
    kwh = span.scaled(each_day * DAYS_PER_YEAR / JOULES_PER_KWH)
    carbon = a.grid_g_co2_per_kwh
    co2_kg = None if carbon is None else kwh.scaled(carbon / 1000)
    saves = span.low is not None and span.low > 0
    runs = years = electricity = None
    if saves:
        cost_j = a.sed_extra_price / a.electricity_price_per_kwh * JOULES_PER_KWH
        runs = span.dividing(cost_j)
        years = repaid_after_years(yearly, a)
        electricity = kwh.scaled(in_life).dividing(a.sed_extra_price)
    return Payback(
        workload=workload,
        against=against,
        runs_per_day=each_day,
        saving_j=saving,
        saves=saves,
        runs=runs,
        years=years,
        kwh_per_year=kwh,
        saving_per_year=yearly,
        break_even_price=yearly.scaled(in_life).not_below(0.0),
        break_even_electricity=electricity,
        net_present_value=yearly.scaled(in_life).shifted(-a.sed_extra_price),
        probability=_probability(span, saving.n, each_day, a),
        co2_kg_per_year=co2_kg,
        co2_kg_in_life=None if co2_kg is None else co2_kg.scaled(a.life_years),
        budget=budget,
        origin=origin,
        after_work=after_work,
        tail_j=tail_j,
        run_s=run_s,
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
    """Return by how much a unit of money saved a year changes the years to repay.

    In closed form: −p / (s² (1 − r p/s)) × r / ln(1 + r) with the price p, the saving s and the
    interest r. None where it is never repaid.
    """
    rate, price = assumptions.discount_rate, assumptions.sed_extra_price
    left = 1 - rate * price / saved_per_year if saved_per_year > 0 else 0.0
    if left <= 0:
        return None
    interest = rate / math.log1p(rate) if rate > 0 else 1.0
    return -price / saved_per_year / saved_per_year / left * interest


DEMONSTRATED = 0.975
DRAWS, SEED = 4_096, 20_261_126


def _probability(saving_j: Span, n: int, each_day: float, assumptions: Assumptions) -> float | None:
    """Return the share of the saving's t distribution that repays the disk within its life.

    The mean over the declared ranges of the assumptions. The error of the mean is found back from
    the 95 % interval.
    """
    if saving_j.low is None or saving_j.high is None:
        return None
    a, generator = assumptions, np.random.default_rng(SEED)

    def drawn(name: str) -> Floats:
        low, high = a.ranges.get(name, (getattr(a, name), getattr(a, name)))
        return np.asarray(generator.uniform(low, high, DRAWS if a.ranges else 1))

    price, electricity, life, runs, rate = map(drawn, RANGED)
    yearly = np.where(rate > 0, rate, 1.0)
    worth = np.where(rate > 0, -np.expm1(-life * np.log1p(rate)) / yearly, life)
    each_day_j = each_day * runs / a.runs_per_day * DAYS_PER_YEAR / JOULES_PER_KWH
    needed_j = price / np.maximum(electricity * worth * each_day_j, np.finfo(float).tiny)
    error = (saving_j.high - saving_j.low) / 2 / float(special.stdtrit(n - 1, 0.975))
    if error <= 0:
        return float(np.mean(saving_j.mid >= needed_j))
    return float(np.mean(special.stdtr(n - 1, (saving_j.mid - needed_j) / error)))
