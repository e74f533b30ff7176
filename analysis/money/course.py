"""The net saving over the years."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.money.payback import Payback, annuity
from analysis.suite.clocks import Floats
from contract.assumptions import Assumptions


@dataclass(frozen=True)
class Course:
    """Net saving so far, in today's money, over the years; a band where there is an interval."""

    years: Floats
    mid: Floats
    low: Floats | None
    high: Floats | None


def course(payback: Payback, assumptions: Assumptions, years: Sequence[float] | Floats) -> Course:
    """Return what is saved up to each of `years`, discounted, less the drive's extra price.

    At the end of the drive's life it is the net present value.
    """
    t = np.asarray(years, dtype=np.float64)
    so_far = np.array([annuity(assumptions.discount_rate, float(each)) for each in t])
    price, yearly = assumptions.sed_extra_price, payback.saving_per_year

    def at(limit: float | None) -> Floats | None:
        return None if limit is None else so_far * limit - price

    return Course(t, so_far * yearly.mid - price, at(yearly.low), at(yearly.high))
