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
from analysis.stats.stats import Floats
from contract.assumptions import RANGED, SLEEP, Assumptions
from contract.estimates import Estimate

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
    runs: Estimate | None
    years: Estimate | None
    kwh_per_year: Estimate
    saving_per_year: Estimate
    break_even_price: Estimate
    break_even_electricity: Estimate | None
    net_present_value: Estimate
    probability: float | None
    co2_kg_per_year: Estimate | None
    co2_kg_in_life: Estimate | None
    budget: Budget
    origin: str
    after_work: str = SLEEP
    tail_j: float = 0.0
    run_s: float = 0.0

    @property
    def hours(self) -> Estimate | None:
        """How long the machine works until the disk is repaid, without interest."""
        return None if self.runs is None else self.runs.scaled(self.run_s / SECONDS_PER_HOUR)

    @property
    def demonstrated(self) -> bool:
        return self.probability is not None and self.probability >= DEMONSTRATED

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


def annuity(rate: float, years: float) -> float:
    """Present value of 1 a year, paid at each year's end: (1 − (1 + rate)^−years) / rate."""
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
        co2_kg_in_life=None if co2_kg is None else co2_kg.scaled(a.life_years),
        budget=budget,
        origin=origin,
        after_work=after_work,
        tail_j=tail_j,
        run_s=run_s,
    )


def repaid_after_years(saved_per_year: Estimate, assumptions: Assumptions) -> Estimate | None:
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

    mid = after(saved_per_year.mean)
    if mid is None:
        return None
    return Estimate(mid, after(saved_per_year.high), after(saved_per_year.low))


DEMONSTRATED = 0.975
DRAWS, SEED = 4_096, 20_261_126


def _probability(saving_j: Estimate, each_day: float, assumptions: Assumptions) -> float | None:
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
    freedom = saving_j.n - 1
    error = (saving_j.high - saving_j.low) / 2 / float(special.stdtrit(freedom, 0.975))
    if error <= 0:
        return float(np.mean(saving_j.mean >= needed_j))
    return float(np.mean(special.stdtr(freedom, (saving_j.mean - needed_j) / error)))
