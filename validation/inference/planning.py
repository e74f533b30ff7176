"""How often suites find the change that is called detectable."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from analysis.stats.comparison import Comparison, LogRatio, detectable
from validation.bench import Figure, within
from validation.inference.simulated import FEW, SEED, SUITES, Scene, log_ratios, share, simulate

RATIO = 1.05
STILL = Scene(drift_per_h=0.0, swing=0.0, place=0.0)


def measure(quick: bool = False) -> list[Figure]:
    """Measure the power at the detectable ratio."""
    suites = FEW if quick else SUITES
    return [_power(n, suites) for n in (3, 10, 20)]


def _power(blocks: int, suites: int) -> Figure:
    """Measure the share of suites found to differ if the true ratio is the detectable one."""
    scene = replace(STILL, blocks=blocks)
    error = scene.differences_sd / math.sqrt(blocks)
    ratio = detectable(Comparison(blocks, 1.0, 0.02, error, blocks - 1.0))
    if ratio is None:
        raise ValueError("nothing is detectable with so few blocks")
    simulated = simulate(replace(scene, ratio=ratio), suites, np.random.default_rng(SEED + 7))
    power = share(LogRatio.from_logs(log_ratios(simulated.logs)).interval()[0] > 0)
    return within(f"suites that find the detectable ratio, {blocks} blocks", power, "%", 78, 82)
