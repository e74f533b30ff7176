"""How often statements on several hosts are true: on these, on others, and on their difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.stats import host_effects as hosts
from analysis.stats.comparison import LogRatio
from analysis.stats.stats import LEVEL, Floats
from validation.bench import Figure, at_most, within
from validation.inference.simulated import (
    FEW,
    SEED,
    SUITES,
    Scene,
    covered,
    log_ratios,
    no_more_by_chance,
    share,
    simulate,
)

MARGIN = 0.02
BETWEEN_SD = 0.01  # of the log-ratio from host to host, where they are a sample
COUNTS = (2, 3, 5)
BLOCKS = (5, 10, 20)
# Welch's one-way test is an approximation, the worse the more groups there are and the fewer values
# in each: no target with fewer blocks than these, and no exact 5 % with more.
ENOUGH, DIFFER_LIMIT = 10, 6.0


@dataclass(frozen=True)
class Lot:
    """`count` hosts with suites of `blocks`; `uneven`: the last scatters five times as much."""

    count: int
    blocks: int
    uneven: bool

    @property
    def scatter(self) -> list[float]:
        """By how much each host's runs scatter beside a usual one's."""
        return [0.6, *[1.0] * (self.count - 2), 3.0] if self.uneven else [1.0] * self.count

    @property
    def name(self) -> str:
        even = "one host scatters 5 times as much" if self.uneven else "hosts scatter alike"
        return f"{self.count} hosts, {self.blocks} blocks, {even}"


def measure(quick: bool = False) -> list[Figure]:
    """Coverage of both means, false “differ”, false “alike”."""
    suites = FEW if quick else SUITES
    lots = [Lot(c, b, uneven) for c in COUNTS for b in BLOCKS for uneven in (False, True)]
    return [figure for lot in lots for figure in _measure_size(lot, suites)]


def _measure_size(lot: Lot, suites: int) -> list[Figure]:
    generator = np.random.default_rng(SEED + 9)
    apart = [math.log(1.05) + BETWEEN_SD * k for k in range(lot.count)]
    logs = drawn(lot, np.tile(apart, (suites, 1)), generator)
    held = covered(hosts.these_hosts(logs).interval(), float(np.mean(apart)))
    same = drawn(lot, np.zeros((suites, lot.count)), generator)
    differ = share(hosts.p_differ(same) < LEVEL)
    edge = np.zeros((suites, lot.count))
    edge[:, -1] = math.log1p(MARGIN)
    alike = share(hosts.p_alike(drawn(lot, edge, generator), MARGIN) < LEVEL)
    title = f"equal hosts called different, {lot.name}"
    figures = [
        within(f"mean of these hosts within its 95 % interval, {lot.name}", held, "%", 94, 96),
        at_most(title, differ, "%", DIFFER_LIMIT)
        if lot.blocks >= ENOUGH
        else Figure(title, differ, "%"),
        no_more_by_chance(f"hosts apart by the margin called alike, {lot.name}", alike, suites, 5),
    ]
    if lot.count >= hosts.LEAST_HOSTS:
        title = f"mean of hosts in general within its 95 % interval, {lot.name}"
        figures.append(within(title, general(lot, suites, generator), "%", 94, 96))
    return figures


def general(lot: Lot, suites: int, generator: np.random.Generator) -> float:
    """Share in % of lots drawn at random whose interval holds the mean of all hosts there are."""
    truths = generator.normal(math.log(1.05), BETWEEN_SD, (suites, lot.count))
    means = np.stack([np.mean(log, axis=-1) for log in drawn(lot, truths, generator)], axis=-1)
    return covered(LogRatio.of(means).interval(), math.log(1.05))


def drawn(lot: Lot, truths: Floats, generator: np.random.Generator) -> Sequence[Floats]:
    """Log-ratios by host: suites × blocks, each from a simulated suite with its own faults."""
    logs = []
    for host, scatter in enumerate(lot.scatter):
        scene = Scene(blocks=lot.blocks, entry_sd=0.001 * scatter, run_sd=0.003 * scatter)
        suites = simulate(scene, len(truths), generator)
        logs.append(log_ratios(suites.logs) + truths[:, host, None])
    return logs
