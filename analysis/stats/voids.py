"""Test whether tries were void more often under one configuration.

A void try is repeated until one is accepted. If a configuration itself makes tries void, for
instance by an overheated processor, the accepted runs are a biased selection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from analysis.energy.energy import energy_table
from analysis.stats.comparison import Comparison, holm
from analysis.stats.contrasts import contrasts
from analysis.stats.same_work import compared_energy
from analysis.suite.records import Run, Suite
from analysis.suite.suite_folder import parse_run
from contract import strict_json
from contract.attempts import History
from contract.journal import INTERRUPTIONS, REPEAT, SKIPPED

NOT_BY_THE_RUN = INTERRUPTIONS | {REPEAT, SKIPPED}


@dataclass(frozen=True)
class VoidTries:
    """A configuration's void tries, except interruptions and requested repetitions.

    `p_adjusted` is that of Fisher's exact test against all other configurations.
    """

    configuration: str
    void: int
    tries: int
    others_void: int
    others: int
    p_adjusted: float


def void_tries(suite: Suite) -> list[VoidTries]:
    """Return the void tries of each configuration with any try; p-values are Holm's."""
    planned = {run.run_id: run.configuration for run in suite.plan.runs}
    void = Counter(
        planned[attempt.run_id]
        for attempt in History(suite.journal).attempts
        if attempt.void and attempt.void.cause not in NOT_BY_THE_RUN and attempt.run_id in planned
    )
    finished = Counter(run.configuration for run in suite.compared_runs)
    names = [name for name in suite.configurations if void[name] + finished[name]]
    all_void, all_tries = void.total(), void.total() + finished.total()
    tries = {name: void[name] + finished[name] for name in names}
    p_values = [fisher(void[n], tries[n], all_void, all_tries) for n in names]
    return [
        VoidTries(n, void[n], tries[n], all_void - void[n], all_tries - tries[n], p)
        for n, p in zip(names, holm(np.array(p_values)).tolist(), strict=True)
    ]


def fisher(hits: int, tries: int, all_hits: int, all_tries: int) -> float:
    """Return the two-sided p-value of `hits` among these tries, given those among all tries.

    It is twice the smaller tail of the hypergeometric distribution.
    """
    if not 0 < all_hits < all_tries:
        return 1.0  # as in most suites
    from scipy.stats import hypergeom  # slow to import

    by_chance = hypergeom(all_tries, all_hits, tries)
    return float(min(1.0, 2 * min(by_chance.sf(hits - 1), by_chance.cdf(hits))))


def with_void_tries(suite: Suite, energy: pl.DataFrame, base: str, other: str) -> Comparison | None:
    """Return the ratio over all workloads with void tries counted like accepted ones.

    None if no void try is complete.
    """
    runs = tuple(_complete(suite))
    if not runs:
        return None
    void = energy_table(replace(suite, runs=runs)).with_columns(pl.col("run_id") + ".void")
    rows = compared_energy(suite, pl.concat([energy, void], how="vertical_relaxed"))
    matching = (c for c in contrasts(suite, rows) if {c.base, c.other} == {base, other})
    return next((c.comparison for c in matching), None)


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
