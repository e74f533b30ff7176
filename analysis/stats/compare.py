"""Compare suites: the differences between their machines and plans, and the ratios of joules.

Suites share no blocks, so values cannot be paired across them. Two-sided 95 % intervals of the
logarithms of block values follow from their scatter (Welch, Biometrika 34, 1947) and from how much
nights differ although nothing was changed. The cost of encryption is compared as the log-ratio to
the baseline in the same block of each suite, in which most of the night's effect cancels; its
interval allows for as much all the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy import special, stats

from analysis.energy.energy import reference_rows
from analysis.stats.contrasts import by_block, counted
from analysis.stats.results import energy_of
from analysis.stats.same_work import for_same_work, unequal_work
from analysis.stats.stats import LEVEL, exp, holm
from analysis.stats.summary import first_component
from analysis.suite.records import SYSTEM, Suite, SuiteError, worst_origin
from analysis.suite.suite_folder import read
from contract.command_results import Difference, Ratio

COMPONENTS = (SYSTEM, "package", "package-0")  # the first in both suites is compared
PLAN = ("host", "suite", "scale", "origin", "blocks", "settle_s", "tail_s", "rapl_hz", "pad_s")
MACHINE = (
    "os_release",
    "uname",
    "kernel",
    "kernel_command_line",
    "cpu",
    "memory_bytes",
    "versions",
    "packages",
    "disks",
)
NIGHT_SD = 0.01  # least deviation of the logarithm of joules from night to night of one machine
LEAST_NIGHTS = 5  # nights from which on their deviation is estimated
PASSING = re.compile(r"cpu\.(mhz|vulnerabilities|flags)|disks\.[^.]+\.by_id")


@dataclass(frozen=True)
class Compared:
    """Two suites, their differences, and B / A of joules and of encryption's cost."""

    a: Suite
    b: Suite
    component: str
    origin: str
    differences: tuple[Difference, ...]
    joules: tuple[Ratio, ...]
    costs: tuple[Ratio, ...]
    overall: tuple[Ratio, ...] = ()
    """Geometric mean of each configuration over the workloads that both suites count."""

    @property
    def increases(self) -> list[Ratio]:
        """Significant increases of joules, the largest first (Holm over all pairs of suites)."""
        rose = [r for r in self.tested if r.ratio > 1 and (r.p_adjusted or 0.0) < LEVEL]
        return sorted(rose, key=lambda ratio: -ratio.ratio)

    @property
    def tested(self) -> list[Ratio]:
        """The ratios of joules for the same work with a test, i.e. two blocks on each side."""
        return [
            r for r in self.joules if r.p_value is not None and r.workload not in self.other_work
        ]

    @property
    def other_work(self) -> list[str]:
        """Workloads with different parameters in the two suites."""
        names = dict.fromkeys(ratio.workload for ratio in self.joules)
        return [name for name in names if self.a.entries.get(name) != self.b.entries.get(name)]


Read = tuple[Suite, pl.DataFrame]
Blocks = Mapping[tuple[str, str], Mapping[int, float]]


def compare_all(folders: Sequence[Path]) -> list[Compared]:
    """Compare each other suite with the first, in the order of the plans' times.

    Raises SuiteError if one has nothing in common with the first, or is named twice.
    """
    if len(folders) < 2:
        raise SuiteError("one-suite-only")
    return compare_read([(read(folder), energy_of(folder)) for folder in folders])


def compare_read(suites: Sequence[Read]) -> list[Compared]:
    """Compare suites that are already read, each with its energy table."""
    first, *others = suites
    ids = [suite.suite_id for suite, _ in (first, *others)]
    twice = [suite_id for i, suite_id in enumerate(ids) if suite_id in ids[:i]]
    if twice:
        raise SuiteError("suite-twice", suite=twice[0])
    others.sort(key=lambda other: other[0].plan.created_wall)
    first, *others = _for_same_work([first, *others])
    nights = [
        by_block(energy, first_component(COMPONENTS, set(energy["component"])))
        for _, energy in (first, *others)
    ]
    night_sds = _night_sds(nights)
    pairs = [_compare_pair(first, other, night_sds) for other in others]
    tested = [id(ratio) for pair in pairs for ratio in pair.tested]
    p_values = [ratio.p_value or 0.0 for pair in pairs for ratio in pair.tested]
    adjusted = dict(zip(tested, holm(p_values), strict=True))
    return [
        replace(pair, joules=tuple(replace(r, p_adjusted=adjusted.get(id(r))) for r in pair.joules))
        for pair in pairs
    ]


def _night_sds(nights: Sequence[Blocks]) -> dict[tuple[str, str], float]:
    """Estimate the deviation between nights of each workload and configuration.

    It is the root mean square of successive differences, which a lasting change affects only once.
    """
    means: dict[tuple[str, str], list[float]] = {}
    for blocks in nights:
        for key, values in blocks.items():
            if values and min(values.values()) > 0:
                means.setdefault(key, []).append(float(np.mean(np.log(list(values.values())))))
    return {
        key: math.sqrt(float(np.mean(np.diff(logs) ** 2)) / 2)
        for key, logs in means.items()
        if len(logs) >= LEAST_NIGHTS
    }


def _for_same_work(suites: Sequence[Read]) -> list[Read]:
    """Return the suites with the rows of reference meters that have joules.

    Workloads with the first suite's parameters are scaled to the same work in all suites.
    """
    first = suites[0][0]
    read_suites = [suite for suite, _ in suites]
    measured = [reference_rows(*read_suite) for read_suite in suites]
    same = [
        [w for w in suite.workloads if suite.entries.get(w) == first.entries.get(w)]
        for suite in read_suites
    ]
    pairs = zip(measured, same, strict=True)
    shared = [energy.filter(pl.col("workload").is_in(names)) for energy, names in pairs]
    joint = unequal_work(read_suites, shared)
    scaled = []
    for suite, energy, names in zip(read_suites, measured, same, strict=True):
        cells = unequal_work([suite], [energy])
        cells |= {cell: work for cell, work in joint.items() if cell[0] in names}
        rows = for_same_work(energy, cells).filter(pl.col("energy_j").is_not_null())
        scaled.append((suite, rows))
    return scaled


def _compare_pair(
    first: Read, second: Read, night_sds: Mapping[tuple[str, str], float]
) -> Compared:
    (a, *_), (b, *_) = first, second
    energies = first[1], second[1]
    component = first_component(COMPONENTS, *(set(energy["component"]) for energy in energies))
    blocks_a, blocks_b = (by_block(energy, component) for energy in energies)
    shared = [
        key
        for key in ((w, c) for w in a.workloads for c in a.configurations)
        if key in blocks_a and key in blocks_b
    ]
    if not shared:
        raise SuiteError("nothing-shared", suites=_nothing_shared(a, b))
    joules = [
        _ratio_of(key, [*blocks_a[key].values()], [*blocks_b[key].values()], night_sds.get(key, 0))
        for key in shared
    ]
    origins = [name for energy in energies for name in energy["origin"].unique()]
    pair = Compared(
        a,
        b,
        component,
        worst_origin([*origins, a.plan.origin, b.plan.origin]),
        tuple(differences(a, b)),
        tuple(ratio for ratio in joules if ratio is not None),
        tuple(_costs(a, b, blocks_a, blocks_b, shared)),
    )
    same = {w for w in counted(a) if w in counted(b) and w not in pair.other_work}
    keys = [key for key in shared if key[0] in same]
    return replace(pair, overall=tuple(_overall(blocks_a, blocks_b, keys)))


def _overall(
    blocks_a: Blocks, blocks_b: Blocks, keys: Sequence[tuple[str, str]]
) -> Iterator[Ratio]:
    """Yield each configuration's ratio of the geometric means over workloads in complete blocks."""
    for name in dict.fromkeys(configuration for _, configuration in keys):
        sides = []
        for blocks in (blocks_a, blocks_b):
            workloads = [blocks[key] for key in keys if key[1] == name]
            complete = sorted(set.intersection(*map(set, workloads)))
            sides.append([stats.gmean([joules[n] for joules in workloads]) for n in complete])
        if all(sides) and (ratio := _ratio_of(("all", name), sides[0], sides[1], 0.0)):
            yield ratio


def between_nights(
    a: Sequence[float], b: Sequence[float], night_sd: float = NIGHT_SD
) -> tuple[float, float] | None:
    """Return the half width of the 95 % interval of mean b − mean a, and the p-value of 0.

    Each night has a separate effect with the deviation `night_sd`, at least `NIGHT_SD`, in addition
    to the scatter of its blocks; degrees of freedom by Welch and Satterthwaite. None if one side
    has fewer than two values.
    """
    if len(a) < 2 or len(b) < 2:
        return None
    blocks = [float(np.var(side, ddof=1)) / len(side) for side in (a, b)]
    variance = sum(blocks) + 2 * max(night_sd, NIGHT_SD) ** 2
    weights = sum(v**2 / (len(side) - 1) for v, side in zip(blocks, (a, b), strict=True))
    df = min(variance**2 / weights if weights else math.inf, 1e9)
    error = math.sqrt(variance)
    t = float(np.mean(b) - np.mean(a)) / error
    return float(special.stdtrit(df, 0.975)) * error, 2 * float(special.stdtr(df, -abs(t)))


def differences(a: Suite, b: Suite) -> Iterator[Difference]:
    """Yield the differences between plans, machines, meters, configurations and workloads."""
    for key in PLAN:
        yield from _unlike(key, getattr(a.plan, key), getattr(b.plan, key))
    for key in MACHINE:
        yield from _unlike(key, a.before.get(key), b.before.get(key))
    meters = [
        {m.name: f"{m.kind}, {', '.join(m.channels)}" for m in suite.meters} for suite in (a, b)
    ]
    for name in dict.fromkeys([*meters[0], *meters[1]]):
        yield from _unlike(f"meter {name}", *(parts.get(name) for parts in meters))
    for kind, key in (("configuration", "stacks"), ("workload", "entries")):
        # The settings that a kind declares are shown next to the entry's other keys.
        of_a, of_b = (
            {
                name: {**entry.pop("settings", {}), **entry}
                for name, entry in ((n, asdict(e)) for n, e in getattr(suite, key).items())
            }
            for suite in (a, b)
        )
        for name in dict.fromkeys([*of_a, *of_b]):
            yield from _unlike(f"{kind} {name}", of_a.get(name), of_b.get(name))


def _unlike(path: str, a: Any, b: Any) -> Iterator[Difference]:
    """Yield the leaves in which two values differ."""
    if a == b or PASSING.fullmatch(path) or (_text(a) is None and _text(b) is None):
        return
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in dict.fromkeys([*a, *b]):
            subpath = f"{path}.{key}".replace(".parameters.", ": ")
            yield from _unlike(subpath, a.get(key), b.get(key))
        return
    yield Difference(path, _text(a), _text(b))


def _text(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, Mapping):
        return "there"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _ratio_of(
    key: tuple[str, str], a: Sequence[float], b: Sequence[float], night_sd: float
) -> Ratio | None:
    if min(*a, *b) <= 0:
        return None
    logs_a, logs_b = np.log(a), np.log(b)
    mean = float(np.mean(logs_b) - np.mean(logs_a))
    between = between_nights(logs_a.tolist(), logs_b.tolist(), night_sd)
    if between is None:
        return Ratio(*key, len(a), len(b), exp(mean), None, None)
    half, p_value = between
    low, high = exp(mean - half), exp(mean + half)
    return Ratio(*key, len(a), len(b), exp(mean), low, high, p_value=p_value)


def _costs(
    a: Suite, b: Suite, blocks_a: Blocks, blocks_b: Blocks, shared: Sequence[tuple[str, str]]
) -> Iterator[Ratio]:
    """Yield the ratio of each configuration's cost, relative to the baseline, in both suites."""
    for workload, name in shared:
        costs = []
        for suite, blocks in ((a, blocks_a), (b, blocks_b)):
            base, joules = blocks.get((workload, suite.baseline or ""), {}), blocks[workload, name]
            complete = sorted(base.keys() & joules.keys())
            sound = all(base[n] > 0 and joules[n] > 0 for n in complete)
            costs.append([joules[n] / base[n] for n in complete] if sound else [])
        if name in (a.baseline, b.baseline) or not all(costs):
            continue
        if (ratio := _ratio_of((workload, name), costs[0], costs[1], 0.0)) is not None:
            cost_a, cost_b = (math.exp(float(np.mean(np.log(cost)))) for cost in costs)
            yield replace(ratio, p_value=None, cost_a=cost_a, cost_b=cost_b)


def _nothing_shared(a: Suite, b: Suite) -> str:
    descriptions = []
    for name, suite in (("A", a), ("B", b)):
        cells = {(run.workload, run.configuration) for run in suite.compared_runs}
        workloads = [w for w in suite.workloads if any(w == work for work, _ in cells)]
        stacks = [c for c in suite.configurations if any(c == stack for _, stack in cells)]
        content = f"{', '.join(workloads)} on {', '.join(stacks)}" if cells else "no finished run"
        descriptions.append(f"{name} has {content}")
    return "; ".join(descriptions)
