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
    """The blocks after the full ones, with a part of the configurations and entries."""

    blocks: int
    configurations: tuple[str, ...]
    turns: tuple[Turn, ...]


def plan_contrasts(suite: Suite, configurations: Sequence[Configuration]) -> list[Pair]:
    """Return the pairs of configurations to compare, those of the suite or the default ones.

    By default all are compared with the unencrypted one, and the processor's with the drive's. In a
    suite of several `disks` these are pairs on one disk, and the unencrypted disks are compared in
    any case.
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
    default = {(UNENCRYPTED, encryptor) for encryptor in (DRIVE, PROCESSOR, BOTH)}
    default |= {(DRIVE, encryptor) for encryptor in (PROCESSOR, BOTH)}
    within = [
        (base.name, compared.name)
        for base in configurations
        for compared in configurations
        if (base.encrypted_by, compared.encrypted_by) in default
        and (not unencrypted or base.disk == compared.disk)
    ]
    return within + between


def plan_extra(
    suite: Suite, names: Sequence[str], turns: Sequence[Turn], *, chosen: bool
) -> Extra | None:
    """Return the suite's extra blocks, or None if nothing runs in them; raises ControllerError."""
    declared = suite.extra
    if declared is None:
        return None
    configurations = select_configurations("extra", declared.configurations, names, chosen=chosen)
    entry_names = [entry.name for entry in suite.workloads]
    require_known("workload of extra", declared.workloads or (), entry_names)
    selected = entry_names if declared.workloads is None else declared.workloads
    turns = [turn for turn in turns if turn.name in selected]
    entered = tuple(n for n in configurations if any(n in turn.configurations for turn in turns))
    if not entered and not chosen:
        raise ControllerError("extra-without-workload")
    return Extra(declared.blocks, entered, tuple(turns)) if declared.blocks and entered else None


def plan_comparisons(
    suite: Suite, names: Sequence[str], turns: Sequence[Turn], *, chosen: bool
) -> list[SuiteComparison]:
    """Return the suite's comparisons of two entries or phases, on configurations that run both.

    If the user has `chosen` configurations, comparisons without any are left out. Raises
    ControllerError.
    """
    declared = [comparison.name for comparison in suite.comparisons]
    if len(set(declared)) != len(declared):
        raise ControllerError("comparison-twice", declared=", ".join(declared))
    entry_names = [entry.name for entry in suite.workloads]
    configurations_of = {turn.name: turn.configurations for turn in turns}
    planned = []
    for comparison in suite.comparisons:
        part = f"the comparison {comparison.name}"
        sides = comparison.first, comparison.second
        require_known(f"workload in {part}", [side.workload for side in sides], entry_names)
        if comparison.per is not None:
            require_known(f"unit of work in {part}", [comparison.per], UNITS)
        if comparison.first == comparison.second:
            raise ControllerError("sides-alike", what=part)
        requested = comparison.configurations
        selected = select_configurations(part, requested, names, chosen=chosen)
        runs_on = [configurations_of.get(side.workload, ()) for side in sides]
        common = tuple(name for name in selected if all(name in names for names in runs_on))
        if not chosen and (not common or (requested and common != selected)):
            without = ", ".join(name for name in selected if name not in common)
            raise ControllerError("side-without-workload", without=without, what=part)
        if common:
            planned.append(replace(comparison, configurations=common))
    return planned
