"""The declared contrasts of configurations, and comparisons within one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

import polars as pl

from analysis.energy.energy import ALL, WORK
from analysis.stats.comparison import Comparison
from analysis.stats.same_work import NONE_UNEQUAL, Cell, UnequalWork
from analysis.stats.summary import (
    BlockValues,
    block_means,
    cell_means,
    compare_in_blocks,
    compare_pairs,
)
from analysis.suite.records import SYSTEM, Suite
from contract.plan import DeclaredComparison

IDLE = "idle"


@dataclass(frozen=True)
class Contrast:
    """`other` against `base`: the geometric mean over `workloads` within blocks.

    Every workload has the same weight. `comparison` is None if no block has both sides;
    `by_workload` has the comparison in each workload over all blocks with both sides.
    """

    base: str
    other: str
    declared: bool
    comparison: Comparison | None
    workloads: tuple[str, ...]
    by_workload: Mapping[str, Comparison] = field(default_factory=dict)


def contrasts(suite: Suite, energy: pl.DataFrame) -> list[Contrast]:
    """Compute the declared contrasts, then each other configuration against the baseline.

    They are not yet judged (`analysis.stats.family`).
    """
    joules = by_block(energy, SYSTEM)
    computed = []
    for base, other, declared in pairs(suite):
        shared = [w for w in counted(suite) if (w, base) in joules and (w, other) in joules]
        c = compare_in_blocks(suite, [(joules[w, base], joules[w, other]) for w in shared])
        if c is None:
            computed.append(Contrast(base, other, declared, None, ()))
            continue
        by_workload = {}
        for workload in working(suite):
            sides = joules.get((workload, base), {}), joules.get((workload, other), {})
            if (comparison := compare_pairs(suite, *sides)) is not None:
                by_workload[workload] = comparison
        computed.append(Contrast(base, other, declared, c, tuple(shared), by_workload))
    return computed


def scatter_shares(contrast: Contrast) -> dict[str, float]:
    """Return each workload's share of the variance between blocks."""
    squares = {
        name: c.sd_log**2
        for name, c in contrast.by_workload.items()
        if name in contrast.workloads and c.sd_log is not None
    }
    total = sum(squares.values())
    return {name: square / total for name, square in squares.items()} if total else {}


def working(suite: Suite) -> list[str]:
    """Return the workloads other than idling, which saves nothing."""
    return [name for name in suite.workloads if suite.workload_of(name) != IDLE]


def counted(suite: Suite) -> list[str]:
    """Return the working workloads that enter the figure over all workloads."""
    return [name for name in working(suite) if suite.counts_overall(name)]


def passes(suite: Suite) -> list[tuple[str, Mapping[str, float]]]:
    """Return named weights by workload for sums of joules.

    They are one run of each counted workload, and the declared duty of a day if the suite has all
    of its workloads.
    """
    weighted: list[tuple[str, Mapping[str, float]]] = [
        ("one pass of the suite", dict.fromkeys(counted(suite), 1.0))
    ]
    duty = {} if suite.assumptions is None else suite.assumptions.duty
    if duty and set(duty) <= set(suite.workloads):
        weighted.append(("a day of the declared duty", duty))
    return weighted


def by_block(energy: pl.DataFrame, component: str) -> dict[tuple[str, str], BlockValues]:
    """Return the mean joules of whole runs by (workload, configuration) and block."""
    rows = energy.filter(pl.col("energy_j").is_not_null(), component=component, phase=ALL)
    cells = cell_means(rows, ("workload", "configuration"), energy_j=pl.col("energy_j"))
    return {(key[0], key[1]): values["energy_j"] for key, values in cells.items()}


def pairs(suite: Suite) -> Iterator[tuple[str, str, bool]]:
    """Yield each pair of configurations once, with whether the plan declares it."""
    names = suite.configurations
    against = [(base, name) for name in names if (base := suite.base_of(name)) is not None]
    against += [(base, name) for name in names if (base := suite.reference(name)) is not None]
    if suite.by_disk:
        against += combinations([name for name in names if suite.reference(name) == name], 2)
    yielded: set[frozenset[str]] = set()
    for number, (base, other) in enumerate([*suite.plan.analysis.contrasts, *against]):
        pair = frozenset((base, other))
        if len(pair) == 2 and pair not in yielded:
            yielded.add(pair)
            yield base, other, number < len(suite.plan.analysis.contrasts)


@dataclass(frozen=True)
class Answer:
    """The ratio first / second of the joules of a declared comparison on one configuration.

    The `question` is the plan's, with the unit per which it was answered.
    """

    question: DeclaredComparison
    configuration: str
    comparison: Comparison | None


def configurations_of(suite: Suite, question: DeclaredComparison) -> list[str]:
    """Return the configurations to which a comparison applies, in the plan's order."""
    names, sides = question.configurations, (question.first, question.second)
    return [
        name
        for name in suite.configurations
        if (
            all((s.workload, name) in suite.planned for s in sides)
            if names is None
            else name in names
        )
    ]


def comparisons(
    suite: Suite, energy: pl.DataFrame, unequal: Mapping[Cell, UnequalWork] = NONE_UNEQUAL
) -> list[Answer]:
    """Answer the plan's comparisons on each of their configurations; they are not yet judged.

    A phase with unequal work is compared per unit of work even if the plan names no unit.
    """
    answers = []
    for question in suite.plan.analysis.comparisons:
        names = [] if any(faults(suite, question)) else configurations_of(suite, question)
        sides = [(side.workload, side.phase) for side in (question.first, question.second)]
        per = question.per
        if per is None:  # the unit of the side with unequal work, if both sides count it
            unit = next((unequal[side].unit for side in sides if side in unequal), None)
            rows = [energy.filter(workload=workload, phase=phase) for workload, phase in sides]
            per = unit if unit and all(r[unit].is_not_null().all() for r in rows) else None
        amount = pl.col(per) if per else 1.0
        asked = replace(question, per=per)
        for name in names:
            on = energy.filter(configuration=name, component=SYSTEM)
            first, second = (
                block_means(
                    on.filter(workload=side.workload, phase=side.phase), pl.col("energy_j") / amount
                )
                for side in (question.first, question.second)
            )
            answers.append(Answer(asked, name, compare_pairs(suite, second, first)))
    return answers


def faults(suite: Suite, question: DeclaredComparison) -> Iterator[str]:
    """Yield a sentence for each reason why this plan cannot answer a comparison."""
    for side in (question.first, question.second):
        if side.workload not in suite.workloads:
            yield f"The plan has no workload {side.workload or 'for one side of it'}."
    if question.per and question.per not in WORK:
        yield f"{question.per} is not a unit of work: {', '.join(WORK)} are."
    if not configurations_of(suite, question):
        yield "It names no configuration of the plan that has both sides."
