"""Where a published figure has its like in our suites: workload, phases, configuration, amount."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from statistics import fmean, geometric_mean
from typing import Any, Literal

import polars as pl

from analysis.energy.energy import WORK
from analysis.published.reference import Published
from analysis.stats.summary import BlockValues
from analysis.suite.records import SYSTEM

Row = Mapping[str, Any]
COLUMNS = ("duration_s", "energy_j", "power_w", "cpu_percent")
CPU_PERCENT = 100 * pl.col("cpu_busy_s") / (pl.col("duration_s") * pl.col("cpus"))


@dataclass(frozen=True)
class RunHere:
    """One run's rows of the energy table by phase."""

    block: int
    phases: Mapping[str, Row]


@dataclass(frozen=True)
class RunsHere:
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
    def by(self) -> Mapping[tuple[str, str], Sequence[RunHere]]:
        """By entry of the plan and configuration."""
        components = self.energy["component"].unique().sort().to_list()
        if not components:
            return {}
        component = SYSTEM if self.system else components[0]
        names = ["workload", "configuration", "run_id", "block", "phase", *COLUMNS, *WORK]
        rows = self.energy.filter(component=component)
        rows = rows.with_columns(cpu_percent=CPU_PERCENT).select(names)
        runs: dict[tuple[str, str, str], dict[str, Row]] = {}
        for row in rows.iter_rows(named=True):
            key = row["workload"], row["configuration"], row["run_id"]
            runs.setdefault(key, {})[row["phase"]] = row
        by_entry: dict[tuple[str, str], list[RunHere]] = {}
        for (workload, configuration, _), phases in runs.items():
            block = int(next(iter(phases.values()))["block"])
            by_entry.setdefault((workload, configuration), []).append(RunHere(block, phases))
        return by_entry

    def values(self, entry: str, configuration: str, here: Here, column: str) -> BlockValues:
        """By block the sum over the parts of a quantity for the amount of work that is wanted.

        A run without one of the parts has no value; runs of a block are averaged.
        """
        blocks: dict[int, list[float]] = {}
        for run in self.by.get((entry, configuration), ()):
            parts = [_of(run, part, column) for part in here.parts]
            if all(value is not None for value in parts):
                blocks.setdefault(run.block, []).append(math.fsum(v for v in parts if v))
        return {block: fmean(values) for block, values in sorted(blocks.items())}

    def distance(self, entry: str, configuration: str, here: Here) -> float:
        """How far the sizes of the entry's phases are from those wanted, as a logarithm."""
        used = self._used(entry, configuration, here)
        return max((abs(math.log(number / size)) for size, number in used if number), default=0.0)

    def stands_in(self, entry: str, configuration: str, here: Here) -> tuple[int, ...]:
        """Return the numbers of phases that stand in for others that are not there."""
        used = self._used(entry, configuration, here)
        others = (number for size, number in used if number is not None and number != size)
        return tuple(dict.fromkeys(others))

    def _used(self, entry: str, configuration: str, here: Here) -> list[tuple[int, int | None]]:
        """The sizes that are wanted, each with the number of the first run's phase for it."""
        return [
            (part.size, _chosen(run.phases, part)[1])
            for run in self.by.get((entry, configuration), ())[:1]
            for part in here.parts
            if part.size
        ]


def of_seconds(here: Here, seconds: BlockValues) -> BlockValues:
    """Return the figure in the paper's unit from the seconds (or joules) of the parts."""
    if here.numerator is None:
        return {block: value * here.factor for block, value in seconds.items()}
    return {block: here.numerator / value for block, value in seconds.items() if value > 0}


def joules_of(here: Here) -> tuple[Here, str]:
    """Return the same work as a question for joules, and what they are of."""
    units = {part.unit for part in here.parts}
    if units == {"bytes"}:
        mb = sum(part.amount for part in here.parts) / 2**20
        scaled = tuple(replace(part, amount=part.amount / mb) for part in here.parts)
        return replace(here, parts=scaled), "MB"
    one = {"operations": "operation", "derivations": "derivation", "files": "file"}
    return here, one.get("".join(units), "")


def _of(run: RunHere, part: Part, column: str) -> float | None:
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


@lru_cache(maxsize=4096)
def matching(pattern: str, names: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Return the phases that a pattern holds, with the number in its first group, 0 without one."""
    matches = ((name, re.fullmatch(pattern, name)) for name in names)
    return tuple((name, int(m[1]) if m.lastindex else 0) for name, m in matches if m)


MB, KB = 2**20, 2**10
SECONDS = {"s": 1.0, "ms": 1e-3, "min": 60.0}
# Mb/s stands for MB/s in the one paper that has it (data/reference/README.md).
BYTES_A_SECOND = {
    **{"B/s": 1.0, "KB/s": KB, "MB/s": MB, "Mb/s": MB, "GB/s": KB * MB, "KB/ms": 1000 * KB},
}
A_SECOND = {"IO/s": 1.0, "kIO/s": 1000.0}
DIRECT = {"energy": "energy_j", "power": "power_w", "time": "duration_s"}


@dataclass(frozen=True)
class Part:
    """`amount` of the work `unit` in a phase; of the whole phase where `unit` is empty.

    `phase` is a pattern of `re` that holds the whole name. Where `size` is given, its first group
    is a number, and the phase with the nearest number stands in for one that is not there; the
    amount then follows from what that phase did (`scaled`: in proportion to the number).
    """

    phase: str
    unit: str = ""
    amount: float = 1.0
    size: int | None = None
    scaled: bool = False


Combine = Literal["mean", "geometric", "min", "max", "rank"]


@dataclass(frozen=True)
class Here:
    """Our like of a published figure.

    `column` is what is added up over the parts, joules or seconds. Of a rate the figure is
    `numerator` (in the paper's unit, times seconds) over these seconds; else it is the sum, times
    `factor`. `configuration` is one of the reference tables, empty where any will do. `member` is
    what is compared with the others of its group, `note` what differs from the paper's. `medium`:
    the name of the disk, where the figure does not say.

    A figure that is no single one is put together of `several` by `combine`. With `versus` it is
    held against another of ours, and `says` how the paper puts that: a `loss` or `gain` in percent
    and a number of `times` are ratios, `apart` is a difference.
    """

    workload: str
    parts: tuple[Part, ...]
    member: str
    configuration: str = ""
    column: str = "duration_s"
    factor: float = 1.0
    numerator: float | None = None
    note: str = ""
    medium: str = ""
    several: tuple[Here, ...] = ()
    combine: Combine = "mean"
    versus: Here | None = None
    says: Literal["", "loss", "gain", "times", "apart"] = ""

    @property
    def singles(self) -> tuple[Here, ...]:
        """All that it is put together of, without what they are held against."""
        return tuple(one for each in self.several for one in each.singles) or (self,)

    def stated(self, value: float) -> float | None:
        """Return the ratio that a printed figure states, if it states one."""
        ratios = {"loss": 1 - value / 100, "gain": 1 + value / 100, "times": value}
        return ratios.get(self.says)

    def put(self, ratio: float) -> float:
        """Return a ratio of ours as the paper puts it."""
        phrased = {"loss": (1 - ratio) * 100, "gain": (ratio - 1) * 100}
        return phrased.get(self.says, ratio)


def combined(how: Combine, several: Sequence[BlockValues]) -> BlockValues:
    """One value a block of those that all have; of ranks that of the first, 1 for the largest."""
    blocks = set.intersection(*(set(values) for values in several))
    return {block: _one_of(how, [values[block] for values in several]) for block in sorted(blocks)}


def _one_of(how: Combine, values: Sequence[float]) -> float:
    if how == "rank":
        return 1.0 + sum(value > values[0] for value in values[1:])
    if how == "geometric":
        return geometric_mean(values) if min(values) > 0 else 0.0
    if how == "mean":
        return fmean(values)
    return min(values) if how == "min" else max(values)


MEDIA = ("hdd", "sshd", "ssd", "flash")


def medium_of(figure: Published) -> str:
    """The kind of disk that a figure names, which is what such a disk is called in a plan here."""
    first = figure.device.split(" ", maxsplit=1)[0].lower()
    return first if first in MEDIA else ""


def plain_unit(unit: str) -> tuple[float, str]:
    """How many seconds, bytes or operations a second a paper's unit is, and which of them.

    So that figures of one table in different units (MB/s, GB/s) can be compared.
    """
    for units, one in ((SECONDS, "s"), (BYTES_A_SECOND, "B/s"), (A_SECOND, "IO/s")):
        if unit in units:
            return units[unit], one
    return 1.0, unit
