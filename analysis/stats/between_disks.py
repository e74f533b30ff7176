"""Between disks: whether an encryption costs as much on one disk as on another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import polars as pl

from analysis.stats.comparison import Comparison, judged
from analysis.stats.contrasts import by_block, counted
from analysis.stats.summary import BlockValues, compare_in_blocks
from analysis.suite.records import SYSTEM, Suite


@dataclass(frozen=True)
class BetweenDisks:
    """One storage stack on two disks; `first` and `second` are its configurations there.

    `comparison` is of the factors by which the stack changes the joules of its own disk, second by
    first, in the same blocks and workloads: 1 where it costs the same share on both (the
    interaction of disk and encryption, on the logarithms of the joules).
    """

    stack: str
    first: str
    second: str
    comparison: Comparison


def between_disks(suite: Suite, energy: pl.DataFrame) -> list[BetweenDisks]:
    """Every stack on every two disks that both have a configuration without encryption; one family.

    Empty where the suite has one disk.
    """
    joules = by_block(energy, SYSTEM)
    found = [one for pair in _pairs(suite) if (one := _between(suite, joules, *pair)) is not None]
    family = judged([one.comparison for one in found])
    return [replace(one, comparison=c) for one, c in zip(found, family, strict=True)]


def _pairs(suite: Suite) -> Iterator[tuple[str, str]]:
    by_stack: dict[str, list[str]] = {}
    for name, entry in suite.named("configurations").items():
        if suite.reference(name) != name and entry.get("encrypted_by") != "none":
            by_stack.setdefault(repr(_stack(entry)), []).append(name)
    for names in by_stack.values():
        yield from combinations(names, 2)


def _stack(entry: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """All that the plan says of a configuration but where it lies."""
    return sorted((k, v) for k, v in entry.items() if k not in ("name", "disk", "label"))


def _between(
    suite: Suite, joules: Mapping[tuple[str, str], BlockValues], first: str, second: str
) -> BetweenDisks | None:
    if suite.disk_of(first) == suite.disk_of(second):
        return None
    factors = (
        [_factors(suite, joules, workload, name) for name in (first, second)]
        for workload in counted(suite)
    )
    found = compare_in_blocks(suite, [sides for sides in factors if all(sides)])
    if found is None:
        return None
    label = str(suite.named("configurations")[first].get("label") or first)
    stack = label.removesuffix(f", on {suite.disk_of(first)}")
    return BetweenDisks(stack, first, second, found.comparison)


def _factors(
    suite: Suite, joules: Mapping[tuple[str, str], BlockValues], workload: str, name: str
) -> dict[int, float]:
    """Joules under a configuration by those of its disk without encryption, by block."""
    reference = suite.reference(name) or ""
    if suite.disk_of(reference) != suite.disk_of(name):
        return {}
    own, base = joules.get((workload, name), {}), joules.get((workload, reference), {})
    return {b: own[b] / base[b] for b in own.keys() & base.keys() if own[b] > 0 and base[b] > 0}
