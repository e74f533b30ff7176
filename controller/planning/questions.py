"""The questions of a suite: contrasts, comparisons, and extra blocks for some of them.

Each is declared before a suite's first run and frozen in its plan (data/README.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations

from agent.storage.base import BOTH, DRIVE, PROCESSOR, UNENCRYPTED
from contract.errors import ControllerError
from contract.plan import Configuration
from controller.planning.entries import select_configurations
from controller.planning.known_names import require_known
from controller.planning.schedule import Turn
from controller.planning.suites import Suite, SuiteComparison
from workloads.base import UNITS

Pair = tuple[str, str]


@dataclass(frozen=True)
class Extra:
    """Blocks after the full ones, with a part of the suite."""

    blocks: int
    configurations: tuple[str, ...]
    turns: tuple[Turn, ...]


def plan_contrasts(suite: Suite, configurations: Sequence[Configuration]) -> list[Pair]:
    """Return pairs of configurations; by default all to the unencrypted, others to the drive.

    In a suite of several `disks` by default within each; and the disks without encryption.
    """
    unencrypted: dict[str, str] = {}
    for configuration in configurations if suite.disks else ():
        if configuration.encrypted_by == UNENCRYPTED:
            unencrypted.setdefault(configuration.disk, configuration.name)
    between = list(combinations(unencrypted.values(), 2))
    if suite.contrasts is not None:
        names = [configuration.name for configuration in configurations]
        require_known("configuration", chain.from_iterable(suite.contrasts), names)
        return [*suite.contrasts, *between]
    default = {(UNENCRYPTED, whom) for whom in (DRIVE, PROCESSOR, BOTH)}
    default |= {(DRIVE, whom) for whom in (PROCESSOR, BOTH)}
    within = [
        (base.name, other.name)
        for base in configurations
        for other in configurations
        if (base.encrypted_by, other.encrypted_by) in default
        and (not unencrypted or base.disk == other.disk)
    ]
    return within + between


def plan_extra(
    suite: Suite, names: Sequence[str], turns: Sequence[Turn], *, chosen: bool
) -> Extra | None:
    """Return the suite's further blocks; None where it has none, or nothing of them is left."""
    declared = suite.extra
    if declared is None:
        return None
    configurations = select_configurations("extra", declared.configurations, names, chosen=chosen)
    known = [entry.name for entry in suite.workloads]
    require_known("workload of extra", declared.workloads or (), known)
    some = tuple(
        turn for turn in turns if declared.workloads is None or turn.name in declared.workloads
    )
    reached = tuple(n for n in configurations if any(n in turn.configurations for turn in some))
    if not reached and not chosen:
        raise ControllerError("extra-without-workload")
    return Extra(declared.blocks, reached, some) if declared.blocks and reached else None


def plan_comparisons(
    suite: Suite, names: Sequence[str], turns: Sequence[Turn], *, chosen: bool
) -> list[SuiteComparison]:
    """Return contrasts within a configuration, between two entries or phases, wherever both run.

    Where configurations were `chosen`, those that nothing is left of are no part of the plan.
    """
    declared = [comparison.name for comparison in suite.comparisons]
    if len(set(declared)) != len(declared):
        raise ControllerError("comparison-twice", declared=", ".join(declared))
    on = {turn.name: turn.configurations for turn in turns}
    planned = []
    for comparison in suite.comparisons:
        what = f"the comparison {comparison.name}"
        _check_comparison(comparison, suite, what)
        wanted = comparison.configurations
        named = select_configurations(what, wanted, names, chosen=chosen)
        sides = [on.get(side.workload, ()) for side in (comparison.first, comparison.second)]
        common = tuple(name for name in named if all(name in side for side in sides))
        if not chosen and (not common or (wanted and common != named)):
            without = ", ".join(name for name in named if name not in common)
            raise ControllerError("side-without-workload", without=without, what=what)
        if common:
            planned.append(replace(comparison, configurations=common))
    return planned


def _check_comparison(comparison: SuiteComparison, suite: Suite, what: str) -> None:
    known = [entry.name for entry in suite.workloads]
    sides = comparison.first, comparison.second
    require_known(f"workload in {what}", [side.workload for side in sides], known)
    if comparison.per is not None:
        require_known(f"unit of work in {what}", [comparison.per], UNITS)
    if comparison.first == comparison.second:
        raise ControllerError("sides-alike", what=what)
