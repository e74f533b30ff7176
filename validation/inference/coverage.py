"""How often the 95 % interval of a ratio over blocks holds the true ratio."""

from __future__ import annotations

import math

import numpy as np

from analysis.stats.comparison import LogRatio
from validation.bench import Figure, within
from validation.inference.simulated import FEW, SEED, SUITES, Scene, covered, log_ratios, simulate

BLOCKS = (3, 10, 20)
RATIO = 1.05


def measure(quick: bool = False) -> list[Figure]:
    """Measure few and many blocks, one and five workloads, mild and strong drift, heavy tails."""
    suites = FEW if quick else SUITES
    scenes = [
        (f"{n} blocks, {title}", Scene(blocks=n, ratio=RATIO, **changes))
        for n in BLOCKS
        for title, changes in (
            ("one workload", {}),
            ("five workloads", {"workloads": 5}),
            ("one workload, drift four times", {"drift_per_h": 0.008, "swing": 0.008}),
        )
    ]
    figures = [
        within(f"true ratio within the 95 % interval, {name}", _covered(scene, suites), "%", 94, 96)
        for name, scene in scenes
    ]
    for n in BLOCKS:
        scene = Scene(blocks=n, ratio=RATIO, tails=4)
        name = f"true ratio within the 95 % interval, {n} blocks, heavy tails (t, 4)"
        figures.append(Figure(name, _covered(scene, suites), "%"))
    return figures


def _covered(scene: Scene, suites: int) -> float:
    simulated = simulate(scene, suites, np.random.default_rng(SEED))
    return covered(LogRatio.from_logs(log_ratios(simulated.logs)).interval(), math.log(RATIO))
