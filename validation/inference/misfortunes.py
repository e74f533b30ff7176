"""Suites that lack runs, and suites in which one configuration makes its own tries void."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.stats.comparison import compare_logs
from analysis.stats.summary import compare_in_blocks
from validation.bench import Figure, at_least, within
from validation.inference.simulated import FEW, SEED, SUITES, Scene, chance, share, simulate
from validation.synthetic.tables import suite_of

RATIO = 1.05
VOID = 0.08


def measure(quick: bool = False) -> list[Figure]:
    """Return the coverage with missing runs."""
    suites = FEW if quick else SUITES
    figures = []
    for blocks, changes in (
        *((n, {"workloads": 5}) for n in (3, 5, 10, 20)),
        (10, {}),
        (10, {"workloads": 5, "configurations": 2}),
    ):
        scene = Scene(blocks=blocks, ratio=RATIO, **changes)
        figures += _voids(scene, suites // 5)
    return figures + [
        _first_tries(mean, shape, blocks, max(suites // 10, 40))
        for mean, shape in ((0.05, 1.0), (0.06, 4.0), (0.05, 0.3))
        for blocks in (4, 6, 10, 20)
    ]


STOLEN, LIMIT, TRIES, WORKLOADS = 0.02, 0.1, 3, 5


def _first_tries(mean: float, shape: float, blocks: int, suites: int) -> Figure:
    """Return how often the interval of accepted and first tries has the true ratio.

    A try is void if the host takes more than `LIMIT` of it, and joules rise with the share taken.
    It is a gamma variable, with `mean` on the one configuration and `STOLEN` on the other.
    """
    generator = np.random.default_rng(SEED + 50)
    held = []
    for _ in range(suites):
        scale = np.array([STOLEN, mean])[:, None, None] / shape
        size = TRIES, 2, WORKLOADS, blocks
        taken = generator.gamma(shape, np.broadcast_to(scale, size))
        logs = taken + generator.normal(0, 0.004, size) + generator.normal(0, 0.01, blocks)
        accepted = np.argmax(taken <= LIMIT, axis=0)  # the first try, if all are void
        accepted_logs = np.take_along_axis(logs, accepted[None], axis=0)[0]
        first, ratio = (
            compare_logs(np.mean(each[1] - each[0], axis=0), 0.02)
            for each in (logs[0], accepted_logs)
        )
        interval = replace(ratio, first_tries=first).interval(0.01)
        held.append(interval.contains(float(np.exp(mean - STOLEN))))
    title = f"true ratio within, own tries void: {100 * mean:g} % taken, gamma {shape:g}"
    return at_least(f"{title}, {blocks} blocks", share(np.array(held)), "%", 90)


def _voids(scene: Scene, suites: int) -> list[Figure]:
    """Measure how often the interval over complete blocks has the true ratio if runs are void."""
    generator = np.random.default_rng(SEED + 40)
    logs = simulate(scene, suites, generator).logs
    logs[generator.uniform(size=logs.shape) < VOID] = np.nan
    plan = suite_of({"plain": "plain", "opal": "opal"}, ["w"])
    held = []
    for suite in np.exp(logs[..., :2]):
        base, other = (
            [{b: v for b, v in enumerate(side) if np.isfinite(v)} for side in suite[..., place]]
            for place in (0, 1)
        )
        ratio = compare_in_blocks(plan, list(zip(base, other, strict=True)))
        if ratio is not None and ratio.low is not None:
            held.append(ratio.estimate.contains(RATIO))
    name = f"{scene.blocks} blocks, {scene.workloads} workloads, {scene.configurations} "
    name += f"configurations, {VOID:.0%} of runs void"
    least = round(94 - chance(len(held), 94), 1)
    title = f"true ratio within the 95 % interval, {name}"
    return [
        within(title, share(np.array(held)), "%", least, 97),
        Figure(f"suites without an interval, {name}", 100 * (1 - len(held) / suites), "%"),
    ]
