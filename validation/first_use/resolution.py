"""The smallest change that `fde check --noise` predicts, against that of simulated nights.

Power is a mean with scatter from reading to reading and a part that is tied over a second (AR(1)).
Each night has two minutes from which the check predicts, and blocks of two runs of one length
whose log-ratios give the change that the report calls detectable. A predicted change is that of the
scatter of power alone, as in these nights; a workload's own scatter is not in it.
"""

from __future__ import annotations

import math

import numpy as np

from analysis.stats.comparison import Comparison, LogRatio, detectable
from analysis.stats.stats import Floats
from controller.targets.fitness.noise import STRETCH_S, detectable_change, stretch
from validation.bench import Figure, at_least

NIGHTS, SEED = 20, 20_261_124
STEP_S = 0.1
LIMIT = 0.25


def measure(quick: bool = False) -> list[Figure]:
    """Count the nights whose prediction holds, and measure the mean error of predictions."""
    generator = np.random.default_rng(SEED)
    errors = [_night(generator) for _ in range(5 if quick else NIGHTS)]
    held = sum(abs(error) <= LIMIT for error in errors)
    return [
        at_least("nights within ±25 % of the change predicted", held, f"of {len(errors)}", 18),
        Figure("predicted over found, mean", 100 * float(np.mean(errors)), "%"),
        Figure("predicted over found, worst", 100 * max(errors, key=abs), "%"),
    ]


def _night(generator: np.random.Generator) -> float:
    """Simulate a night; return the predicted change over the actual one, less 1."""
    mean_w = generator.uniform(8, 60)
    white, tied = generator.uniform(0.01, 0.08, 2) * mean_w
    tau_s = generator.uniform(0.1, 0.4)
    run_s = generator.uniform(20, 120)
    blocks = int(generator.integers(40, 80))

    def power(seconds: float) -> Floats:
        return mean_w + _scatter(generator, round(seconds / STEP_S), white, tied, tau_s)

    idle_w = power(STRETCH_S)
    predicted = detectable_change(
        stretch(STEP_S * np.arange(len(idle_w), dtype=np.float64), idle_w), run_s, blocks
    )
    means = np.array([[power(run_s).mean() for _ in range(2)] for _ in range(blocks)])
    ratio = LogRatio.from_logs(np.log(means[:, 1] / means[:, 0]))
    change = detectable(Comparison(blocks, 1.0, 0.02, float(ratio.error), float(ratio.df)))
    assert predicted is not None and change is not None
    return predicted / (change - 1) - 1


def _scatter(
    generator: np.random.Generator, n: int, white: float, tied: float, tau_s: float
) -> Floats:
    from scipy.signal import lfilter

    keep = math.exp(-STEP_S / tau_s)
    pushes = generator.standard_normal(n + 100) * tied * math.sqrt(1 - keep**2)
    slow = np.asarray(lfilter([1.0], [1.0, -keep], pushes))[100:]
    return white * generator.standard_normal(n) + slow
