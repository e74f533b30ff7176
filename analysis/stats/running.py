"""The answer of a suite that still runs: its contrasts over the blocks that are complete."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from analysis.energy.energy import ALL, energy_table, of_references
from analysis.stats.contrasts import by_block, counted
from analysis.stats.family import judge
from analysis.stats.same_work import for_same_work, unequal_work
from analysis.stats.summary import BlockValues, compare_in_blocks
from analysis.suite.records import SYSTEM, Suite, joint
from contract.status import Cause, RunningAnswer, RunningContrast, WithoutRatio


def running_answer(suite: Suite, blocks: int) -> RunningAnswer:
    """Compute the report's contrasts over all working workloads, of the first `blocks` blocks.

    At least 1. A block counts for a contrast where every run that the contrast needs is finished
    and has joules of the whole system. Where a run of the last block does not, the contrast is left
    out.
    """
    measured = of_references(suite, energy_table(suite))
    unequal = unequal_work([suite], [measured])
    table = for_same_work(measured, unequal)
    energy = table.filter(component=SYSTEM, phase=ALL)
    joules, states = by_block(energy, SYSTEM), _states(suite, energy)
    compared: list[RunningContrast] = []
    left_out: list[WithoutRatio] = []
    for name in suite.configurations:
        base = suite.base_of(name)
        if base is None or base == name:
            continue
        contrast = _contrast(suite, (base, name), states, joules, blocks)
        if isinstance(contrast, RunningContrast):
            compared.append(contrast)
        else:
            left_out.append(WithoutRatio(name, suite.label(name), contrast))
    origins = [*energy["origin"].unique(), suite.plan.origin]
    settled = suite.any_look and judge(suite, table, unequal).settled
    return RunningAnswer(blocks, SYSTEM, joint(origins), tuple(compared), tuple(left_out), settled)


# By block, workload and configuration: why it cannot be counted, None where it can.
_States = Mapping[tuple[int, str, str], Cause | None]


def _states(suite: Suite, energy: pl.DataFrame) -> _States:
    """Judge all planned runs; one of several repeats within a block is enough not to count."""
    finished = {run.run_id for run in suite.runs}
    measured = set(energy.filter(pl.col("energy_j").is_not_null())["run_id"])
    states: dict[tuple[int, str, str], Cause | None] = {}
    for run in suite.plan.runs:
        key = run.block, run.workload, run.configuration
        cause: Cause | None = None if run.run_id in measured else "no-figure"
        cause = cause if run.run_id in finished else "void"
        states[key] = states.get(key) or cause
    return states


def _contrast(
    suite: Suite,
    pair: tuple[str, str],
    states: _States,
    joules: Mapping[tuple[str, str], BlockValues],
    blocks: int,
) -> RunningContrast | Cause:
    """Compute the ratio over the complete blocks, or return why there is none."""
    if suite.reference_meter(SYSTEM) is None:
        return "no-meter"
    skipped = {run.workload for run in suite.skipped if run.configuration in pair}
    both = (w for w in counted(suite) if all((w, c) in suite.planned for c in pair))
    workloads = [workload for workload in both if workload not in skipped]
    if not workloads:
        return "no-workload"
    needed = [[(b, w, c) for w in workloads for c in pair] for b in range(blocks)]
    if cause := next((states[key] for key in needed[-1] if states.get(key)), None):
        return cause
    complete = [
        block
        for block, keys in enumerate(needed)
        if all(key in states and states[key] is None for key in keys)
    ]
    values = [[{b: joules[w, c][b] for b in complete} for c in pair] for w in workloads]
    c = compare_in_blocks(suite, values) if complete else None
    if c is None:
        return "no-figure" if complete else "no-block"
    base, name = pair
    labels = suite.label(name), base, suite.label(base)
    return RunningContrast(name, *labels, c.n, c.ratio, c.low, c.high)
