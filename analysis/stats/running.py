"""The answer of a suite that still runs: its contrasts over the blocks that are complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl

from analysis.energy.energy import ALL, energy_table, of_references
from analysis.stats.contrasts import by_block, counted
from analysis.stats.summary import BlockValues, compare_in_blocks
from analysis.suite.records import SYSTEM, Suite, joint

# Why a configuration has no ratio: no meter before the whole machine; none of the counted workloads
# runs on both sides; a run of the last block is void, or has no joules; no block is complete.
Cause = Literal["no-meter", "no-workload", "void", "no-figure", "no-block"]


@dataclass(frozen=True)
class RunningContrast:
    """Ratio of the system's joules, `configuration` to `base`, over `blocks` complete blocks.

    `low` and `high` are the 95 % interval, None where so few blocks bound nothing.
    """

    configuration: str
    label: str
    base: str
    base_label: str
    blocks: int
    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class LeftOut:
    """A configuration without a ratio."""

    configuration: str
    label: str
    cause: Cause


@dataclass(frozen=True)
class RunningAnswer:
    """Every configuration against its baseline after `blocks` blocks; `origin` is the worst of the
    joules'."""

    blocks: int
    component: str
    origin: str
    contrasts: tuple[RunningContrast, ...]
    left_out: tuple[LeftOut, ...]


def running_answer(suite: Suite, blocks: int) -> RunningAnswer:
    """The report's contrasts over all working workloads, of the first `blocks` blocks.

    A block counts for a contrast where every run that the contrast needs is finished and has joules
    of the whole system. Where a run of the last block does not, the contrast is left out.
    """
    energy = of_references(suite, energy_table(suite)).filter(component=SYSTEM, phase=ALL)
    joules = by_block(energy, SYSTEM)
    compared: list[RunningContrast] = []
    left_out: list[LeftOut] = []
    for name in suite.configurations:
        base = suite.base_of(name)
        if base is None or base == name:
            continue
        found = _contrast(_Sides(suite, energy, base, name), joules, blocks)
        if isinstance(found, RunningContrast):
            compared.append(found)
        else:
            left_out.append(LeftOut(name, suite.label(name), found))
    origins = [*energy["origin"].unique(), str(suite.plan.get("origin", ""))]
    return RunningAnswer(blocks, SYSTEM, joint(origins), tuple(compared), tuple(left_out))


@dataclass(frozen=True)
class _Sides:
    """The two configurations of a contrast, and what is known of their runs."""

    suite: Suite
    energy: pl.DataFrame
    base: str
    name: str

    @property
    def workloads(self) -> list[str]:
        """Those that count and can run on both sides."""
        skipped = {r.workload for r in self.suite.skipped if r.configuration in self.pair}
        planned = self.suite.planned
        both = (w for w in counted(self.suite) if all((w, c) in planned for c in self.pair))
        return [workload for workload in both if workload not in skipped]

    @property
    def pair(self) -> tuple[str, str]:
        return self.base, self.name

    def states(self) -> dict[int, dict[tuple[str, str], Cause | None]]:
        """By block, of each workload on each side that is planned there: why it cannot be counted,
        None where it can."""
        finished = {run.run_id for run in self.suite.runs}
        measured = set(self.energy.filter(pl.col("energy_j").is_not_null())["run_id"])
        workloads = self.workloads
        states: dict[int, dict[tuple[str, str], Cause | None]] = {}
        for run in self.suite.entries("runs"):
            key = str(run["workload"]), str(run["configuration"])
            if key[0] not in workloads or key[1] not in self.pair:
                continue
            run_id, of_block = str(run["run_id"]), states.setdefault(int(run["block"]), {})
            cause: Cause | None = None if run_id in measured else "no-figure"
            cause = cause if run_id in finished else "void"
            of_block[key] = of_block.get(key) or cause  # one of several repeats is enough
        return states


def _contrast(
    sides: _Sides, joules: Mapping[tuple[str, str], BlockValues], blocks: int
) -> RunningContrast | Cause:
    """The ratio over the complete blocks, or why there is none."""
    suite, workloads = sides.suite, sides.workloads
    if suite.reference_meter(SYSTEM) is None:
        return "no-meter"
    if not workloads:
        return "no-workload"
    states = {block: of for block, of in sides.states().items() if block < blocks}
    lacking = [cause for cause in states.get(blocks - 1, {}).values() if cause]
    if lacking:
        return lacking[0]
    complete = {
        block
        for block, of in states.items()
        if len(of) == len(workloads) * len(sides.pair) and not any(of.values())
    }
    values = [
        [{b: joules[w, c][b] for b in complete} for c in sides.pair]  # none of them is missing
        for w in workloads
    ]
    found = compare_in_blocks(suite, values) if complete else None
    if found is None:
        return "no-figure" if complete else "no-block"
    return RunningContrast(
        configuration=sides.name,
        label=suite.label(sides.name),
        base=sides.base,
        base_label=suite.label(sides.base),
        blocks=found.comparison.n,
        ratio=found.comparison.ratio,
        low=found.comparison.low,
        high=found.comparison.high,
    )
