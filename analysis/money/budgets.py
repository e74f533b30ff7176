"""The uncertainty budgets of a suite's figures: joules, ratios and savings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from analysis.columns import schema
from analysis.energy.energy import RAPL
from analysis.money import costs
from analysis.stats.budget import (
    Budget,
    Mean,
    instrument_rows,
    joules_budget,
    ratio_readings,
    scatter,
)
from analysis.stats.comparison import Comparison
from analysis.stats.family import terms_of
from analysis.stats.results import Results
from analysis.stats.summary import base_of, groups_of
from analysis.suite.records import SYSTEM
from contract.estimates import ends
from instrumentation.accuracy import ErrorTerm

EVERY = "all"  # the geometric mean over the workloads


@dataclass(frozen=True)
class Budgeted:
    """A budget with the place of its figure; `base` is empty if nothing is compared."""

    workload: str
    base: str
    configuration: str
    source: str
    component: str
    budget: Budget


def joules(results: Results) -> Iterator[Budgeted]:
    """Yield the budgets of a run's mean joules, as in the summary."""
    suite = results.suite
    for key, group in groups_of(suite, results.energy).items():
        if group.mean is not None:
            terms = terms_of(suite, *key[2:])
            budget = joules_budget(terms, group.mean, *group.error_j)
            yield Budgeted(key[0], "", key[1], key[2], key[3], budget)


def ratios(results: Results) -> Iterator[Budgeted]:
    """Yield the budgets of each configuration's ratio to the baseline in each workload."""
    suite, groups = results.suite, groups_of(results.suite, results.energy)
    for key, comparison in results.family.versus.items():
        base = base_of(key, suite)
        sides = groups[base].mean, groups[key].mean
        budget = ratio_budget(terms_of(suite, *key[2:]), comparison, [sides])
        yield Budgeted(key[0], base[1], key[1], key[2], key[3], budget)


def overall(results: Results) -> Iterator[Budgeted]:
    """Yield the budgets of the contrasts over all working workloads."""
    suite = results.suite
    source = suite.reference_meter(SYSTEM) or ""
    groups = groups_of(suite, results.energy)
    means = {key[:2]: group.mean for key, group in groups.items() if key[3] == SYSTEM}
    for c in results.contrasts:
        if c.comparison is not None:
            pairs = [tuple(means.get((w, name)) for name in (c.base, c.other)) for w in c.workloads]
            budget = ratio_budget(terms_of(suite, source, SYSTEM), c.comparison, pairs)
            yield Budgeted(EVERY, c.base, c.other, source, SYSTEM, budget)


def savings(results: Results) -> Iterator[Budgeted]:
    """Yield the budgets of the savings of each workload and of the duty profile."""
    suite = results.suite
    paybacks = costs.profiles(suite, results.energy) + costs.paybacks(suite, results.energy)
    # A profile may be a workload, which then counts once.
    unique = {(p.workload, p.against, p.runs_per_day): p for p in reversed(paybacks)}
    for p in reversed(unique.values()):
        source = suite.reference_meter(p.component) or RAPL
        yield Budgeted(p.workload, p.against, p.drive, source, p.component, p.budget)


def ratio_budget(
    terms: Iterable[ErrorTerm], c: Comparison, pairs: Sequence[tuple[Mean | None, ...]]
) -> Budget:
    """Return the budget of a ratio over the workloads with joules of base and other."""
    complete = [(p[0], p[1]) for p in pairs if p[0] is not None and p[1] is not None]
    rows = scatter(c.error, c.df, "1"), *instrument_rows(terms, ratio_readings(complete))
    return Budget("ratio", "1", c.ratio, rows, carried=c.estimate)


COLUMNS = schema(
    "suite_id host figure workload base configuration source component unit value:f low:f high:f "
    "combined:f freedom:f factor:f expanded:f not_stated term type distribution term_unit "
    "half_width:f divisor:f standard:f readings:i sensitivity_least:f sensitivity_most:f "
    "correlation:f contribution:f share:f stated_by"
)


def table(results: Results) -> pl.DataFrame:
    """Return a row a term of every budget (columns: data/README.md).

    There are budgets of joules and ratios of each workload, configuration and component, of ratios
    over all workloads, and of savings, from which money follows.
    """
    rows = []
    for b in (*joules(results), *ratios(results), *overall(results), *savings(results)):
        budget = b.budget
        freedom = budget.freedom if math.isfinite(budget.freedom) else None
        figure = (
            *(results.suite.suite_id, results.suite.host, budget.figure),
            *(b.workload, b.base, b.configuration, b.source, b.component),
            *(budget.unit, *ends(budget.interval), budget.combined, freedom, budget.factor),
            *(budget.expanded, " ".join(budget.missing)),
        )
        for row in budget.rows:
            slopes = row.sensitivities
            rows.append(
                (
                    *figure,
                    *(row.term, row.evaluation, row.distribution, row.unit),
                    *(row.half_width, row.divisor, row.standard),
                    len(slopes) if row.evaluation == "B" else None,
                    *(min(slopes, default=None), max(slopes, default=None)),
                    row.correlation if len(slopes) > 1 else None,
                    *(row.contribution, budget.share(row), row.stated),
                )
            )
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")
