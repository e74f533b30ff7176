"""Void tries: how many there were of each configuration, and the joules of first tries.

A void try is repeated until one is accepted. If a configuration itself makes tries void, for
example by heating the processor, what is accepted is a biased sample of its runs. The first try of
every run, void or not, is none: so the ratio of first tries stands next to that of accepted ones
wherever a configuration has void tries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import polars as pl

from analysis.energy.energy import energy_table, reference_rows
from analysis.stats.same_work import compared_energy
from analysis.suite.records import Run, Suite
from analysis.suite.suite_folder import parse_run
from contract import strict_json
from contract.attempts import History
from contract.journal import INTERRUPTIONS, REPEAT, SKIPPED

NOT_BY_THE_RUN = INTERRUPTIONS | {REPEAT, SKIPPED}


@dataclass(frozen=True)
class VoidTries:
    """A configuration's tries that were void without interruption or a demand to repeat."""

    configuration: str
    void: int
    tries: int


def void_tries(suite: Suite) -> list[VoidTries]:
    """Count the tries of each configuration that has any."""
    planned = {run.run_id: run.configuration for run in suite.plan.runs}
    void = Counter(
        planned[attempt.run_id]
        for attempt in History(suite.journal).attempts
        if attempt.void and attempt.void.cause not in NOT_BY_THE_RUN and attempt.run_id in planned
    )
    finished = Counter(run.configuration for run in suite.compared_runs)
    return [
        VoidTries(name, void[name], void[name] + finished[name])
        for name in suite.configurations
        if void[name] + finished[name]
    ]


def void_configurations(suite: Suite) -> frozenset[str]:
    """Return the configurations with a void try that has joules."""
    return frozenset(run.configuration for run in _complete(suite))


def energy_of_first_tries(suite: Suite, energy: pl.DataFrame) -> pl.DataFrame | None:
    """Return the energy table with first tries that were void instead of those that replaced them.

    None if no void try got as far as to have joules.
    """
    first: dict[str, Run] = {}
    for run in _complete(suite):
        first.setdefault(run.run_id, run)
    if not first:
        return None
    tried = reference_rows(suite, energy_table(replace(suite, runs=tuple(first.values()))))
    others = energy.filter(~pl.col("run_id").is_in(list(first)))
    return compared_energy(suite, pl.concat([others, tried], how="vertical_relaxed"))


def _complete(suite: Suite) -> Iterator[Run]:
    """Yield void tries with a complete record and the planned configuration."""
    folders = sorted((suite.folder / "runs").glob("*.void-*"))
    folders += [suite.folder / "runs" / run.run_id for run in suite.void]
    for folder in folders:
        document = strict_json.read_object(folder / "run.json")
        with suppress(ValueError):  # it was not completed
            run = parse_run({**document, "status": "finished"}, suite.plan.sha256)
            if isinstance(run, Run):
                yield run
