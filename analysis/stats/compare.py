"""Suites beside each other: what differs between them, and what that did to the joules.

The suites share no blocks, so nothing can be paired across them: two-sided 95 % intervals of the
logarithms of block values, by their scatter (Welch, Biometrika 34, 1947) and by how much one
night differs from another although nothing was changed. What is compared of encryption is its cost
within each suite, the log-ratio to the baseline in the same block; what all of a night has in
common cancels there.
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

from analysis.energy.energy import of_references
from analysis.stats.comparison import holm
from analysis.stats.contrasts import by_block, counted
from analysis.stats.results import energy_of
from analysis.stats.same_work import for_same_work, unequal_work
from analysis.stats.stats import LEVEL, exp
from analysis.stats.summary import first_component
from analysis.suite.records import SYSTEM, Suite, SuiteError, worst_origin
from analysis.suite.suite_folder import read
from contract.command_results import Difference, Ratio

COMPONENTS = (SYSTEM, "package", "package-0")  # the first that both suites have is compared
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
NIGHT_SD = 0.01  # of the logarithm of joules, from night to night of one machine, at least
LEAST_NIGHTS = 5  # whose own differences say more
PASSING = re.compile(r"cpu\.(mhz|vulnerabilities|flags)|disks\.[^.]+\.by_id")


@dataclass(frozen=True)
class Compared:
    """Two suites, what differs between them, and B / A of joules and of encryption's cost."""

    a: Suite
    b: Suite
    component: str
    origin: str
    differences: tuple[Difference, ...]
    joules: tuple[Ratio, ...]
    costs: tuple[Ratio, ...]
    overall: tuple[Ratio, ...] = ()
    """By configuration, the geometric mean over the workloads that both suites count."""

    @property
    def increases(self) -> list[Ratio]:
        """Joules that rose significantly, the largest first; Holm over all pairs' ratios."""
        rose = [r for r in self.tested if r.ratio > 1 and (r.p_adjusted or 0.0) < LEVEL]
        return sorted(rose, key=lambda ratio: -ratio.ratio)

    @property
    def tested(self) -> list[Ratio]:
        """The ratios of joules that have a test: of the same work, from two blocks on each side."""
        return [
            r for r in self.joules if r.p_value is not None and r.workload not in self.other_work
        ]

    @property
    def other_work(self) -> list[str]:
        """Workloads that were not given the same parameters, so that they did other work."""
        names = dict.fromkeys(ratio.workload for ratio in self.joules)
        return [name for name in names if self.a.entries.get(name) != self.b.entries.get(name)]


Read = tuple[Suite, pl.DataFrame]
Blocks = Mapping[tuple[str, str], Mapping[int, float]]


def compare(folder_a: Path, folder_b: Path) -> Compared:
    """Read both suites and compare them. Raises SuiteError where they have nothing in common."""
    return compare_all([folder_a, folder_b])[0]


def compare_all(folders: Sequence[Path]) -> list[Compared]:
    """Each suite but the first against the first, in the order of the plans' times.

    Raises SuiteError where one has nothing in common with the first, or is named twice.
    """
    if len(folders) < 2:
        raise SuiteError("one-suite-only")
    return compare_read([(read(folder), energy_of(folder)) for folder in folders])


def compare_read(suites: Sequence[Read]) -> list[Compared]:
    """Return the same of suites and energy tables that are read already."""
    first, *others = suites
    ids = [suite.suite_id for suite, _ in (first, *others)]
    twice = [suite_id for i, suite_id in enumerate(ids) if suite_id in ids[:i]]
    if twice:
        raise SuiteError("suite-twice", suite=twice[0])
    others.sort(key=lambda other: other[0].plan.created_wall)
    first, *others = _for_same_work([first, *others])
    nights = []
    for _, known in (first, *others):
        nights.append(by_block(known, first_component(COMPONENTS, set(known["component"]))))
    night_sds = _night_sds(nights)
    return _adjusted([_compared(first, other, night_sds) for other in others])


def _adjusted(pairs: Sequence[Compared]) -> list[Compared]:
    """With Holm's p-values over the tested ratios of all pairs."""
    tested = [(id(pair), r) for pair in pairs for r in pair.tested]
    p_values = holm(np.array([r.p_value for _, r in tested])).tolist()
    adjusted = {(i, id(r)): p for (i, r), p in zip(tested, p_values, strict=True)}
    return [
        replace(
            pair,
            joules=tuple(
                replace(r, p_adjusted=adjusted.get((id(pair), id(r)))) for r in pair.joules
            ),
        )
        for pair in pairs
    ]


def _night_sds(nights: Sequence[Blocks]) -> dict[tuple[str, str], float]:
    """Return by workload and configuration how much nights in the order of time differ.

    The root mean square of successive differences, which a lasting change moves only once.
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
    """Return the rows with joules, of each channel by its reference meter alone.

    Workloads with the first suite's parameters are for the same work in all suites.
    """
    first = suites[0][0]
    read_suites = [suite for suite, _ in suites]
    measured = [of_references(*read_suite) for read_suite in suites]
    same = [
        [w for w in suite.workloads if suite.entries.get(w) == first.entries.get(w)]
        for suite in read_suites
    ]
    pairs = zip(measured, same, strict=True)
    shared = [energy.filter(pl.col("workload").is_in(names)) for energy, names in pairs]
    joint = unequal_work(read_suites, shared)
    brought = []
    for suite, energy, names in zip(read_suites, measured, same, strict=True):
        cells = unequal_work([suite], [energy])
        cells |= {cell: work for cell, work in joint.items() if cell[0] in names}
        known = for_same_work(energy, cells).filter(pl.col("energy_j").is_not_null())
        brought.append((suite, known))
    return brought


def _compared(first: Read, second: Read, night_sds: Mapping[tuple[str, str], float]) -> Compared:
    """Compare one suite with another."""
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
    """By configuration, of the means of logarithms over its workloads in each whole block."""
    for name in dict.fromkeys(configuration for _, configuration in keys):
        sides = []
        for blocks in (blocks_a, blocks_b):
            joules = [blocks[key] for key in keys if key[1] == name]
            complete = sorted(set.intersection(*(set(each) for each in joules)))
            sides.append([stats.gmean([each[n] for each in joules]) for n in complete])
        if all(sides) and (ratio := _ratio_of(("all", name), sides[0], sides[1], 0.0)):
            yield ratio


def between_nights(
    a: Sequence[float], b: Sequence[float], night_sd: float = NIGHT_SD
) -> tuple[float, float] | None:
    """Half width of the 95 % interval of mean b − mean a, and the p-value of no difference.

    None where one side has no known scatter, for want of a second value.

    Each night has a separate effect with this deviation, `NIGHT_SD` at least, beside the scatter
    of its blocks; degrees of freedom by Welch and Satterthwaite.
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
    """Between the plans, the machines, the meters, and what each configuration and workload is."""
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
        # Entries of a plan with what their kinds declare beside the other keys.
        of_a, of_b = (
            {
                name: {**entry.pop("settings", {}), **entry}
                for name, entry in ((n, asdict(e)) for n, e in getattr(suite, key).items())
            }
            for suite in (a, b)
        )
        for name in dict.fromkeys([*of_a, *of_b]):
            yield from _unlike(f"{kind} {name}", of_a.get(name), of_b.get(name))


def _unlike(what: str, a: Any, b: Any) -> Iterator[Difference]:
    """Yield the leaves in which two values differ."""
    if a == b or PASSING.fullmatch(what) or (_text(a) is None and _text(b) is None):
        return
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in dict.fromkeys([*a, *b]):
            yield from _unlike(
                f"{what}.{key}".replace(".parameters.", ": "), a.get(key), b.get(key)
            )
        return
    yield Difference(what, _text(a), _text(b))


def _text(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, Mapping):
        return "there"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _ratio_of(
    key: tuple[str, str], a: Sequence[float], b: Sequence[float], night_sd: float
) -> Ratio | None:
    if min(*a, *b) <= 0:  # no logarithm: then there is no ratio
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
    """How the cost of each configuration beside the baseline differs."""
    for workload, name in shared:
        costs = []
        for suite, blocks in ((a, blocks_a), (b, blocks_b)):
            base, joules = blocks.get((workload, suite.baseline or ""), {}), blocks[workload, name]
            both = sorted(base.keys() & joules.keys())
            sound = all(base[n] > 0 and joules[n] > 0 for n in both)
            costs.append([joules[n] / base[n] for n in both] if sound else [])
        if name in (a.baseline, b.baseline) or not all(costs):
            continue
        if (ratio := _ratio_of((workload, name), costs[0], costs[1], 0.0)) is not None:
            cost_a, cost_b = (math.exp(float(np.mean(np.log(cost)))) for cost in costs)
            yield replace(ratio, p_value=None, cost_a=cost_a, cost_b=cost_b)


def _nothing_shared(a: Suite, b: Suite) -> str:
    descriptions = []
    for name, suite in (("A", a), ("B", b)):
        done = {(run.workload, run.configuration) for run in suite.compared_runs}
        workloads = [w for w in suite.workloads if any(w == work for work, _ in done)]
        stacks = [c for c in suite.configurations if any(c == stack for _, stack in done)]
        has = f"{', '.join(workloads)} on {', '.join(stacks)}" if done else "no finished run"
        descriptions.append(f"{name} has {has}")
    return "; ".join(descriptions)
