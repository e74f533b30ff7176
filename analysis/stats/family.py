"""All verdicts of a suite's page as one family, and the summary that bears them.

Verdicts are given for the contrasts over all workloads, for each workload × configuration in the
component that is judged, and for the declared questions. The contrasts are the answer: 80 % of the
page's 5 % is theirs, 20 % that of everything else. What has no verdict is shown at the level of the
row that it belongs to, so that no figure has two intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product

import polars as pl

from analysis.energy.energy import COUNTERS, PYRAPL, RAPL
from analysis.stats.budget import Mean, instrument_error, joules_budget
from analysis.stats.comparison import ANSWER_SHARE, Comparison, judge_comparisons
from analysis.stats.contrasts import Answer, Contrast, comparisons, contrasts, counted
from analysis.stats.rare_events import RareEvents, allowance, find_rare_events
from analysis.stats.same_work import NONE_UNEQUAL, Cell, UnequalWork
from analysis.stats.summary import (
    COMPONENTS,
    KEYS,
    RATIO_COLUMNS,
    SUMMARY_SCHEMA,
    Group,
    Key,
    SummaryRow,
    base_of,
    compare_pairs,
    compared_component,
    first_component,
    groups_of,
)
from analysis.stats.voids import energy_of_first_tries, void_configurations
from analysis.suite import records
from analysis.suite.records import Suite
from instrumentation.accuracy import ErrorTerm, read_terms
from instrumentation.sources.accuracy import rapl_terms

RARE, VOIDS, COARSE = "rare-events", "voids", "meter-decides"
ANSWER = "answer"  # marks the name of a declared comparison
SAME_FIGURE = 1e-9  # of a ratio: only rounding


@dataclass(frozen=True)
class Family:
    """The comparisons of a suite, each at the level that decides on it.

    `versus` has every group of the summary against its baseline; of these `component` is judged.
    `tested` is the number of comparisons that share the 5 %.
    """

    component: str
    contrasts: tuple[Contrast, ...]
    versus: Mapping[Key, Comparison]
    answers: tuple[Answer, ...]
    events: Mapping[str, RareEvents]
    tested: int

    def shown(self, c: Comparison, workload: str, configuration: str) -> Comparison:
        """Return a comparison without a verdict, with the interval of the row it belongs to."""
        row = next(
            (
                c
                for key, c in self.versus.items()
                if key[:2] == (workload, configuration) and key[3] == self.component
            ),
            None,
        )
        if row is None:
            return c
        if c.n == row.n and abs(c.ratio / row.ratio - 1) < SAME_FIGURE:
            return row
        return replace(c, level=row.level, systematic=row.systematic, allowance=row.allowance)


@dataclass(frozen=True)
class _Question:
    """A comparison, and the configurations that it is of."""

    comparison: Comparison
    configurations: tuple[str, ...]


_Name = tuple[str, ...]  # base and other; a group's key; a declared comparison and where


def judge(
    suite: Suite, energy: pl.DataFrame, unequal: Mapping[Cell, UnequalWork] = NONE_UNEQUAL
) -> Family:
    """Compare all that a suite's page compares, and decide on what it gives a verdict of.

    `unequal` are the phases that `energy` has for the same work.
    """
    groups = groups_of(suite, energy)
    over_all, answers = contrasts(suite, energy), comparisons(suite, energy, unequal)
    component = first_component(COMPONENTS, {key[3] for key in groups})
    events = find_rare_events(suite, energy, component)
    asked = dict(_questions(suite, groups, over_all, answers, events))
    tried = energy_of_first_tries(suite, energy)
    tried_contrasts: dict[tuple[str, str], Contrast] = {}
    if tried is not None:
        tried_sides = contrasts(suite, tried), comparisons(suite, tried, unequal)
        tried_contrasts = {(c.base, c.other): c for c in tried_sides[0]}
        first_tries = dict(_questions(suite, groups_of(suite, tried), *tried_sides, events))
        having_voids = void_configurations(suite)
        for name, question in asked.items():
            if name in first_tries and not having_voids.isdisjoint(question.configurations):
                c = question.comparison
                c = replace(c, first_tries=first_tries[name].comparison, doubts=(*c.doubts, VOIDS))
                asked[name] = replace(question, comparison=c)
    decided, tested = _decide(asked, component)
    return Family(
        component,
        tuple(
            c.decided(decided.get((c.base, c.other)), tried_contrasts.get((c.base, c.other)))
            for c in over_all
        ),
        {(n[0], n[1], n[2], n[3]): c for n, c in decided.items() if len(n) == len(KEYS)},
        tuple(
            replace(a, comparison=decided.get((a.question.name, a.configuration, ANSWER)))
            for a in answers
        ),
        events,
        tested,
    )


def _questions(
    suite: Suite,
    groups: Mapping[Key, Group],
    over_all: Iterable[Contrast],
    answers: Iterable[Answer],
    events: Mapping[str, RareEvents],
) -> Iterator[tuple[_Name, _Question]]:
    """Yield all comparisons of a suite, not yet decided."""
    component = compared_component(suite, (key[3] for key in groups))
    source = suite.reference_meter(component) or RAPL
    terms = terms_of(suite, source, component)
    means = {key[:2]: group.mean for key, group in groups.items() if key[3] == component}
    for contrast in over_all:
        if (c := contrast.comparison) is not None:
            pair = contrast.base, contrast.other
            sides = [tuple(means.get((w, name)) for name in pair) for w in contrast.workloads]
            c = replace(c, complete=_finished(suite, product(counted(suite), pair)))
            yield pair, _Question(_with_error(c, terms, sides), pair)
    for answer in answers:
        if (c := answer.comparison) is not None:
            question, on = answer.question, answer.configuration
            cells = [(side.workload, on) for side in (question.second, question.first)]
            c = replace(c, complete=_finished(suite, cells))
            c = _with_error(c, terms, [tuple(map(means.get, cells))])
            yield (question.name, on, ANSWER), _Question(c, (on,))
    for key, group in groups.items():
        base = base_of(key, suite)
        if base == key or base not in groups:
            continue
        c = compare_pairs(suite, groups[base].energy_j, group.energy_j)
        if c is not None:
            pair = base[1], key[1]
            widened = allowance(events, pair, key[0])
            c = replace(
                c,
                complete=_finished(suite, product(key[:1], pair)),
                allowance=widened,
                doubts=(*c.doubts, *(RARE,) * (widened > 0)),
            )
            sides = [(groups[base].mean, group.mean)]
            yield key, _Question(_with_error(c, terms_of(suite, *key[2:]), sides), pair)


def _finished(suite: Suite, cells: Iterable[tuple[str, str]]) -> bool:
    """Return whether no planned run of these workloads and configurations is left."""
    return {(run.workload, run.configuration) for run in suite.unfinished}.isdisjoint(cells)


def _with_error(
    c: Comparison, terms: Sequence[ErrorTerm], sides: Sequence[tuple[Mean | None, ...]]
) -> Comparison:
    """Add the meter's error in the means of both sides of each workload."""
    if c.error is None:
        return c
    pairs = [(s[0], s[1]) for s in sides if s[0] is not None and s[1] is not None]
    systematic = instrument_error(terms, pairs)
    doubts = (*c.doubts, *(COARSE,) * (systematic > c.error))
    return replace(c, systematic=systematic, doubts=doubts)


def _decide(
    asked: Mapping[_Name, _Question], component: str
) -> tuple[Mapping[_Name, Comparison], int]:
    """Return the comparisons, those of the family at the level that decides, and their number.

    One that is asked in two places, as in a suite of one workload, counts once.
    """
    unjudged = {n for n in asked if len(n) == len(KEYS) and n[3] != component}
    once: dict[object, list[_Name]] = {}
    for name, question in asked.items():
        c = question.comparison
        if name not in unjudged and c.error is not None:
            once.setdefault((c.n, c.ratio, c.error, c.systematic, c.complete), []).append(name)
    is_contrast = [len(names[0]) == len(("base", "other")) for names in once.values()]
    parts = [ANSWER_SHARE, 1 - ANSWER_SHARE] if 0 < sum(is_contrast) < len(once) else [1.0, 1.0]
    weights = [
        parts[0] / sum(is_contrast) if answers else parts[1] / (len(once) - sum(is_contrast))
        for answers in is_contrast
    ]
    firsts = [asked[names[0]].comparison for names in once.values()]
    decided = {name: question.comparison for name, question in asked.items()}
    for names, c in zip(once.values(), judge_comparisons(firsts, weights), strict=True):
        decided |= dict.fromkeys(names, c)
    for name in unjudged:  # at the level of the row that is judged
        row = next((decided[n] for n in decided if n not in unjudged and n[:2] == name[:2]), None)
        if row is not None:
            decided[name] = replace(decided[name], level=row.level)
    return decided, len(once)


def terms_of(suite: Suite, source: str, component: str) -> tuple[ErrorTerm, ...]:
    """Return what is stated of a source's error, for one of its components."""
    if source in COUNTERS:
        return rapl_terms(component.removeprefix(f"{PYRAPL}-"))
    meter = next((meter for meter in suite.meters if meter.name == source), None)
    return read_terms({}) if meter is None else meter.terms


def summary_rows(suite: Suite, energy: pl.DataFrame, family: Family) -> Iterator[SummaryRow]:
    """Yield the rows of the summary, in the plan's order."""
    groups = groups_of(suite, energy)
    for key, group in groups.items():
        if group.mean is None:
            continue
        c = family.versus.get(key)
        beside: Iterable[str] = () if c is None else groups[base_of(key, suite)].origins
        terms = terms_of(suite, *key[2:])
        joules = joules_budget(terms, group.mean, *group.error_j)
        is_judged = c is not None and key[3] == family.component
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
            verdict=c.verdict if c is not None and is_judged else "",
            doubts="" if c is None else " ".join(c.doubts),
            origin=records.worst_origin([*group.origins, *beside]),
        )


def as_table(rows: Iterable[SummaryRow]) -> pl.DataFrame:
    """Return rows of the summary as summary.parquet has them."""
    return pl.DataFrame([asdict(row) for row in rows], schema=dict(SUMMARY_SCHEMA))
