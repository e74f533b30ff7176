"""Uncertainty budgets by the Guide to the Expression of Uncertainty in Measurement (JCGM 100:2008).

A figure depends on the scatter between blocks (type A) and on readings of one instrument, whose
error has several terms (type B). Each term has a half width, a distribution and its divisor (4.3),
a sensitivity coefficient for each reading (5.1.3), and a correlation between the readings (5.2): a
gain error is the same in all readings, so it stays in joules and cancels in a ratio.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import scipy  # its parts are loaded when they are used

from analysis.energy.uncertainty import half_width
from analysis.stats.stats import LEVEL, critical
from contract.estimates import NORMAL, Estimate
from instrumentation.accuracy import ErrorTerm

Distribution = Literal["Student t", "rectangular", "triangular"]
SCATTER = "scatter"  # the term of type A: between blocks
CANCELS = 1e-12  # coefficients whose sum is at most this share of their sizes cancel
# A count and its age differ at both edges of a reading: two rectangles make a triangle.
AT_BOTH_EDGES = ("count", "update")


@dataclass(frozen=True)
class Reading:
    """One reading that enters a figure; `slope` is the figure's derivative by its joules."""

    energy_j: float
    seconds: float
    slope: float

    def sensitivity(self, unit: str) -> float:
        """Return the figure's derivative by an error in this unit: a share (1), W, J or s."""
        power_w = self.energy_j / self.seconds if self.seconds else 0.0
        return self.slope * {"1": self.energy_j, "W": self.seconds, "J": 1.0, "s": power_w}[unit]


@dataclass(frozen=True)
class Row:
    """One term of a budget, with half width None if it is not stated.

    `half_width / divisor` is its standard uncertainty. There is one of `sensitivities` for each
    reading; `correlation` is that of the errors of any two readings. If the term `matters`, the
    budget is incomplete without it. `stated` names the source.
    """

    term: str
    evaluation: Literal["A", "B"]
    distribution: Distribution
    unit: str
    half_width: float | None
    divisor: float
    sensitivities: tuple[float, ...] = (1.0,)
    correlation: float = 0.0
    df: float = math.inf
    matters: bool = True
    stated: str = ""

    @property
    def standard(self) -> float | None:
        """Standard uncertainty, in `unit`."""
        return None if self.half_width is None else self.half_width / self.divisor

    @property
    def parts(self) -> tuple[float, ...]:
        """The figure's standard uncertainties from the independent parts of the error.

        Errors with the correlation r are the sum of a common one of variance r and a separate one
        of variance 1 − r for each reading; the root sum of squares is GUM 5.2.2, equation 16.
        """
        u = self.standard or 0.0
        common = math.sqrt(self.correlation) * abs(self.common)
        unshared = math.sqrt(1 - self.correlation)
        return tuple(
            u * part for part in (common, *(unshared * abs(c) for c in self.sensitivities))
        )

    @property
    def common(self) -> float:
        """The figure's derivative by an error that is the same in all readings."""
        total = math.fsum(self.sensitivities)
        size = math.fsum(map(abs, self.sensitivities))
        return 0.0 if abs(total) <= CANCELS * size else total

    @property
    def contribution(self) -> float | None:
        """Standard uncertainty of the figure from this term."""
        return None if self.half_width is None else math.hypot(*self.parts)

    @property
    def lacking(self) -> bool:
        """Whether the term matters and is not stated."""
        return self.half_width is None and self.matters


def scatter(error: float | None, df: float | None, unit: str) -> Row:
    """Return the term of type A; without a standard error (one block) its half width is None."""
    if error is None or df is None:
        return Row(SCATTER, "A", "Student t", unit, None, 1.0)
    divisor = float(critical(np.asarray(df), LEVEL))
    return Row(SCATTER, "A", "Student t", unit, error * divisor, divisor, df=df)


def instrument_rows(terms: Iterable[ErrorTerm], readings: Sequence[Reading]) -> tuple[Row, ...]:
    """Return an instrument's error terms (type B) in a figure calculated from these readings."""
    rows = []
    for term in terms:
        triangular = term.name in AT_BOTH_EDGES
        row = Row(
            term.name,
            "B",
            "triangular" if triangular else "rectangular",
            term.unit,
            term.limit,
            math.sqrt(6 if triangular else 3),
            tuple(reading.sensitivity(term.unit) for reading in readings),
            term.shared,
            stated=term.source,
        )
        included = bool(term.within) and len(readings) == 1  # in another term's limit
        cancels = term.shared == 1 and row.common == 0
        rows.append(replace(row, matters=not (included or cancels)))
    return tuple(rows)


@dataclass(frozen=True)
class Budget:
    """All uncertainty terms of one figure, and their combination.

    For a ratio, the rows apply to its logarithm, and `carried` is the interval of its comparison.
    """

    figure: str
    unit: str
    value: float
    rows: tuple[Row, ...]
    carried: Estimate | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of terms that matter and are not stated; they make the budget incomplete."""
        return tuple(row.term for row in self.rows if row.lacking)

    @cached_property
    def combined(self) -> float:
        """Combined standard uncertainty of the stated terms (GUM 5)."""
        return math.hypot(*(row.contribution or 0.0 for row in self.rows))

    def share(self, row: Row) -> float | None:
        """Return the term's share of the combined variance; None if it is not stated."""
        if row.contribution is None or self.combined == 0:
            return None
        return (row.contribution / self.combined) ** 2

    @cached_property
    def freedom(self) -> float:
        """Effective degrees of freedom (Welch and Satterthwaite, GUM G.4.1)."""
        return self._freedom_of(self.combined)

    def _freedom_of(self, combined: float) -> float:
        """Return the degrees of freedom; only terms of type A have finitely many."""
        if combined == 0:
            return math.inf
        shares = (((row.contribution or 0.0) / combined) ** 4 / row.df for row in self.rows)
        divided = sum(shares)
        return math.inf if divided == 0 else 1 / divided

    @cached_property
    def expanded(self) -> float | None:
        """Half width of the 95 % interval; None if the scatter is unknown.

        The widest rectangle is convolved with a normal distribution of all other terms (JCGM 101 in
        closed form), widened by Student's t for their effective degrees of freedom. Without a
        rectangle it is t times the combined standard uncertainty, as in GUM G.3.
        """
        if any(row.half_width is None for row in self.rows if row.evaluation == "A"):
            return None
        rectangles = [
            part
            for row in self.rows
            if row.distribution == "rectangular" and row.half_width is not None
            for part in row.parts
        ]
        widest = max(rectangles, default=0.0)
        others = math.sqrt(max(0.0, (self.combined - widest) * (self.combined + widest)))
        freedom = self._freedom_of(others)
        t = float(scipy.special.stdtrit(freedom, 1 - LEVEL / 2)) if freedom < 1e9 else NORMAL
        widened = others * t / NORMAL  # a normal distribution with the same 95 % interval
        return float(half_width(np.array([widest * math.sqrt(3)]), np.array([widened]))[0])

    @property
    def factor(self) -> float | None:
        """Coverage factor: expanded uncertainty over combined standard uncertainty."""
        if self.expanded is None or self.combined == 0:
            return None
        return self.expanded / self.combined

    @cached_property
    def interval(self) -> Estimate:
        """95 % interval of the figure."""
        if self.carried is not None:
            return self.carried
        if self.expanded is None:
            return Estimate(self.value, None, None)
        return Estimate(self.value, self.value - self.expanded, self.value + self.expanded)


def ratio_readings(
    pairs: Sequence[tuple[tuple[float, float], tuple[float, float]]],
) -> list[Reading]:
    """Return the readings in a ratio's logarithm, from joules and seconds of base and other.

    There is one pair of sides for each workload; the figure is the mean of their logarithms.
    """
    share = 1 / max(1, len(pairs))
    return [
        Reading(energy_j, seconds, sign * share / energy_j)
        for pair in pairs
        for sign, (energy_j, seconds) in zip((-1, 1), pair, strict=True)
    ]


Mean = tuple[float, float]  # joules and seconds


def joules_budget(terms: Iterable[ErrorTerm], mean: Mean, error: float | None, df: float) -> Budget:
    """Return the budget of a run's mean joules from its standard error over blocks."""
    rows = scatter(error, df, "J"), *instrument_rows(terms, [Reading(*mean, 1.0)])
    return Budget("joules of a run", "J", mean[0], rows)


def instrument_error(terms: Iterable[ErrorTerm], pairs: Sequence[tuple[Mean, Mean]]) -> float:
    """Return a log-ratio's standard uncertainty from the instrument's error; 0 if none is stated.

    `pairs` are joules and seconds of base and other in each workload.
    """
    if not pairs or any(joules <= 0 for pair in pairs for joules, _ in pair):
        return 0.0
    rows = instrument_rows(terms, ratio_readings(pairs))
    return math.hypot(*(row.contribution or 0.0 for row in rows))
