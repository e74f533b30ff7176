"""Our own few lines held against statsmodels, which the analysis itself does not need."""

from __future__ import annotations

import math

import numpy as np
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

from analysis.stats.comparison import Comparison, detectable
from analysis.stats.stats import holm
from validation.bench import Figure, at_most
from validation.inference.simulated import SEED


def measure(quick: bool = False) -> list[Figure]:
    """Return the largest difference over many random cases."""
    cases = 20 if quick else 300
    generator = np.random.default_rng(SEED + 5)
    return [
        at_most("Holm: largest difference to statsmodels", _holm(generator, cases), "", 1e-9),
        at_most("detectable ratio: largest difference to statsmodels", _power(generator), "", 1e-6),
    ]


def _holm(generator: np.random.Generator, cases: int) -> float:
    """Families of one to forty, with ties and with p-values of 0 and 1 among them."""
    apart = 0.0
    for _ in range(cases):
        p = generator.uniform(0, 1, generator.integers(1, 41)) ** 4
        p = np.round(p, int(generator.integers(1, 9)))
        theirs = multipletests(p, method="holm")[1]
        apart = max(apart, float(np.max(np.abs(np.array(holm(p.tolist())) - theirs))))
    return apart


def _power(generator: np.random.Generator) -> float:
    apart = 0.0
    for n in (3, 4, 6, 10, 20, 40):
        sd_log = float(generator.uniform(0.001, 0.02))
        ours = detectable(Comparison(n, 1.0, 0.02, sd_log / math.sqrt(n), n - 1.0))
        theirs = TTestPower().solve_power(None, nobs=n, alpha=0.05, power=0.8)
        apart = max(apart, abs((ours or math.inf) - math.exp(float(theirs) * sd_log)))
    return apart
