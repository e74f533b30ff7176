"""Several hosts' suites as one: the effect of each configuration with the host as a factor.

Every host is compared within itself first, by the log-ratio within its blocks; what all of a host
has in common (its power supply, its meter's gain) cancels there. Only those ratios are laid side by
side: see analysis.stats.host_effects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from analysis.stats import host_effects as factor
from analysis.stats.comparison import (
    Comparison,
    LogRatio,
    compare,
    holm_of_known,
    judged,
    of_mean,
)
from analysis.stats.contrasts import by_block, counted, pairs
from analysis.stats.results import Results, energy_of
from analysis.stats.stats import Floats, exp
from analysis.stats.summary import first_component
from analysis.suite.clocks import TargetClock
from analysis.suite.group import Shared, shared
from analysis.suite.records import SYSTEM, Suite, SuiteError, joint
from analysis.suite.suite_folder import read

ALL = "all"
# The first that every host has is compared.
COMPONENTS = (SYSTEM, "package", "package-0", "drive", "dram")

Joules = Mapping[tuple[str, str], Mapping[int, float]]


@dataclass(frozen=True)
class Host:
    """One host's suite and its joules by (workload, configuration) and block."""

    results: Results
    joules: Joules

    @property
    def name(self) -> str:
        return self.results.suite.host

    @property
    def suite(self) -> Suite:
        return self.results.suite


@dataclass(frozen=True)
class Effect:
    """What `other` costs beside `base`, on each host and on all; `workload` is `all` for all.

    `these` is the mean over these hosts, each weighing the same; `general` that over hosts in
    general (three hosts or more). Both are None where a host has no figure, which `lacking` names.
    `workloads` are those that it rests on: every host has them on both sides.
    """

    workload: str
    base: str
    other: str
    by_host: Mapping[str, Comparison]
    lacking: tuple[str, ...]
    workloads: tuple[str, ...]
    these: Comparison | None
    general: Comparison | None
    p_differ: float | None = None
    p_alike: float | None = None
    p_differ_holm: float | None = None
    p_alike_holm: float | None = None

    @property
    def hosts(self) -> factor.Alike:
        """Whether the hosts differ, are alike within the margin, or neither is settled."""
        return factor.alike(self.p_differ_holm, self.p_alike_holm)


@dataclass(frozen=True)
class Hosts:
    """The hosts, what they share, and the effects: over all workloads, then one by one."""

    hosts: tuple[Host, ...]
    shared: Shared
    component: str
    overall: tuple[Effect, ...]
    single: tuple[Effect, ...]

    @property
    def names(self) -> list[str]:
        return [host.name for host in self.hosts]

    @property
    def first(self) -> Suite:
        """A suite for names and labels, which are the same in all."""
        return self.hosts[0].suite

    @cached_property
    def origin(self) -> str:
        """The worst of all hosts'."""
        return joint(host.results.origin for host in self.hosts)

    @property
    def margin(self) -> float:
        return self.first.margin

    def against_baseline(self, other: str) -> Effect | None:
        """Over all workloads, the effect of a configuration beside the baseline."""
        wanted = self.first.baseline, other
        return next((e for e in self.overall if (e.base, e.other) == wanted), None)


def hosts(folders: Sequence[Path]) -> Hosts:
    """Read the suites and compare the hosts. Raises SuiteError where that means nothing."""
    suites = [read(folder) for folder in folders]
    in_common = shared(suites)
    energies = [energy_of(folder) for folder in folders]
    derived = [
        Results(suite, TargetClock.fit(suite.clock), energy, ())
        for suite, energy in zip(suites, energies, strict=True)
    ]
    component = first_component(
        COMPONENTS, *(set(member.summary["component"]) for member in derived)
    )
    each = tuple(Host(member, by_block(member.energy, component)) for member in derived)
    both = list(_overall(each, in_common)), list(_single(each, in_common))
    if not any(effect.by_host for effect in (*both[0], *both[1])):
        raise SuiteError("nothing-compares")
    effects = _families([*both[0], *both[1]])  # of one page
    overall, single = effects[: len(both[0])], effects[len(both[0]) :]
    return Hosts(each, in_common, component, tuple(overall), tuple(single))


def _overall(each: Sequence[Host], common: Shared) -> Iterator[Effect]:
    """Each pair of configurations over all working workloads that every host has."""
    suite = each[0].suite
    for base, other, _ in pairs(suite):
        if base in common.configurations and other in common.configurations:
            used = [
                name
                for name in counted(suite)
                if name in common.workloads
                and all((name, side) in h.joules for h in each for side in (base, other))
            ]
            if used:
                yield _effect(each, (ALL, base, other), used)


def _single(each: Sequence[Host], common: Shared) -> Iterator[Effect]:
    """Every workload × configuration beside the baseline."""
    base = each[0].suite.baseline
    for workload in common.workloads:
        for other in common.configurations:
            if base is not None and other != base:
                yield _effect(each, (workload, base, other), [workload])


def _effect(each: Sequence[Host], key: tuple[str, str, str], used: Sequence[str]) -> Effect:
    """Of one pair of configurations; the families' p-values come later."""
    _, base, other = key
    margin = each[0].suite.margin
    sides = {host.name: _sides(host.joules, used, base, other) for host in each}
    by_host = {
        name: comparison
        for name, (a, b) in sides.items()
        if (comparison := compare(np.exp(a).tolist(), np.exp(b).tolist(), margin)) is not None
    }
    lacking = tuple(name for name in sides if name not in by_host)
    if lacking:
        return Effect(*key, by_host, lacking, tuple(used), None, None)
    logs = [b - a for a, b in sides.values()]
    means = np.array([float(np.mean(log)) for log in logs])
    blocks = min(map(len, logs))
    general = None
    if len(logs) >= factor.LEAST_HOSTS:
        # Of other hosts, as far as these were chosen at random from those that are meant.
        general = of_mean(LogRatio.of(means), len(logs), margin)
    if blocks < factor.LEAST_BLOCKS:
        these = Comparison(blocks, exp(float(np.mean(means))), margin)
        return Effect(*key, by_host, (), tuple(used), these, general)
    these = of_mean(factor.these_hosts(logs), blocks, margin)
    differ = float(factor.p_differ(logs))
    alike = float(factor.p_alike(logs, margin))
    known = None if np.isnan(differ) else differ
    return Effect(*key, by_host, (), tuple(used), these, general, known, alike)


def _sides(joules: Joules, used: Sequence[str], base: str, other: str) -> tuple[Floats, Floats]:
    """Mean logarithms by block of both configurations; only blocks with all of the workloads.

    Empty where a value is not positive: then there is no ratio.
    """
    by_side = [[joules.get((name, side), {}) for name in used] for side in (base, other)]
    blocks = sorted(set.intersection(*(set(values) for side in by_side for values in side)))
    values = np.array([[[v[b] for v in side] for b in blocks] for side in by_side], dtype=float)
    if not blocks or np.any(values <= 0):
        return np.empty(0), np.empty(0)
    means = np.mean(np.log(values), axis=-1)
    return means[0], means[1]


def _families(effects: Sequence[Effect]) -> list[Effect]:
    """All p-values by Holm over the effects: of each host, of the means, and of the two tests."""
    judged_effects = list(effects)
    for name in dict.fromkeys(name for effect in judged_effects for name in effect.by_host):
        mine = judged([e.by_host.get(name) for e in judged_effects])
        judged_effects = [
            e if c is None else replace(e, by_host={**e.by_host, name: c})
            for e, c in zip(judged_effects, mine, strict=True)
        ]
    families = (
        judged([e.these for e in judged_effects]),
        judged([e.general for e in judged_effects]),
        holm_of_known([e.p_differ for e in judged_effects]),
        holm_of_known([e.p_alike for e in judged_effects]),
    )
    return [
        replace(e, these=these, general=general, p_differ_holm=differ, p_alike_holm=alike)
        for e, these, general, differ, alike in zip(judged_effects, *families, strict=True)
    ]
