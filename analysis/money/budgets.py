"""The uncertainty budgets of a suite's figures: joules, ratios, savings and their worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from analysis.money import costs
from analysis.money.payback import Payback, years_by_saving
from analysis.stats.budget import (
    Budget,
    Mean,
    Row,
    joules_budget,
    of_terms,
    ratio_readings,
    scatter,
)
from analysis.stats.comparison import Comparison
from analysis.stats.family import terms_of
from analysis.stats.results import Results
from analysis.stats.summary import base_of, groups_of
from analysis.suite.records import SYSTEM, Suite
from contract.assumptions import Assumptions
from instrumentation.accuracy import ErrorTerm

EVERY = "all"  # the geometric mean over the workloads


@dataclass(frozen=True)
class Budgeted:
    """A budget and what it is of; `base` is empty where nothing is compared."""

    workload: str
    base: str
    configuration: str
    source: str
    component: str
    budget: Budget


def joules(results: Results) -> Iterator[Budgeted]:
    """Mean joules of a run, as in the summary."""
    suite = results.suite
    for key, group in groups_of(suite, results.energy).items():
        if group.mean is not None:
            terms = terms_of(suite, *key[2:])
            budget = joules_budget(terms, group.mean, *group.error_j)
            yield Budgeted(key[0], "", key[1], key[2], key[3], budget)


def ratios(results: Results) -> Iterator[Budgeted]:
    """Each configuration to the baseline in each workload."""
    suite, groups = results.suite, groups_of(results.suite, results.energy)
    for key, comparison in results.family.versus.items():
        base = base_of(key, suite)
        sides = groups[base].mean, groups[key].mean
        budget = ratio_budget(terms_of(suite, *key[2:]), comparison, [sides])
        yield Budgeted(key[0], base[1], key[1], key[2], key[3], budget)


def overall(results: Results) -> Iterator[Budgeted]:
    """Yield the contrasts over all workloads that do something."""
    suite = results.suite
    source = suite.reference_meter(SYSTEM) or ""
    groups = groups_of(suite, results.energy)
    means = {key[:2]: group.mean for key, group in groups.items() if key[3] == SYSTEM}
    for c in results.contrasts:
        if c.comparison is not None:
            pairs = [tuple(means.get((w, name)) for name in (c.base, c.other)) for w in c.workloads]
            budget = ratio_budget(terms_of(suite, source, SYSTEM), c.comparison, pairs)
            yield Budgeted(EVERY, c.base, c.other, source, SYSTEM, budget)


def money(results: Results) -> Iterator[Budgeted]:
    """Yield what each workload, and the duty profile, saves; a year's money; years until repaid."""
    suite, a = results.suite, results.suite.assumptions
    if a is None:
        return
    done: set[tuple[str, str, float]] = set()
    for p in [*costs.profiles(suite, results.energy), *costs.paybacks(suite, results.energy)]:
        if (p.workload, p.against, p.runs_per_day) not in done:  # a profile may be a workload
            yield from of_payback(suite, p, a)
        done.add((p.workload, p.against, p.runs_per_day))


def of_payback(suite: Suite, p: Payback, a: Assumptions) -> Iterator[Budgeted]:
    """Return saving, money a year, and years where a payback is demonstrated."""
    source = suite.reference_meter(SYSTEM) or ""
    for budget in _worth(p, a):
        yield Budgeted(p.workload, p.against, suite.sed or "", source, SYSTEM, budget)


def _worth(p: Payback, a: Assumptions) -> Iterator[Budget]:
    yield p.budget
    if p.saving_j.mean == 0:
        return
    factor = p.saving_per_year.mid / p.saving_j.mean
    a_year = p.budget.scaled("saving a year", a.currency, factor)
    yield a_year
    slope = years_by_saving(p.saving_per_year.mid, a)
    if p.years is not None and slope is not None:
        yield a_year.derived("years to repay", "a", p.years.mid, slope, p.years)


def ratio_budget(
    terms: Iterable[ErrorTerm], c: Comparison, pairs: Sequence[tuple[Mean | None, ...]]
) -> Budget:
    """Of a comparison over the workloads that have joules and seconds of base and other."""
    known = [(p[0], p[1]) for p in pairs if p[0] is not None and p[1] is not None]
    rows: tuple[Row, ...] = of_terms(terms, ratio_readings(known))
    first = scatter(c.error, c.df, "1")
    terms_and_scatter = (first, *rows)
    return Budget("ratio", "1", c.ratio, terms_and_scatter, True, carried=c.interval())


Column = tuple[pl.DataType, Callable[[Budgeted, Row], object]]
NUMBER, TEXT = pl.Float64(), pl.String()
COLUMNS: Mapping[str, Column] = {
    "figure": (TEXT, lambda budgeted, _: budgeted.budget.figure),
    "workload": (TEXT, lambda budgeted, _: budgeted.workload),
    "base": (TEXT, lambda budgeted, _: budgeted.base),
    "configuration": (TEXT, lambda budgeted, _: budgeted.configuration),
    "source": (TEXT, lambda budgeted, _: budgeted.source),
    "component": (TEXT, lambda budgeted, _: budgeted.component),
    "unit": (TEXT, lambda budgeted, _: budgeted.budget.unit),
    "value": (NUMBER, lambda budgeted, _: budgeted.budget.value),
    "low": (NUMBER, lambda budgeted, _: budgeted.budget.interval.low),
    "high": (NUMBER, lambda budgeted, _: budgeted.budget.interval.high),
    "combined": (NUMBER, lambda budgeted, _: budgeted.budget.combined),
    "freedom": (
        NUMBER,
        lambda budgeted, _: (
            budgeted.budget.freedom if math.isfinite(budgeted.budget.freedom) else None
        ),
    ),
    "factor": (NUMBER, lambda budgeted, _: budgeted.budget.factor),
    "expanded": (NUMBER, lambda budgeted, _: budgeted.budget.expanded),
    "not_stated": (TEXT, lambda budgeted, _: " ".join(budgeted.budget.missing)),
    "term": (TEXT, lambda _, row: row.term),
    "type": (TEXT, lambda _, row: row.evaluation),
    "distribution": (TEXT, lambda _, row: row.distribution),
    "term_unit": (TEXT, lambda _, row: row.unit),
    "half_width": (NUMBER, lambda _, row: row.half_width),
    "divisor": (NUMBER, lambda _, row: row.divisor),
    "standard": (NUMBER, lambda _, row: row.standard),
    "readings": (
        pl.Int64(),
        lambda _, row: len(row.sensitivities) if row.evaluation == "B" else None,
    ),
    "sensitivity_least": (NUMBER, lambda _, row: min(row.sensitivities, default=None)),
    "sensitivity_most": (NUMBER, lambda _, row: max(row.sensitivities, default=None)),
    "correlation": (NUMBER, lambda _, row: row.correlation if len(row.sensitivities) > 1 else None),
    "contribution": (NUMBER, lambda _, row: row.contribution),
    "share": (NUMBER, lambda budgeted, row: budgeted.budget.share(row)),
    "stated_by": (TEXT, lambda _, row: row.stated),
}


def table(results: Results) -> pl.DataFrame:
    """Return a row a term of every budget (columns: data/README.md).

    Of every figure that is a headline somewhere: joules and ratios of each workload, configuration
    and component, ratios over all workloads, savings and what they are worth.
    """
    same = {"suite_id": results.suite.suite_id, "host": results.suite.host}
    rows = [
        {**same, **{name: value(budgeted, row) for name, (_, value) in COLUMNS.items()}}
        for budgeted in (*joules(results), *ratios(results), *overall(results), *money(results))
        for row in budgeted.budget.rows
    ]
    kinds = {name: kind for name, (kind, _) in COLUMNS.items()}
    return pl.DataFrame(rows, schema={**dict.fromkeys(same, TEXT), **kinds})
