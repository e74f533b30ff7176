"""What the net present value hangs on: each assumption moved by itself, and the saving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.money.payback import Payback, annuity, net_present_value
from analysis.suite.assumptions import RANGED, Assumptions
from analysis.suite.clocks import Floats

SAVING, METER = "saving_j", "meter_j"


@dataclass(frozen=True)
class Swing:
    """Net present value at the low and at the high end of one assumption, or of the saving.

    The saving has two: its interval (`SAVING`), and what the meter's limits of error may add to it
    or take from it (`METER`).

    `runs_per_day` moves all runs of the duty profile by the same factor.
    """

    name: str
    low: float
    high: float
    at_low: float
    at_high: float

    @property
    def width(self) -> float:
        return abs(self.at_high - self.at_low)


def swings(payback: Payback, assumptions: Assumptions) -> list[Swing]:
    """All of them, the widest first; an end that is not known, or does not differ, has none."""
    a, saving, meter_j = assumptions, payback.saving_j, payback.meter_j or 0.0
    found = []
    for name in RANGED:
        ends = a.range_of(name)
        if ends[0] < ends[1]:
            found.append(Swing(name, *ends, *(_worth(payback, a, name, end) for end in ends)))
    savings = {
        SAVING: (saving.low, saving.high),
        METER: (saving.mean - meter_j, saving.mean + meter_j),
    }
    for name, (low, high) in savings.items():
        if low is not None and high is not None and low < high:
            worths = (net_present_value(s, payback.runs_per_day, a) for s in (low, high))
            found.append(Swing(name, low, high, *worths))
    return sorted(found, key=lambda swing: -swing.width)


def _worth(payback: Payback, assumptions: Assumptions, name: str, value: float) -> float:
    change: dict[str, Any] = {name: value}
    runs = payback.runs_per_day
    if name == "runs_per_day":
        runs *= value / assumptions.runs_per_day
    return net_present_value(payback.saving_j.mean, runs, replace(assumptions, **change))


@dataclass(frozen=True)
class Course:
    """Net saving so far, in today's money, over the years; a band where there is an interval."""

    years: Floats
    mid: Floats
    low: Floats | None
    high: Floats | None


def course(payback: Payback, assumptions: Assumptions, years: Sequence[float] | Floats) -> Course:
    """What is saved up to each of `years`, discounted, less the drive's extra price.

    At the end of the drive's life it is the net present value.
    """
    t = np.asarray(years, dtype=np.float64)
    so_far = np.array([annuity(assumptions.discount_rate, float(each)) for each in t])
    price, yearly = assumptions.sed_extra_price, payback.saving_per_year

    def at(limit: float | None) -> Floats | None:
        return None if limit is None else so_far * limit - price

    return Course(t, so_far * yearly.mid - price, at(yearly.low), at(yearly.high))
