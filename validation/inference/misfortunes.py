"""Suites that lack runs."""

from __future__ import annotations

import numpy as np

from analysis.stats.summary import compare_in_blocks
from validation.bench import Figure, within
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
    return figures


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
