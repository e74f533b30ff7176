"""Payback of the self-encrypting disk: runs, years and present value, with their intervals.

The interval of the saving comes first, in joules, paired within blocks; it includes the meter's
limits of error (`analysis.stats.budget`). Prices are exact, so that all that follows is monotone in
the saving and takes its limits: swapped if it falls with the saving, and if divided by the saving
only while the interval is above 0. If the interval includes 0, no payback is demonstrated, and the
break-even price is the most that could be paid.

Runs are without interest, as in the paper; years, break-even prices, the present value and its
probability are with the declared interest, so that they agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from analysis.stats import budget as budgets
from analysis.stats.budget import Budget, Row
from analysis.stats.stats import Floats
from analysis.suite.records import SYSTEM
from contract.assumptions import RANGED, SLEEP, Assumptions
from contract.estimates import Estimate

JOULES_PER_KWH = 3_600_000
DAYS_PER_YEAR = 365.25
SECONDS_PER_HOUR = 3600
PROFILE = "profile"  # name of the workload if the unit is a day of the duty profile


@dataclass(frozen=True)
class Payback:
    """The saving of the self-encrypting disk over one configuration, and its consequences.

    The unit is a run of `workload`, `runs_per_day` times a day; for `PROFILE` it is a day of the
    duty profile. `runs`, `years` and `break_even_electricity` (the price per kWh at which the disk
    is repaid within its life) are None unless it `saves`, i.e. the saving's 95 % interval, meter's
    error included, is above 0; `years` is also None if interest exceeds the saving.
    `break_even_price` is the extra price that is repaid within the disk's life, at least 0.

    `probability` is that of payback within the disk's life, given the scatter between blocks, the
    meter's error, and the declared `ranges` of the assumptions, each uniform; an assumption without
    a range is fixed. It is None if the saving has no interval. A payback is `demonstrated` if it is
    at least `DEMONSTRATED`. `budget` is that of the saving; all intervals follow from it. Carbon is
    None without a grid's intensity. `run_s` is the duration of a run on the drive.

    `drive` is the configuration of the self-encrypting disk; if it is `assumed`, none was measured
    and the disk without encryption stands for it. The joules are those of `component`.
    """

    workload: str
    against: str
    runs_per_day: float
    saving_j: Estimate
    saves: bool
    runs: Estimate | None
    years: Estimate | None
    kwh_per_year: Estimate
    saving_per_year: Estimate
    break_even_price: Estimate
    break_even_electricity: Estimate | None
    net_present_value: Estimate
    probability: float | None
    co2_kg_per_year: Estimate | None
    budget: Budget
    origin: str
    after_work: str = SLEEP
    run_s: float = 0.0
    drive: str = ""
    assumed: bool = False
    component: str = SYSTEM

    @property
    def hours(self) -> Estimate | None:
        """Hours of work until the disk is repaid, without interest."""
        return None if self.runs is None else self.runs.scaled(self.run_s / SECONDS_PER_HOUR)

    @property
    def demonstrated(self) -> bool:
        return self.probability is not None and self.probability >= DEMONSTRATED


def annuity(rate: float, years: float) -> float:
    """Return the present value of 1 at each year's end: (1 − (1 + rate)^−years) / rate."""
    return years if rate == 0 else (1 - (1 + rate) ** -years) / rate


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
    run_s: float = 0.0,
    drive: str = "",
    assumed: bool = False,
    component: str = SYSTEM,
) -> Payback:
    """Compute the payback of the self-encrypting disk against one software configuration.

    `base_j[i]` (software) and `sed_j[i]` are system joules of one run in the same block. `meter`
    are the terms of the meter's error in the saving; `run_s` is the duration of a run.
    `runs_per_day` defaults to that of the assumptions.
    """
    a = assumptions
    savings_j = [b - s for b, s in zip(base_j, sed_j, strict=True)]
    each_day = a.runs_per_day if runs_per_day is None else runs_per_day
    n = len(savings_j)
    error = float(np.std(savings_j, ddof=1)) / math.sqrt(n) if n > 1 else None
    rows = (budgets.scatter(error, n - 1, "J"), *meter)
    budget = Budget("saving", "J", float(np.mean(savings_j)), rows)
    saving = replace(budget.interval, n=n)
    yearly = saving.scaled(
        each_day * (DAYS_PER_YEAR * a.electricity_price_per_kwh / JOULES_PER_KWH)
    )
    in_life = annuity(a.discount_rate, a.life_years)
    kwh = saving.scaled(each_day * DAYS_PER_YEAR / JOULES_PER_KWH)
    carbon = a.grid_g_co2_per_kwh
    co2_kg = None if carbon is None else kwh.scaled(carbon / 1000)
    saves = saving.low is not None and saving.low > 0
    runs = years = electricity = None
    if saves:
        cost_j = a.sed_extra_price / a.electricity_price_per_kwh * JOULES_PER_KWH
        runs = saving.dividing(cost_j)
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
        break_even_price=yearly.changed(lambda money: max(0.0, money * in_life)),
        break_even_electricity=electricity,
        net_present_value=yearly.changed(lambda money: money * in_life - a.sed_extra_price),
        probability=_probability(saving, each_day, a),
        co2_kg_per_year=co2_kg,
        budget=budget,
        origin=origin,
        after_work=after_work,
        run_s=run_s,
        drive=drive,
        assumed=assumed,
        component=component,
    )


def repaid_after_years(saved_per_year: Estimate, assumptions: Assumptions) -> Estimate | None:
    """Return the years after which the net saving, with interest, is 0.

    They solve annuity(r, t) = price / saving for t. The result is None if the mean saving never
    repays the price, as savings far in the future are worth too little; so is a limit.
    """

    def after(yearly: float | None) -> float | None:
        if yearly is None or yearly <= 0:
            return None
        rate, needed = assumptions.discount_rate, assumptions.sed_extra_price / yearly
        if rate == 0:
            return needed
        discount = 1 - rate * needed
        return None if discount <= 0 else -math.log(discount) / math.log1p(rate)

    mid = after(saved_per_year.mean)
    if mid is None:
        return None
    return Estimate(mid, after(saved_per_year.high), after(saved_per_year.low))


DEMONSTRATED = 0.975
DRAWS, SEED = 4_096, 20_261_126


def _probability(saving_j: Estimate, each_day: float, assumptions: Assumptions) -> float | None:
    """Return the share of the saving's t distribution that repays the disk within its life.

    It is the mean over the declared ranges of the assumptions. The standard error is derived from
    the 95 % interval.
    """
    if saving_j.low is None or saving_j.high is None:
        return None
    a, generator = assumptions, np.random.default_rng(SEED)

    def draw(name: str) -> Floats:
        low, high = a.ranges.get(name, (getattr(a, name), getattr(a, name)))
        return np.asarray(generator.uniform(low, high, DRAWS if a.ranges else 1))

    price, electricity, life, runs, rate = map(draw, RANGED)
    yearly = np.where(rate > 0, rate, 1.0)
    worth = np.where(rate > 0, -np.expm1(-life * np.log1p(rate)) / yearly, life)
    each_day_j = each_day * runs / a.runs_per_day * DAYS_PER_YEAR / JOULES_PER_KWH
    needed_j = price / np.maximum(electricity * worth * each_day_j, np.finfo(float).tiny)
    freedom = saving_j.n - 1
    error = (saving_j.high - saving_j.low) / 2 / float(special.stdtrit(freedom, 0.975))
    if error <= 0:
        return float(np.mean(saving_j.mean >= needed_j))
    return float(np.mean(special.stdtr(freedom, (saving_j.mean - needed_j) / error)))
