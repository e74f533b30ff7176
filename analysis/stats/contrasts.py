"""The declared contrasts of configurations, and comparisons within one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

import polars as pl

from analysis.columns import schema
from analysis.energy.energy import ALL, WORK
from analysis.stats.comparison import Comparison
from analysis.stats.same_work import NONE_UNEQUAL, Cell, UnequalWork
from analysis.stats.summary import (
    BlockValues,
    block_means,
    cell_means,
    compare_in_blocks,
    compare_pairs,
    compared_component,
)
from analysis.suite.records import Suite
from contract.estimates import ends
from contract.plan import DeclaredComparison

IDLE = "idle"


@dataclass(frozen=True)
class Contrast:
    """`other` against `base`: the geometric mean over `workloads` within blocks.

    Every workload has the same weight. `comparison` is of the joules, None if no block has both
    sides. `time` and `power` are the ratios of time and of mean power in the same blocks, without a
    verdict; their product is the ratio of the joules. `by_workload` has the comparison in each
    workload over all blocks with both sides.
    """

    base: str
    other: str
    declared: bool
    comparison: Comparison | None
    workloads: tuple[str, ...]
    by_workload: Mapping[str, Comparison] = field(default_factory=dict)
    time: Comparison | None = None
    power: Comparison | None = None

    @property
    def inverted(self) -> Contrast:
        """The same contrast the other way round."""
        comparison, time, power = (c and c.inverted for c in self.parts)
        return Contrast(
            self.other,
            self.base,
            self.declared,
            comparison,
            self.workloads,
            {workload: c.inverted for workload, c in self.by_workload.items()},
            time,
            power,
        )

    @property
    def parts(self) -> tuple[Comparison | None, Comparison | None, Comparison | None]:
        """The ratios of energy, time and mean power."""
        return self.comparison, self.time, self.power

    def decided(self, c: Comparison | None, first_tries: Contrast | None) -> Contrast:
        """Return the contrast with the decided comparison of its joules.

        Time and power get its level and, if it holds the first tries, theirs; power also gets the
        meter's error.
        """
        if c is None or self.time is None or self.power is None:
            return replace(self, comparison=c)
        tried = first_tries if c.first_tries is not None else None
        time, power = (
            replace(part, level=c.level, complete=c.complete, first_tries=first)
            for part, first in zip(
                (self.time, self.power), tried.parts[1:] if tried else (None, None), strict=True
            )
        )
        return replace(self, comparison=c, time=time, power=replace(power, systematic=c.systematic))


def contrasts(suite: Suite, energy: pl.DataFrame) -> list[Contrast]:
    """Compute the declared contrasts, then each other configuration against the baseline.

    They are not yet judged (`analysis.stats.family`).
    """
    component = compared_component(suite, energy["component"])
    joules = by_block(energy, component)
    seconds = by_block(energy, component, "duration_s")
    power_w = {
        cell: {block: j / s for block, j in values.items() if (s := seconds[cell].get(block))}
        for cell, values in joules.items()
    }
    computed = []
    for base, other, declared in pairs(suite):
        shared = [w for w in counted(suite) if (w, base) in joules and (w, other) in joules]
        c, time, power = (
            compare_in_blocks(suite, [(values[w, base], values[w, other]) for w in shared])
            for values in (joules, seconds, power_w)
        )
        if c is None:
            computed.append(Contrast(base, other, declared, None, ()))
            continue
        by_workload = {}
        for workload in working(suite):
            sides = joules.get((workload, base), {}), joules.get((workload, other), {})
            if (comparison := compare_pairs(suite, *sides)) is not None:
                by_workload[workload] = comparison
        contrast = Contrast(base, other, declared, c, tuple(shared), by_workload, time, power)
        computed.append(contrast)
    return computed


_RATIOS = " ".join(f"{name}:f {name}_low:f {name}_high:f" for name in ("ratio", "time", "power"))
CONTRASTS = schema(f"base other declared:b workloads:l n:i {_RATIOS} level:f verdict")


def contrast_table(compared: Iterable[Contrast]) -> pl.DataFrame:
    """Return a row a contrast: the ratios of energy, time and power, and the verdict of energy."""
    rows: list[tuple[object, ...]] = []
    for contrast in compared:
        c = contrast.comparison
        ratios = (end for part in contrast.parts for end in ends(part.estimate if part else None))
        verdict = (None, None) if c is None else (c.columns["level"], c.verdict)
        pair = contrast.base, contrast.other, contrast.declared
        rows.append((*pair, list(contrast.workloads), c.n if c else 0, *ratios, *verdict))
    return pl.DataFrame(rows, schema=CONTRASTS, orient="row")


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


def by_block(
    energy: pl.DataFrame, component: str, column: str = "energy_j"
) -> dict[tuple[str, str], BlockValues]:
    """Return the mean of whole runs with joules by (workload, configuration) and block."""
    rows = energy.filter(pl.col("energy_j").is_not_null(), component=component, phase=ALL)
    cells = cell_means(rows, ("workload", "configuration"), value=pl.col(column))
    return {(key[0], key[1]): values["value"] for key, values in cells.items()}


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
    component = compared_component(suite, energy["component"])
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
            on = energy.filter(configuration=name, component=component)
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
