"""All verdicts of a suite as one family of comparisons, and the summary with them.

Verdicts are given for the contrasts over all workloads, for each workload × configuration in the
judged component, and for the declared questions. Other comparisons only have an interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product

import polars as pl

from analysis.energy.energy import COUNTERS, PYRAPL
from analysis.stats.budget import Mean, instrument_error, joules_budget
from analysis.stats.comparison import SKEWED, Comparison, judge_comparisons, pooled_skewness
from analysis.stats.contrasts import Answer, Contrast, comparisons, contrasts, counted
from analysis.stats.levels import Levels, apart, find_levels
from analysis.stats.same_work import NONE_UNEQUAL, Cell, UnequalWork
from analysis.stats.stats import LEVEL
from analysis.stats.summary import (
    COMPONENTS,
    RATIO_COLUMNS,
    SUMMARY_SCHEMA,
    Group,
    Key,
    SummaryRow,
    base_of,
    compare_pairs,
    first_component,
    groups_of,
)
from analysis.stats.voids import void_tries
from analysis.suite import records
from analysis.suite.records import SYSTEM, Suite
from instrumentation.accuracy import ErrorTerm, read_terms
from instrumentation.sources.accuracy import rapl_terms

LEVELS, VOIDS, COARSE = "two-levels", "voids", "meter-decides"


@dataclass(frozen=True)
class Family:
    """The comparisons of a suite; those with `p_adjusted` are its family.

    `versus` has every group of the summary against its baseline; `component` is the judged one.
    """

    component: str
    contrasts: tuple[Contrast, ...]
    versus: Mapping[Key, Comparison]
    answers: tuple[Answer, ...]
    levels: tuple[Levels, ...]

    @property
    def tested(self) -> int:
        """Number of comparisons in the family."""
        comparisons = [*(c.comparison for c in self.contrasts), *self.versus.values()]
        comparisons += [a.comparison for a in self.answers]
        return len({_same(c) for c in comparisons if c is not None and c.p_adjusted is not None})


def judge(
    suite: Suite, energy: pl.DataFrame, unequal: Mapping[Cell, UnequalWork] = NONE_UNEQUAL
) -> Family:
    """Compute all comparisons of a suite, and judge those with a verdict as one family.

    `unequal` are the phases that are scaled to the same work in `energy`.
    """
    groups = groups_of(suite, energy)
    component = first_component(COMPONENTS, {key[3] for key in groups})
    levels = tuple(find_levels(suite, energy, component))
    selected = selected_configurations(suite)
    versus = _versus(suite, groups, levels, selected)
    source = suite.reference_meter(SYSTEM) or "meter"
    terms = terms_of(suite, source, SYSTEM)
    means = {key[:2]: group.mean for key, group in groups.items() if key[3] == SYSTEM}
    contrasts_judged = []
    for contrast in contrasts(suite, energy):
        c, by_workload = contrast.comparison, list(contrast.by_workload.values())
        if c is not None:
            skewness = pooled_skewness(by_workload) / math.sqrt(max(1, len(by_workload)))
            names = contrast.base, contrast.other
            sides = [tuple(means.get((w, name)) for name in names) for w in contrast.workloads]
            codes = _codes(levels, selected, *names)
            c = replace(c, complete=_finished(suite, counted(suite), names))
            c = _completed(c, terms, sides, skewness, codes)
        contrasts_judged.append(replace(contrast, comparison=c))
    answers = []
    for answer in comparisons(suite, energy, unequal):
        if (c := answer.comparison) is not None:
            asked = answer.question
            names, on = (asked.second.workload, asked.first.workload), answer.configuration
            sides = [(means.get((names[0], on)), means.get((names[1], on)))]
            two_levels = any(
                level.blocks and level.workload in names
                for level in levels
                if level.configuration == on
            )
            c = replace(c, complete=_finished(suite, names, (on,)))
            c = _completed(c, terms, sides, 0.0, (LEVELS,) * two_levels)
        answers.append(replace(answer, comparison=c))
    rows = [key for key in versus if key[3] == component]
    every = [*(c.comparison for c in contrasts_judged), *(versus[key] for key in rows)]
    every += [a.comparison for a in answers]
    # A question that is asked in two places counts once.
    unique = {_same(c): c for c in every if c is not None}
    decided = dict(zip(unique, judge_comparisons(list(unique.values())), strict=True))
    family = iter([None if c is None else decided[_same(c)] for c in every])
    contrasts_judged = [replace(c, comparison=next(family)) for c in contrasts_judged]
    versus |= {key: c for key in rows if (c := next(family)) is not None}
    answers = [replace(a, comparison=next(family)) for a in answers]
    return Family(component, tuple(contrasts_judged), versus, tuple(answers), levels)


def _same(c: Comparison) -> tuple[float | None, ...]:
    """Return a key that is the same for the same question with the same answer."""
    return c.n, c.ratio, c.error, c.df, c.skewness, c.systematic


def _versus(
    suite: Suite, groups: Mapping[Key, Group], levels: Sequence[Levels], selected: frozenset[str]
) -> dict[Key, Comparison]:
    """Compare each group with its baseline's; the comparisons are not yet judged."""
    compared: dict[Key, Comparison] = {}
    for key, group in groups.items():
        base = base_of(key, suite)
        if base == key or base not in groups:
            continue
        c = compare_pairs(suite, groups[base].energy_j, group.energy_j)
        if c is not None:
            compared[key] = replace(c, complete=_finished(suite, key[:1], (base[1], key[1])))
    skewed = {
        alike: pooled_skewness([c for key, c in compared.items() if key[1:] == alike])
        for alike in {key[1:] for key in compared}
    }
    return {
        key: _completed(
            c,
            terms_of(suite, *key[2:]),
            [(groups[base_of(key, suite)].mean, groups[key].mean)],
            skewed[key[1:]],
            _codes(levels, selected, base_of(key, suite)[1], key[1]),
        )
        for key, c in compared.items()
    }


def _finished(suite: Suite, workloads: Iterable[str], configurations: Iterable[str]) -> bool:
    """Return whether all planned runs of these workloads on these configurations are finished."""
    unfinished = {(run.workload, run.configuration) for run in suite.unfinished}
    return unfinished.isdisjoint(product(workloads, configurations))


def _codes(
    levels: Sequence[Levels], selected: frozenset[str], base: str, other: str
) -> tuple[str, ...]:
    """Return codes of the reasons why two configurations cannot be called equivalent."""
    voids = not selected.isdisjoint((base, other))
    return (LEVELS,) * apart(levels, base, other) + (VOIDS,) * voids


def selected_configurations(suite: Suite) -> frozenset[str]:
    """Return the configurations with void tries significantly more often than the others."""
    return frozenset(
        tries.configuration
        for tries in void_tries(suite)
        if tries.p_adjusted < LEVEL and tries.void * tries.others > tries.others_void * tries.tries
    )


def _completed(
    c: Comparison,
    terms: Sequence[ErrorTerm],
    sides: Sequence[tuple[Mean | None, ...]],
    skewness: float,
    codes: Sequence[str],
) -> Comparison:
    """Add the meter's error, the skewness of all workloads, and reasons to withhold a verdict."""
    if c.error is None:
        return c
    doubts = dict.fromkeys(codes)
    pairs = [(s[0], s[1]) for s in sides if s[0] is not None and s[1] is not None]
    systematic = instrument_error(terms, pairs)
    if systematic > c.error:
        doubts[COARSE] = None
    if abs(skewness) > abs(c.skewness):
        doubts[SKEWED] = None
    return replace(
        c,
        skewness=max(c.skewness, skewness, key=abs),
        systematic=systematic,
        withheld=bool(codes),
        doubts=tuple(doubts | dict.fromkeys(c.doubts)),
    )


def terms_of(suite: Suite, source: str, component: str) -> tuple[ErrorTerm, ...]:
    """Return the stated error terms of a source for one of its components."""
    if source in COUNTERS:
        return rapl_terms(component.removeprefix(f"{PYRAPL}-"))
    meter = next((meter for meter in suite.meters if meter.name == source), None)
    return read_terms({}) if meter is None else meter.terms


def summary_rows(suite: Suite, energy: pl.DataFrame, family: Family) -> Iterator[SummaryRow]:
    """Yield the rows of the summary in the plan's order."""
    groups = groups_of(suite, energy)
    for key, group in groups.items():
        if group.mean is None:
            continue
        c = family.versus.get(key)
        base_origins: Iterable[str] = () if c is None else groups[base_of(key, suite)].origins
        terms = terms_of(suite, *key[2:])
        joules = joules_budget(terms, group.mean, *group.error_j)
        decided = c is not None and (c.p_adjusted is not None or c.error is None)
        yield SummaryRow(
            suite.suite_id,
            suite.host,
            *key,
            n=len(group.energy_j),
            mean_j=group.mean[0],
            ci_low_j=joules.interval.low,
            ci_high_j=joules.interval.high,
            mean_s=group.mean[1],
            mean_w=group.mean_w,
            **(dict.fromkeys(RATIO_COLUMNS) if c is None else c.columns),
            verdict=c.verdict if c is not None and decided else "",
            doubts="" if c is None else " ".join(c.doubts),
            origin=records.worst_origin([*group.origins, *base_origins]),
        )


def as_table(rows: Iterable[SummaryRow]) -> pl.DataFrame:
    """Return the summary as the table of summary.parquet."""
    return pl.DataFrame([asdict(row) for row in rows], schema=dict(SUMMARY_SCHEMA))
