"""Joules, interval, ratio and verdict by workload × configuration, and per unit of work."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import polars as pl

from analysis.energy.energy import ALL, BETWEEN, COUNTERS
from analysis.stats.comparison import Comparison, compare_logs
from analysis.stats.stats import estimate
from analysis.suite import records
from analysis.suite.records import DRIFT_CHECK, SYSTEM, TAIL, Suite
from contract.estimates import Estimate

BlockValues = Mapping[int, float]
Key = tuple[str, str, str, str]
KEYS = ("workload", "configuration", "source", "component")
# The first of these that the suite has is judged.
COMPONENTS = (SYSTEM, "drive", "package", "package-0", "dram")


@dataclass(frozen=True)
class SummaryRow:
    """A row of summary.parquet: joules, ratio to the baseline and verdict (data/README.md)."""

    suite_id: str
    host: str
    workload: str
    configuration: str
    source: str
    component: str
    n: int
    mean_j: float
    ci_low_j: float | None
    ci_high_j: float | None
    mean_s: float
    mean_w: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    level: float | None
    verdict: str
    doubts: str
    origin: str

    @property
    def joules(self) -> Estimate:
        return Estimate(self.mean_j, self.ci_low_j, self.ci_high_j, self.n)

    @property
    def equivalent_but_changed(self) -> bool:
        """Whether it is equivalent and nevertheless not 1."""
        ratio = Estimate(self.ratio or 1.0, self.ratio_low, self.ratio_high)
        return self.verdict == "equivalent" and not ratio.contains(1.0)


RATIO_COLUMNS = ("ratio", "ratio_low", "ratio_high", "level")
_KINDS = {"str": pl.String(), "int": pl.Int64()}
SUMMARY_SCHEMA: Mapping[str, pl.DataType] = {
    field.name: _KINDS.get(str(field.type), pl.Float64()) for field in fields(SummaryRow)
}


def block_values(
    energy: pl.DataFrame,
    workload: str,
    configuration: str,
    component: str,
    *,
    phase: str = "all",
    column: str = "energy_j",
) -> BlockValues:
    """Return the mean of `column` by block; a block without a figure is left out."""
    rows = energy.filter(
        workload=workload, configuration=configuration, component=component, phase=phase
    )
    return block_means(rows, pl.col(column))


def block_means(rows: pl.DataFrame, value: pl.Expr) -> BlockValues:
    """Return the mean of a quantity by block; a block without a figure is left out."""
    return cell_means(rows, (), value=value).get((), {}).get("value", {})


Cells = Mapping[tuple[str, ...], Mapping[str, BlockValues]]


def cell_means(rows: pl.DataFrame, keys: Sequence[str], **values: pl.Expr) -> Cells:
    """Return the mean of each value by `keys`, name and block.

    A block without a finite value is left out.
    """
    finite = (pl.col(name).filter(pl.col(name).is_finite()).mean() for name in values)
    selected = rows.select(*keys, "block", **values)
    means = selected.group_by(*keys, "block", maintain_order=True).agg(*finite)
    cells: dict[tuple[str, ...], dict[str, dict[int, float]]] = {}
    for row in means.sort("block", maintain_order=True).iter_rows():
        cell = cells.setdefault(row[: len(keys)], {name: {} for name in values})
        for name, mean in zip(values, row[len(keys) + 1 :], strict=True):
            if mean is not None:
                cell[name][int(row[len(keys)])] = mean
    return cells


def estimate_of(values: BlockValues) -> Estimate | None:
    """Return the mean and its interval over blocks; None without blocks."""
    return estimate(list(values.values())) if values else None


def compare_pairs(suite: Suite, base: BlockValues, other: BlockValues) -> Comparison | None:
    """Compare the blocks that both sides have."""
    return compare_in_blocks(suite, [(base, other)])


def compare_in_blocks(
    suite: Suite, workloads: Sequence[tuple[BlockValues, BlockValues]]
) -> Comparison | None:
    """Compare the second side with the first: the geometric mean over workloads.

    Blocks that lack a side of any workload are left out. None if no block remains, or a value is
    not above 0.
    """
    sides = [set(side) for pair in workloads for side in pair]
    blocks = sorted(set.intersection(*sides)) if sides else []
    values = np.array([[[side[b] for b in blocks] for side in pair] for pair in workloads])
    if not blocks or not np.all(np.isfinite(values) & (values > 0)):
        return None
    logs = np.log(values)
    c = compare_logs(np.mean(logs[:, 1] - logs[:, 0], axis=0), suite.margin)
    return replace(c, complete=not suite.unfinished)


def other_channels(table: pl.DataFrame) -> list[str]:
    """Return a meter's channels in the energy table or the summary that `COMPONENTS` lacks."""
    metered = table.filter(~pl.col("source").is_in(COUNTERS))
    return sorted(set(metered["component"]) - set(COMPONENTS))


def first_component(order: Sequence[str], *sets: Collection[str]) -> str:
    """Return the first component that is in all sets, else the system."""
    return next((name for name in order if all(name in names for names in sets)), SYSTEM)


def compared_component(suite: Suite, components: Iterable[str]) -> str:
    """Return which of the components decides between configurations.

    A self-encrypting drive needs the whole system's: other components lack what the drive takes.
    """
    return SYSTEM if suite.sed else first_component(COMPONENTS, set(components))


def joint_origin(energy: pl.DataFrame) -> str:
    """Return the worst origin of these rows."""
    return records.worst_origin(energy["origin"].unique())


@dataclass(frozen=True)
class Group:
    """Block values of whole runs that share `KEYS`, and the origins of their joules."""

    energy_j: BlockValues
    seconds: BlockValues
    power_w: BlockValues
    origins: frozenset[str]

    @property
    def mean(self) -> tuple[float, float] | None:
        """Mean joules and seconds; None if no block has joules."""
        joules, seconds = _mean(self.energy_j), _mean(self.seconds)
        return None if joules is None else (joules, seconds or 0.0)

    @property
    def error_j(self) -> tuple[float | None, float]:
        """Standard error of the mean joules and its degrees of freedom."""
        n = len(self.energy_j)
        if n < 2:
            return None, 0.0
        return float(np.std(list(self.energy_j.values()), ddof=1)) / math.sqrt(n), n - 1.0

    @property
    def mean_w(self) -> float | None:
        return _mean(self.power_w)


def groups_of(suite: Suite, energy: pl.DataFrame) -> dict[Key, Group]:
    """Group whole runs by `KEYS`, in the plan's order; others come last."""
    rows = energy.filter(pl.col("workload") != DRIFT_CHECK, phase=ALL)
    origins = rows.group_by(*KEYS).agg(pl.col("origin").unique())
    named = {tuple(key): frozenset(names) for *key, names in origins.iter_rows()}
    columns = {name: pl.col(name) for name in ("energy_j", "duration_s", "power_w")}
    workload = {name: i for i, name in enumerate(suite.workloads)}
    configuration = {name: i for i, name in enumerate(suite.configurations)}

    def place(key: tuple[str, ...]) -> tuple[int, int, tuple[str, ...]]:
        last = len(workload) + len(configuration)
        return workload.get(key[0], last), configuration.get(key[1], last), key

    cells = cell_means(rows, KEYS, **columns)
    groups = {}
    for key in sorted(cells, key=place):
        joules, seconds, power_w = cells[key].values()
        groups[key[0], key[1], key[2], key[3]] = Group(joules, seconds, power_w, named[key])
    return groups


def base_of(key: Key, suite: Suite) -> Key:
    """Return the key of the group's base; for the baseline its own."""
    return key[0], suite.base_of(key[1]) or "", key[2], key[3]


def _mean(values: BlockValues) -> float | None:
    return sum(values.values()) / len(values) if values else None


MB = 2**20  # as the papers count


@dataclass(frozen=True)
class Unit:
    """A unit of work for display, equal to `size` of the run's units."""

    work: str
    size: float
    singular: str
    rate: str


UNITS = {
    unit.work: unit
    for unit in (
        Unit("bytes", MB, "MB", "MB/s"),
        Unit("operations", 1, "operation", "operations/s"),
        Unit("derivations", 1, "derivation", "derivations/s"),
        Unit("queries", 1, "query", "queries/s"),
        Unit("rows", 1, "row", "rows/s"),
        Unit("transactions", 1, "transaction", "transactions/s"),
        Unit("keys", 1, "key", "keys/s"),
        Unit("files", 1, "file", "files/s"),
        Unit("video_s", 1, "s of video", "s of video/s"),
        Unit("idle_s", 1, "s at rest", "s/s"),
    )
}


@dataclass(frozen=True)
class PerUnit:
    """Whole runs of a workload on a configuration, per unit of their work.

    `energy_j` is per `unit`, `rate` in units a second. `cpu_share` is the busy share of all CPUs, 0
    to 1; `disk_reads` and `disk_writes` are the disk's bytes per byte of work.
    """

    configuration: str
    unit: Unit
    energy_j: Estimate | None
    rate: Estimate | None
    cpu_share: Estimate | None
    disk_reads: Estimate | None = None
    disk_writes: Estimate | None = None


def per_unit(suite: Suite, energy: pl.DataFrame, workload: str, component: str) -> list[PerUnit]:
    """Return a workload's figures per unit of the first work that every phase counts.

    The joules of a phase that does not count it would count without work.
    """
    energy = energy.filter(workload=workload)
    parts = energy.filter(~pl.col("phase").is_in([ALL, TAIL, BETWEEN]))
    shared = (u for u in UNITS.values() if len(parts) and (parts[u.work].fill_null(0.0) > 0).all())
    if (unit := next(shared, None)) is None:
        return []
    amount = pl.col(unit.work) / unit.size
    quotients = {
        "energy_j": pl.col("energy_j") / amount,
        "rate": amount / pl.col("duration_s"),
        "cpu_share": pl.col("cpu_busy_s") / (pl.col("duration_s") * pl.col("cpus")),
    }
    if unit.work == "bytes":
        quotients["disk_reads"] = pl.col("disk_read_bytes") / pl.col(unit.work)
        quotients["disk_writes"] = pl.col("disk_written_bytes") / pl.col(unit.work)
    rows = energy.filter(pl.col(unit.work) > 0, component=component, phase=ALL)
    cells = cell_means(rows, ("configuration",), **quotients)
    return [
        PerUnit(name, unit, **{key: estimate_of(values) for key, values in cells[name,].items()})
        for name in suite.configurations
        if (name,) in cells
    ]
