"""Uncertainty budgets by the Guide to the Expression of Uncertainty in Measurement (JCGM 100:2008).

A figure rests on the scatter between blocks (type A) and on readings of one instrument, whose error
has several terms (type B). Each term has a half width, a distribution and its divisor (4.3), a
sensitivity coefficient for each reading (5.1.3), and a correlation between the readings (5.2): a
gain is the same in all of them, so it stays in joules and cancels in a ratio.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from scipy import special

from analysis.energy.uncertainty import half_width
from analysis.stats.stats import LEVEL, critical
from contract.estimates import Estimate
from instrumentation.accuracy import ErrorTerm

Distribution = Literal["Student t", "normal", "rectangular", "triangular"]
DIVISORS: dict[Distribution, float] = {
    "normal": 1.0,
    "rectangular": math.sqrt(3),
    "triangular": math.sqrt(6),
}
SCATTER = "scatter"  # the term of type A: between blocks
NORMAL = float(special.ndtri(1 - LEVEL / 2))
CANCELS = 1e-12  # coefficients whose sum is this share of their sizes add up to nothing
# A count and its age differ at both edges of a reading: two rectangles make a triangle.
AT_BOTH_EDGES = ("count", "update")


@dataclass(frozen=True)
class Reading:
    """One reading that a figure is made of; `slope` is what the figure changes with its joules."""

    energy_j: float
    seconds: float
    slope: float

    def sensitivity(self, unit: str) -> float:
        """Return what the figure changes with an error in this unit: a share, W, J or s."""
        power_w = self.energy_j / self.seconds if self.seconds else 0.0
        return self.slope * {"1": self.energy_j, "W": self.seconds, "J": 1.0, "s": power_w}[unit]


@dataclass(frozen=True)
class Row:
    """One term: `half_width / divisor` is its standard uncertainty, None where it is not stated.

    `sensitivities` are one for each reading, `correlation` is that of the error in any two of them.
    `matters` is whether the budget is incomplete without it; `stated` who states it.
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
        """Standard uncertainties of the figure from what is independent of each other in it.

        Errors with the correlation r are a common one of variance r and each reading's own of
        variance 1 − r; the root sum of squares is that of GUM 5.2.2, equation 16.
        """
        u = self.standard or 0.0
        common = math.sqrt(self.correlation) * abs(self.common)
        unshared = math.sqrt(1 - self.correlation)
        return tuple(
            u * part for part in (common, *(unshared * abs(c) for c in self.sensitivities))
        )

    @property
    def common(self) -> float:
        """What the figure changes with an error that all readings share."""
        total = math.fsum(self.sensitivities)
        size = math.fsum(map(abs, self.sensitivities))
        return 0.0 if abs(total) <= CANCELS * size else total

    @property
    def contribution(self) -> float | None:
        """Standard uncertainty of the figure from this term."""
        return None if self.half_width is None else math.hypot(*self.parts)

    @property
    def lacking(self) -> bool:
        """Whether it is not stated and would count."""
        return self.half_width is None and self.matters


def scatter(error: float | None, df: float | None, unit: str) -> Row:
    """Return the term of type A; without an error (one block) it is not known."""
    if error is None or df is None:
        return Row(SCATTER, "A", "Student t", unit, None, 1.0)
    divisor = float(critical(np.asarray(df), LEVEL))
    return Row(SCATTER, "A", "Student t", unit, error * divisor, divisor, df=df)


def of_terms(terms: Iterable[ErrorTerm], readings: Sequence[Reading]) -> tuple[Row, ...]:
    """Return an instrument's terms of error (type B) in a figure made of these readings."""
    return tuple(_of_term(term, readings) for term in terms)


def _of_term(term: ErrorTerm, readings: Sequence[Reading]) -> Row:
    distribution: Distribution = "triangular" if term.name in AT_BOTH_EDGES else "rectangular"
    row = Row(
        term.name,
        "B",
        distribution,
        term.unit,
        term.limit,
        DIVISORS[distribution],
        tuple(reading.sensitivity(term.unit) for reading in readings),
        term.shared,
        stated=term.source,
    )
    held = bool(term.within) and len(readings) == 1  # another term's limit holds it too
    cancels = term.shared == 1 and row.common == 0
    return replace(row, matters=not (held or cancels))


@dataclass(frozen=True)
class Budget:
    """All terms of one figure, and what they come to.

    Of a ratio the rows are of its logarithm, and `carried` is the interval of its comparison.
    """

    figure: str
    unit: str
    value: float
    rows: tuple[Row, ...]
    carried: Estimate | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """The terms that are not stated and would count; with one of them it is incomplete."""
        return tuple(row.term for row in self.rows if row.lacking)

    @cached_property
    def combined(self) -> float:
        """Combined standard uncertainty, of the terms that are stated (GUM 5)."""
        return math.hypot(*(row.contribution or 0.0 for row in self.rows))

    def share(self, row: Row) -> float | None:
        """Of the variance."""
        if row.contribution is None or self.combined == 0:
            return None
        return (row.contribution / self.combined) ** 2

    @cached_property
    def freedom(self) -> float:
        """Effective degrees of freedom (Welch and Satterthwaite, GUM G.4.1)."""
        return self._freedom_of(self.combined)

    def _freedom_of(self, combined: float) -> float:
        """Terms of type B are taken as known: only those of type A have finitely many."""
        if combined == 0:
            return math.inf
        shares = (((row.contribution or 0.0) / combined) ** 4 / row.df for row in self.rows)
        divided = sum(shares)
        return math.inf if divided == 0 else 1 / divided

    @cached_property
    def expanded(self) -> float | None:
        """Half width of the 95 % interval; None where the scatter is not known.

        The widest rectangle is kept as one, and convolved with a normal distribution of all else
        (JCGM 101 in closed form), widened by Student's t for its own effective degrees of freedom.
        Without a rectangle it is t times the combined standard uncertainty, as in GUM G.3.
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
        rest = math.sqrt(max(0.0, (self.combined - widest) * (self.combined + widest)))
        freedom = self._freedom_of(rest)
        t = float(special.stdtrit(freedom, 1 - LEVEL / 2)) if freedom < 1e9 else NORMAL
        widened = rest * t / NORMAL  # a normal distribution with the 95 % of all but the widest
        return float(half_width(np.array([widest * math.sqrt(3)]), np.array([widened]))[0])

    @property
    def factor(self) -> float | None:
        """Coverage factor: expanded uncertainty over combined standard uncertainty."""
        return (
            None if self.expanded is None or self.combined == 0 else self.expanded / self.combined
        )

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
    """Of the logarithm of a ratio: joules and seconds of base and other in each workload.

    Over several workloads it is the mean of their logarithms.
    """
    share = 1 / max(1, len(pairs))
    return [
        Reading(energy_j, seconds, sign * share / energy_j)
        for pair in pairs
        for sign, (energy_j, seconds) in zip((-1, 1), pair, strict=True)
    ]


Mean = tuple[float, float]  # joules and seconds


def joules_budget(terms: Iterable[ErrorTerm], mean: Mean, error: float | None, df: float) -> Budget:
    """Of a mean over blocks with its standard error and degrees of freedom."""
    rows = scatter(error, df, "J"), *of_terms(terms, [Reading(*mean, 1.0)])
    return Budget("joules of a run", "J", mean[0], rows)


def instrument_error(terms: Iterable[ErrorTerm], pairs: Sequence[tuple[Mean, Mean]]) -> float:
    """Return a log-ratio's standard uncertainty from what does not cancel in it.

    0 where nothing is stated.
    """
    if not pairs or any(joules <= 0 for pair in pairs for joules, _ in pair):
        return 0.0
    rows = of_terms(terms, ratio_readings(pairs))
    return math.hypot(*(row.contribution or 0.0 for row in rows))
