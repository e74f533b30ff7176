"""Declared comparisons within a configuration: one workload or phase against another.

The same inference as for contrasts of configurations: log-ratios paired within blocks, Student's t,
equivalence by two one-sided tests, and Holm over the family of all comparisons on all
configurations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from analysis.energy.energy import ALL, WORK
from analysis.stats.family import judged
from analysis.stats.stats import Comparison, Estimate
from analysis.stats.summary import BlockValues, compare_blocks, estimate_of, quotients
from analysis.suite.records import SYSTEM, Suite


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
    analysis = suite.plan.get("analysis")
    given = analysis.get("comparisons") if isinstance(analysis, Mapping) else None
    entries = given if isinstance(given, list) else []
    return [_question(suite, entry) for entry in entries if isinstance(entry, Mapping)]


def comparisons(suite: Suite, energy: pl.DataFrame, component: str = SYSTEM) -> list[Answer]:
    """Each question on each of its configurations; all of them are one family."""
    found = [
        _answer(suite, energy, question, configuration, component)
        for question in questions(suite)
        if not question.fault
        for configuration in question.configurations
    ]
    family = iter(judged([a.comparison for a in found if a.comparison is not None]))
    return [a if a.comparison is None else replace(a, comparison=next(family)) for a in found]


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
    side = given if isinstance(given, Mapping) else {}
    return Side(str(side.get("workload") or ""), str(side.get("phase") or ALL))


def _faults(suite: Suite, question: Question) -> Iterator[str]:
    for side in (question.first, question.second):
        if side.workload not in suite.workloads:
            yield f"The plan has no workload {side.workload or 'for one side of it'}."
    if question.per and question.per not in WORK:
        yield f"{question.per} is no unit of work: {', '.join(WORK)} are."
    if not question.configurations:
        yield "It names no configuration of the plan that has both sides."


def _answer(
    suite: Suite, energy: pl.DataFrame, question: Question, configuration: str, component: str
) -> Answer:
    on = energy.filter(
        (pl.col("configuration") == configuration) & (pl.col("component") == component)
    )
    first = _values(on, question.first, question.per)
    second = _values(on, question.second, question.per)
    compared = compare_blocks(second, first, suite.margin)
    return Answer(question, configuration, estimate_of(first), estimate_of(second), compared)


def _values(energy: pl.DataFrame, side: Side, per: str) -> BlockValues:
    rows = energy.filter((pl.col("workload") == side.workload) & (pl.col("phase") == side.phase))
    return quotients(rows, pl.col("energy_j"), pl.col(per) if per else pl.lit(1.0))
