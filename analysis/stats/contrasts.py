"""The declared contrasts of configurations, and comparisons within one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from analysis.energy.energy import ALL, WORK
from analysis.stats.comparison import Comparison, judged
from analysis.stats.stats import Estimate, Floats
from analysis.stats.summary import (
    BlockValues,
    block_means,
    compare_in_blocks,
    compare_pairs,
    estimate_of,
)
from analysis.suite.documents import mapping, mappings
from analysis.suite.records import SYSTEM, Suite

IDLE = "idle"
RESAMPLES, SEED = 9_999, 20_260_301


@dataclass(frozen=True)
class Contrast:
    """`other` against `base` over `workloads`: the geometric mean, within blocks.

    `comparison` is None where no block has both sides. `permutation_p` is the p-value of a paired
    permutation test of the same log-ratios: beside the t test's, a check of robustness.
    """

    base: str
    other: str
    declared: bool
    comparison: Comparison | None
    workloads: tuple[str, ...]
    permutation_p: float | None


def contrasts(suite: Suite, energy: pl.DataFrame) -> list[Contrast]:
    """The declared contrasts, then each other configuration against the baseline; one family."""
    joules = by_block(energy, SYSTEM)
    found = [_contrast(suite, joules, *pair) for pair in pairs(suite)]
    family = judged([c.comparison for c in found])
    return [replace(c, comparison=one) for c, one in zip(found, family, strict=True)]


@dataclass(frozen=True)
class InWorkload:
    """`other` against `base` in one workload alone, over all blocks that have both."""

    workload: str
    base: str
    other: str
    comparison: Comparison


def by_workload(suite: Suite, energy: pl.DataFrame) -> list[InWorkload]:
    """The declared contrasts without the baseline, in each working workload; one family.

    Extra blocks that run a part of the suite count here, where they cannot in the contrasts over
    all workloads; against the baseline it is the summary that has them.
    """
    joules = by_block(energy, SYSTEM)
    found = []
    for base, other, declared in pairs(suite):
        if not declared or suite.baseline in (base, other):
            continue
        for workload in working(suite):
            sides = joules.get((workload, base), {}), joules.get((workload, other), {})
            rest = _rest(suite, joules, workload, base, other)
            one = compare_in_blocks(suite, [[*sides, *rest]])
            if one is not None:
                found.append(InWorkload(workload, base, other, one.comparison))
    family = judged([one.comparison for one in found])
    return [replace(one, comparison=c) for one, c in zip(found, family, strict=True)]


def working(suite: Suite) -> list[str]:
    """The workloads that do something: idling saves nobody anything."""
    return [name for name in suite.workloads if suite.workload_of(name) != IDLE]


def counted(suite: Suite) -> list[str]:
    """The working workloads that the figure over all of them counts."""
    return [name for name in working(suite) if suite.counts_overall(name)]


def by_block(energy: pl.DataFrame, component: str) -> dict[tuple[str, str], dict[int, float]]:
    """Mean joules of whole runs by (workload, configuration) and block, where there are any."""
    rows = (
        energy.filter(pl.col("energy_j").is_not_null(), component=component, phase=ALL)
        .group_by("workload", "configuration", "block")
        .agg(pl.col("energy_j").mean())
        .sort("block")
    )
    found: dict[tuple[str, str], dict[int, float]] = {}
    for workload, configuration, block, energy_j in rows.iter_rows():
        found.setdefault((workload, configuration), {})[int(block)] = float(energy_j)
    return found


def permutation_p(log_ratios: Sequence[float]) -> float | None:
    """Two-sided p-value of a mean of 0 by swapping the sides of pairs; None for fewer than two.

    Exact for up to 13 blocks, else from 9 999 seeded draws.
    """
    from scipy import stats  # slow to import, and seldom needed

    if len(log_ratios) < 2:
        return None
    test = stats.permutation_test(
        (np.asarray(log_ratios),),
        _mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        rng=np.random.default_rng(SEED),
    )
    return float(test.pvalue)


def _mean(values: Floats, axis: int) -> Floats:
    return np.asarray(np.mean(values, axis=axis))


def pairs(suite: Suite) -> Iterator[tuple[str, str, bool]]:
    """Each pair of configurations once, whichever way round it was declared first."""
    names = suite.configurations
    against = [(base, name) for name in names if (base := suite.base_of(name)) is not None]
    against += [(base, name) for name in names if (base := suite.reference(name)) is not None]
    if suite.by_disk:
        against += combinations([name for name in names if suite.reference(name) == name], 2)
    seen: set[frozenset[str]] = set()
    for number, (base, other) in enumerate([*suite.contrasts, *against]):
        pair = frozenset((base, other))
        if len(pair) == 2 and pair not in seen:
            seen.add(pair)
            yield base, other, number < len(suite.contrasts)


def _contrast(
    suite: Suite,
    joules: Mapping[tuple[str, str], BlockValues],
    base: str,
    other: str,
    declared: bool,
) -> Contrast:
    """Every workload counts as much, however many of its runs there are; those that only one side
    has are left out."""
    both = [w for w in counted(suite) if (w, base) in joules and (w, other) in joules]
    found = compare_in_blocks(
        suite,
        [[joules[w, base], joules[w, other], *_rest(suite, joules, w, base, other)] for w in both],
    )
    if found is None:
        return Contrast(base, other, declared, None, (), None)
    by_permutation = permutation_p(found.log_ratios.tolist())
    return Contrast(base, other, declared, found.comparison, tuple(both), by_permutation)


def _rest(
    suite: Suite, joules: Mapping[tuple[str, str], BlockValues], workload: str, *but: str
) -> list[BlockValues]:
    """The joules of the other configurations."""
    return [joules.get((workload, name), {}) for name in suite.configurations if name not in but]


@dataclass(frozen=True)
class Side:
    """An entry of the plan, and a phase of it or `all`."""

    workload: str
    phase: str


@dataclass(frozen=True)
class Question:
    """A comparison as it was declared; `per` is a unit of work, or empty for the joules themselves.

    `fault` says in a sentence why it cannot be answered from this plan; empty where it can.
    """

    name: str
    question: str
    first: Side
    second: Side
    per: str
    configurations: tuple[str, ...]
    fault: str = ""


@dataclass(frozen=True)
class Answer:
    """`first` against `second` on one configuration: the ratio first / second of the joules."""

    question: Question
    configuration: str
    first: Estimate | None
    second: Estimate | None
    comparison: Comparison | None


def questions(suite: Suite) -> list[Question]:
    """The plan's comparisons in its order; one that makes no sense keeps its fault."""
    return [_question(suite, entry) for entry in mappings(suite.analysis.get("comparisons"))]


def comparisons(suite: Suite, energy: pl.DataFrame) -> list[Answer]:
    """Each question on each of its configurations; all of them are one family."""
    found = [
        _answer(suite, energy, question, configuration)
        for question in questions(suite)
        if not question.fault
        for configuration in question.configurations
    ]
    family = judged([a.comparison for a in found])
    return [replace(a, comparison=one) for a, one in zip(found, family, strict=True)]


def _question(suite: Suite, entry: Mapping[str, Any]) -> Question:
    named = entry.get("configurations")
    wanted = [str(name) for name in named] if isinstance(named, list) else suite.configurations
    question = Question(
        name=str(entry.get("name") or ""),
        question=str(entry.get("question") or entry.get("name") or "Without a name"),
        first=_side(entry.get("first")),
        second=_side(entry.get("second")),
        per=str(entry.get("per") or ""),
        configurations=tuple(name for name in suite.configurations if name in wanted),
    )
    if not isinstance(named, list):
        sides = (question.first.workload, question.second.workload)
        there = question.configurations
        both = (c for c in there if all((side, c) in suite.planned for side in sides))
        question = replace(question, configurations=tuple(both))
    return replace(question, fault=" ".join(_faults(suite, question)))


def _side(given: Any) -> Side:
    side = mapping(given)
    return Side(str(side.get("workload") or ""), str(side.get("phase") or ALL))


def _faults(suite: Suite, question: Question) -> Iterator[str]:
    for side in (question.first, question.second):
        if side.workload not in suite.workloads:
            yield f"The plan has no workload {side.workload or 'for one side of it'}."
    if question.per and question.per not in WORK:
        yield f"{question.per} is not a unit of work: {', '.join(WORK)} are."
    if not question.configurations:
        yield "It names no configuration of the plan that has both sides."


def _answer(suite: Suite, energy: pl.DataFrame, question: Question, configuration: str) -> Answer:
    on = energy.filter(configuration=configuration, component=SYSTEM)
    first = _values(on, question.first, question.per)
    second = _values(on, question.second, question.per)
    compared = compare_pairs(suite, second, first)
    return Answer(question, configuration, estimate_of(first), estimate_of(second), compared)


def _values(energy: pl.DataFrame, side: Side, per: str) -> BlockValues:
    rows = energy.filter(workload=side.workload, phase=side.phase)
    return block_means(rows, pl.col("energy_j") / (pl.col(per) if per else 1.0))
