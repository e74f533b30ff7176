"""Our counterparts of published figures, and what our runs took for that work.

They are in the column `counterparts` of data/reference (README.md there).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from statistics import fmean, geometric_mean
from typing import Literal, cast

import polars as pl

from analysis.energy.energy import WORK
from analysis.published.conditions import MEDIA
from analysis.published.reference import Published, Rule
from analysis.stats.summary import BlockValues
from analysis.suite.records import SYSTEM

MB, KB = 2**20, 2**10
SECONDS = {"s": 1.0, "ms": 1e-3, "min": 60.0}
# Mb/s stands for MB/s in the one paper that has it (data/reference/README.md).
BYTES_A_SECOND = {
    "B/s": 1.0,
    "KB/s": KB,
    "MB/s": MB,
    "Mb/s": MB,
    "GB/s": KB * MB,
    "KB/ms": 1000 * KB,
}
A_SECOND = {"IO/s": 1.0, "kIO/s": 1000.0}
RATES = BYTES_A_SECOND | A_SECOND
DIRECT = {"energy": "energy_j", "power": "power_w", "time": "duration_s"}

Combine = Literal["mean", "geometric", "min", "max", "rank"]


@dataclass(frozen=True)
class Part:
    """`amount` of the work `unit` in a phase; of the whole phase where `unit` is empty.

    `phase` is a pattern of `re` for the whole name. With a `size`, its first group is a number,
    and the phase with the nearest number replaces a missing one; the amount then follows from the
    work of that phase (`scaled`: in proportion to the number).
    """

    phase: str
    unit: str = ""
    amount: float = 1.0
    size: int | None = None
    scaled: bool = False


@dataclass(frozen=True)
class Counterpart:
    """Our counterpart of a published figure.

    `column`, of joules or seconds, is summed over the parts. A rate is `numerator` (in the paper's
    unit, times seconds) over these seconds; else the figure is the sum, times `factor`. An empty
    `configuration` of the reference tables stands for any. `member` is what is compared within its
    group, `note` the difference from the paper's. `medium` names the disk if the figure has none.

    A combined figure has `several` parts, joined by `combine`. With `versus` it is compared with
    another of ours, called `against`. The field `says` is the paper's form of that: `loss` or
    `gain` in percent and a number of `times` are ratios, `apart` is a difference.
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
    several: tuple[Counterpart, ...] = ()
    combine: Combine = "mean"
    versus: Counterpart | None = None
    against: str = ""
    says: str = ""

    @property
    def singles(self) -> tuple[Counterpart, ...]:
        """The counterparts that it combines, without those that they are compared with."""
        return self.several or (self,)

    def stated_ratio(self, value: float) -> float | None:
        """Return the ratio that a printed figure states, if it states one."""
        ratios = {"loss": 1 - value / 100, "gain": 1 + value / 100, "times": value}
        return ratios.get(self.says)

    def phrased(self, ratio: float) -> float:
        """Return a ratio of ours in the paper's form."""
        phrased = {"loss": (1 - ratio) * 100, "gain": (ratio - 1) * 100}
        return phrased.get(self.says, ratio)


def counterparts(figure: Published) -> list[Counterpart]:
    """Return the counterparts of a figure: none, one, or several (RSA is done in two ways)."""
    if not (figure.workload and figure.phase):
        return [_from_rule(figure, rule) for rule in figure.counterparts]
    if figure.quantity not in DIRECT:
        return []
    part = Part(figure.phase)
    if figure.size_bytes and figure.workload == "file_io":
        # A phase holds several files, or each file is a phase.
        part = Part(rf"{figure.phase}(?:-\d+)?", "files")
    if figure.workload == "kernel_grep":
        part = Part(r"grep-\d+")  # one search, of however many copies
    column = DIRECT[figure.quantity]
    factor = 1 / SECONDS[figure.unit] if figure.quantity == "time" else 1.0
    return [
        Counterpart(figure.workload, (part,), figure.subject, figure.configuration, column, factor)
    ]


def _from_rule(figure: Published, rule: Rule) -> Counterpart:
    """Build the counterpart of a rule; with `take` it combines one for each choice."""
    member = rule.member or ", ".join(filter(None, [figure.subject, figure.mode]))
    column = "cpu_percent" if figure.quantity.startswith("cpu_use") else "duration_s"
    shared = Counterpart(rule.workload, (), member, column=column, note=rule.note, says=rule.says)
    configurations = rule.on.split() or [""]
    parts, against = _parts(rule, rule.phases), _parts(rule, rule.against_phases)
    if rule.take in ("", "average"):
        count = len(parts) if rule.take else 1
        single = replace(shared, parts=tuple(parts), configuration=configurations[0])
        return _in_unit(figure, rule, single, against, count)
    combine = cast(Combine, rule.take)
    several = tuple(
        _in_unit(figure, rule, single, against[place : place + 1])
        for medium, name in product(rule.media.split() or [""], configurations)
        for place, part in enumerate(parts)
        for single in [replace(shared, parts=(part,), configuration=name, medium=medium)]
    )
    if rule.take == "rank":
        several = tuple(replace(single, numerator=1.0) for single in several)
    work = tuple(parts) if rule.take == "mean" and not rule.says else several[0].parts
    return replace(several[0], parts=work, several=several, combine=combine, medium="")


def _in_unit(
    figure: Published, rule: Rule, single: Counterpart, against: Sequence[Part], count: int = 1
) -> Counterpart:
    """Return a counterpart in the paper's unit: a time, over `count` files, a rate, or a ratio.

    The rule may compare it with other parts or another configuration. A loss or gain compares
    speeds, in which the amount of work cancels.
    """
    if rule.against:
        relative = replace(single, numerator=1.0 if rule.says in ("loss", "gain") else None)
        base = single.configuration if against else rule.against
        versus = replace(relative, parts=tuple(against) or single.parts, configuration=base)
        return replace(relative, versus=versus, against=rule.against)
    if figure.unit in RATES:
        amount = sum(part.amount for part in single.parts)
        return replace(single, numerator=amount / RATES[figure.unit])
    return replace(single, factor=1 / SECONDS.get(figure.unit, 1.0) / count)


def _parts(rule: Rule, phases: str) -> list[Part]:
    """Return a part for each phase and size; `{a,b}` in a phase is a choice of two."""
    unit, _, amount = rule.work.partition(" ")
    patterns = [phase for pattern in phases.split() for phase in _expanded(pattern)]
    if not rule.sizes:
        return [Part(phase, unit, float(amount or 1)) for phase in patterns]
    scaled = amount == "scaled"
    return [
        Part(phase, unit, float({"size": size, "scaled": 1}.get(amount, amount or 1)), size, scaled)
        for phase in patterns
        for size in map(int, rule.sizes.split())
    ]


def _expanded(pattern: str) -> list[str]:
    choice = re.search(r"\{([^}]*)\}", pattern)
    if choice is None:
        return [pattern]
    before, after = pattern[: choice.start()], pattern[choice.end() :]
    return [
        text
        for text_part in choice[1].split(",")
        for text in _expanded(f"{before}{text_part}{after}")
    ]


@lru_cache(maxsize=4096)
def matching(pattern: str, names: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Return the phases that match a pattern, with the number in its first group, 0 without one."""
    matches = ((name, re.fullmatch(pattern, name)) for name in names)
    return tuple((name, int(m[1]) if m.lastindex else 0) for name, m in matches if m)


def medium_of(figure: Published) -> str:
    """Return the kind of disk that a figure names, which is its name in plans; else empty."""
    first = figure.device.split(" ", maxsplit=1)[0].lower()
    return first if first in MEDIA else ""


def plain_unit(unit: str) -> tuple[float, str]:
    """Return a paper's unit in seconds, bytes or operations a second, and the name of that unit.

    Figures of one table in different units (MB/s, GB/s) can then be compared.
    """
    for units, base_unit in ((SECONDS, "s"), (BYTES_A_SECOND, "B/s"), (A_SECOND, "IO/s")):
        if unit in units:
            return units[unit], base_unit
    return 1.0, unit


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
    """All runs of a suite: the system's rows, or those of another component without a meter.

    Durations are equal for every component; joules of another are not shown as the system's.
    """

    energy: pl.DataFrame

    @cached_property
    def system(self) -> bool:
        """Whether a meter saw the whole machine."""
        return SYSTEM in set(self.energy["component"])

    @cached_property
    def by(self) -> Mapping[tuple[str, str], Sequence[OurRun]]:
        """The runs by entry of the plan and configuration."""
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
        """Return by block a quantity for the counterpart's amount of work, summed over its parts.

        A run without one of the parts has no value; runs of a block are averaged.
        """
        blocks: dict[int, list[float]] = {}
        for run in self.by.get((entry, configuration), ()):
            parts = [_value_of(run, part, column) for part in counterpart.parts]
            if all(value is not None for value in parts):
                blocks.setdefault(run.block, []).append(math.fsum(v for v in parts if v))
        return {block: fmean(values) for block, values in sorted(blocks.items())}

    def distance(self, entry: str, configuration: str, counterpart: Counterpart) -> float:
        """Return how far the entry's sizes are from the counterpart's, as a logarithm."""
        sizes = self._sizes(entry, configuration, counterpart)
        return max((abs(math.log(ours / size)) for size, ours in sizes if ours), default=0.0)

    def stands_in(
        self, entry: str, configuration: str, counterpart: Counterpart
    ) -> tuple[int, ...]:
        """Return the sizes of phases that replace missing ones."""
        sizes = self._sizes(entry, configuration, counterpart)
        return tuple(dict.fromkeys(ours for size, ours in sizes if ours not in (None, size)))

    def _sizes(
        self, entry: str, configuration: str, counterpart: Counterpart
    ) -> list[tuple[int, int | None]]:
        """Return the counterpart's sizes, each with the nearest one in the first run."""
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
    """Return the same work for a question on joules, and the unit of work."""
    units = {part.unit for part in counterpart.parts}
    if units == {"bytes"}:
        mb = sum(part.amount for part in counterpart.parts) / 2**20
        scaled = tuple(replace(part, amount=part.amount / mb) for part in counterpart.parts)
        return replace(counterpart, parts=scaled), "MB"
    singular = {"operations": "operation", "derivations": "derivation", "files": "file"}
    return counterpart, singular.get("".join(units), "")


def _value_of(run: OurRun, part: Part, column: str) -> float | None:
    """Return the quantity for the part's amount of work, averaged over the phases that match."""
    if part.size is not None:
        name, _ = _chosen(run.phases, part)
        names = [name] if name else []
    else:
        names = [name for name, _ in matching(part.phase, tuple(run.phases))]
    values = [_in_phase(run.phases[name], part, name, column) for name in names]
    if not values or None in values:
        return None
    return fmean(value for value in values if value is not None)


def _in_phase(row: Row, part: Part, name: str, column: str) -> float | None:
    value = row[column]
    if value is None or not part.unit or column in ("power_w", "cpu_percent"):
        return None if value is None else float(value)
    work = row.get(part.unit)
    if not work:
        return None
    amount = part.amount
    if part.scaled and part.size:
        amount *= part.size / matching(part.phase, (name,))[0][1]
    return float(value) * amount / float(work)


def _chosen(phases: Mapping[str, Row], part: Part) -> tuple[str | None, int | None]:
    """Return the phase of the part's size, else the one of the nearest by its logarithm."""
    sizes = {number: name for name, number in matching(part.phase, tuple(phases))}
    if not sizes or part.size is None:
        return None, None
    size = part.size
    nearest = min(sizes, key=lambda number: (abs(math.log(number / size)), number))
    return sizes[nearest], nearest


OF_SEVERAL: Mapping[Combine, Callable[[Sequence[float]], float]] = {
    "rank": lambda values: 1.0 + sum(value > values[0] for value in values[1:]),
    "geometric": lambda values: geometric_mean(values) if min(values) > 0 else 0.0,
    "mean": fmean,
    "min": min,
    "max": max,
}


def combined(how: Combine, several: Sequence[BlockValues]) -> BlockValues:
    """Combine the values of the blocks that all have; a rank is the first's, 1 for the largest."""
    blocks = set.intersection(*(set(values) for values in several))
    combine = OF_SEVERAL[how]
    return {block: combine([values[block] for values in several]) for block in sorted(blocks)}
