"""Seconds, joules and processor use of our runs for the work that a counterpart states."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, geometric_mean

import polars as pl

from analysis.energy.energy import WORK
from analysis.published.counterparts import Combine, Counterpart, Part, matching
from analysis.stats.summary import BlockValues
from analysis.suite.records import SYSTEM

Row = Mapping[str, float | None]
COLUMNS = ("duration_s", "energy_j", "power_w", "cpu_percent")
CPU_PERCENT = 100 * pl.col("cpu_busy_s") / (pl.col("duration_s") * pl.col("cpus"))


@dataclass(frozen=True)
class OurRun:
    """One run's rows of the energy table by phase."""

    block: int
    phases: Mapping[str, Row]


@dataclass(frozen=True)
class OurRuns:
    """All runs of a suite; the system's rows, or those of any component where no meter saw it.

    A duration is the same for every component, so that any of them will do; joules of another
    component are not shown as the system's.
    """

    energy: pl.DataFrame

    @cached_property
    def system(self) -> bool:
        """Whether a meter saw the whole machine."""
        return SYSTEM in set(self.energy["component"])

    @cached_property
    def by(self) -> Mapping[tuple[str, str], Sequence[OurRun]]:
        """By entry of the plan and configuration."""
        components = self.energy["component"].unique().sort().to_list()
        if not components:
            return {}
        component = SYSTEM if self.system else components[0]
        figures = (*COLUMNS, *WORK)
        rows = self.energy.filter(component=component).with_columns(cpu_percent=CPU_PERCENT)
        rows = rows.select("workload", "configuration", "run_id", "block", "phase", *figures)
        runs: dict[tuple[str, str, str, int], dict[str, Row]] = {}
        for workload, configuration, run_id, block, phase, *values in rows.iter_rows():
            key = workload, configuration, run_id, block
            runs.setdefault(key, {})[phase] = dict(zip(figures, values, strict=True))
        by_entry: dict[tuple[str, str], list[OurRun]] = {}
        for (workload, configuration, _, block), phases in runs.items():
            by_entry.setdefault((workload, configuration), []).append(OurRun(block, phases))
        return by_entry

    def values(
        self, entry: str, configuration: str, counterpart: Counterpart, column: str
    ) -> BlockValues:
        """By block the sum over the parts of a quantity for the amount of work that is wanted.

        A run without one of the parts has no value; runs of a block are averaged.
        """
        blocks: dict[int, list[float]] = {}
        for run in self.by.get((entry, configuration), ()):
            parts = [_value_of(run, part, column) for part in counterpart.parts]
            if all(value is not None for value in parts):
                blocks.setdefault(run.block, []).append(math.fsum(v for v in parts if v))
        return {block: fmean(values) for block, values in sorted(blocks.items())}

    def distance(self, entry: str, configuration: str, counterpart: Counterpart) -> float:
        """How far the sizes of the entry's phases are from those wanted, as a logarithm."""
        used = self._used(entry, configuration, counterpart)
        return max((abs(math.log(number / size)) for size, number in used if number), default=0.0)

    def stands_in(
        self, entry: str, configuration: str, counterpart: Counterpart
    ) -> tuple[int, ...]:
        """Return the numbers of phases that stand in for others that are not there."""
        used = self._used(entry, configuration, counterpart)
        others = (number for size, number in used if number is not None and number != size)
        return tuple(dict.fromkeys(others))

    def _used(
        self, entry: str, configuration: str, counterpart: Counterpart
    ) -> list[tuple[int, int | None]]:
        """Return the wanted sizes, each with the number of the first run's phase for it."""
        return [
            (part.size, _chosen(run.phases, part)[1])
            for run in self.by.get((entry, configuration), ())[:1]
            for part in counterpart.parts
            if part.size
        ]


def in_paper_unit(counterpart: Counterpart, seconds: BlockValues) -> BlockValues:
    """Return the figure in the paper's unit from the seconds (or joules) of the parts."""
    if counterpart.numerator is None:
        return {block: value * counterpart.factor for block, value in seconds.items()}
    return {block: counterpart.numerator / value for block, value in seconds.items() if value > 0}


def for_joules(counterpart: Counterpart) -> tuple[Counterpart, str]:
    """Return the same work as a question for joules, and what they are of."""
    units = {part.unit for part in counterpart.parts}
    if units == {"bytes"}:
        mb = sum(part.amount for part in counterpart.parts) / 2**20
        scaled = tuple(replace(part, amount=part.amount / mb) for part in counterpart.parts)
        return replace(counterpart, parts=scaled), "MB"
    singular = {"operations": "operation", "derivations": "derivation", "files": "file"}
    return counterpart, singular.get("".join(units), "")


def _value_of(run: OurRun, part: Part, column: str) -> float | None:
    """Return the quantity for the part's amount of work, the mean of the phases that it means."""
    if part.size is not None:
        name, _ = _chosen(run.phases, part)
        names = [name] if name else []
    else:
        names = [name for name, _ in matching(part.phase, tuple(run.phases))]
    values = [_in_phase(run.phases[name], part, name, column) for name in names]
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _in_phase(row: Row, part: Part, name: str, column: str) -> float | None:
    value = row[column]
    if value is None or not part.unit or column in ("power_w", "cpu_percent"):
        return None if value is None else float(value)
    done = row.get(part.unit)
    if not done:
        return None
    amount = part.amount
    if part.scaled and part.size:
        amount *= part.size / matching(part.phase, (name,))[0][1]
    return float(value) * amount / float(done)


def _chosen(phases: Mapping[str, Row], part: Part) -> tuple[str | None, int | None]:
    """Return the phase of the part's size, else the one of the nearest by its logarithm."""
    sizes = {number: name for name, number in matching(part.phase, tuple(phases))}
    if not sizes or part.size is None:
        return None, None
    wanted = part.size
    nearest = min(sizes, key=lambda size: (abs(math.log(size / wanted)), size))
    return sizes[nearest], nearest


OF_SEVERAL: Mapping[Combine, Callable[[Sequence[float]], float]] = {
    "rank": lambda values: 1.0 + sum(value > values[0] for value in values[1:]),
    "geometric": lambda values: geometric_mean(values) if min(values) > 0 else 0.0,
    "mean": fmean,
    "min": min,
    "max": max,
}


def combined(how: Combine, several: Sequence[BlockValues]) -> BlockValues:
    """One value a block of those that all have; of ranks that of the first, 1 for the largest."""
    blocks = set.intersection(*(set(values) for values in several))
    combine = OF_SEVERAL[how]
    return {block: combine([values[block] for values in several]) for block in sorted(blocks)}
