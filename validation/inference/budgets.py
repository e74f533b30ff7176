"""How often the 95 % intervals of uncertainty budgets hold the truth, over imperfect meters.

Each suite has another meter, drawn within the limits that its budget has: a gain that all
readings share, and for each configuration a deviation from the straight line, a share of the range
and an influence of the power factor. The scatter between blocks is that of the other benchmarks
without drift, which intervals of joules would count as scatter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from analysis.money.budgets import ratio_budget
from analysis.stats.budget import Mean, Reading, instrument_error, instrument_rows, joules_budget
from analysis.stats.comparison import compare
from analysis.stats.stats import Floats
from contract.estimates import Estimate
from instrumentation.accuracy import ErrorTerm
from validation.bench import Figure, within
from validation.inference.money import TIME_OF_ENERGY, paid_back
from validation.inference.simulated import FEW, SEED, SUITES, Scene, holds, share, simulate

BLOCKS = 10
RATIO = 0.9
RUN_J, RUN_S = 10_000.0, 100.0
SCENE = Scene(blocks=BLOCKS, ratio=RATIO, drift_per_h=0.0, swing=0.0, place=0.0)
# Limits by term: shares of the reading, and W of a range.
METERS: Mapping[str, Mapping[str, float]] = {
    "0.1 % + 0.05 % of 150 W, power factor": {"gain": 0.001, "range": 0.075, "power_factor": 3e-4},
    "gain 3 %": {"gain": 0.03},
    "gain 0.5 %, linearity 0.2 %": {"gain": 0.005, "linearity": 0.002},
    "range 0.3 W, power factor 0.1 %": {"range": 0.3, "power_factor": 0.001},
}
FIGURES = ("joules", "ratio", "saving")


def measure(quick: bool = False) -> list[Figure]:
    """Measure four meters, with errors smaller than the scatter, as large, and larger."""
    suites = FEW if quick else SUITES
    return [
        within(f"true {figure} within the budget's interval, {name}", share(held), "%", 94, 97)
        for number, (name, limits) in enumerate(METERS.items())
        for figure, held in zip(FIGURES, _held(limits, suites, SEED + 20 + number).T, strict=True)
    ]


def _held(limits: Mapping[str, float], suites: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    logs = simulate(SCENE, suites, generator).logs[:, 0, :, :2]
    terms = [ErrorTerm(name, limit, "drawn") for name, limit in limits.items()]
    true_j = RUN_J * math.exp((SCENE.block_sd**2 + SCENE.entry_sd**2 + SCENE.run_sd**2) / 2)
    truth = true_j, RATIO, true_j * (1 - RATIO)
    return np.array(
        [list(map(holds, _intervals(suite, terms, generator), truth)) for suite in logs]
    )


def _intervals(
    logs: Floats, terms: Sequence[ErrorTerm], generator: np.random.Generator
) -> list[Estimate]:
    """Return the intervals of one suite (blocks × configurations), software first, by one meter."""
    true_j, seconds = RUN_J * np.exp(logs), RUN_S * np.exp(TIME_OF_ENERGY * logs)
    read_j = _read(true_j, seconds, terms, generator)
    means: list[Mean] = list(zip(read_j.mean(axis=0), seconds.mean(axis=0), strict=True))
    base_j, sed_j = read_j.T.tolist()
    ratio = compare(base_j, sed_j, 0.02)
    assert ratio is not None
    sides = (means[0], means[1])
    ratio = replace(ratio, systematic=instrument_error(terms, [sides]))  # as of a page's family
    readings = [Reading(*mean, slope) for mean, slope in zip(means, (1.0, -1.0), strict=True)]
    meter = instrument_rows(terms, readings)
    saving = paid_back(base_j, sed_j, meter=meter)
    intervals = (
        joules_budget(terms, means[0], float(stats.sem(base_j)), BLOCKS - 1),
        ratio_budget(terms, ratio, [sides]),
        saving.budget,
    )
    return [budget.interval for budget in intervals]


def _read(
    true_j: Floats, seconds: Floats, terms: Sequence[ErrorTerm], generator: np.random.Generator
) -> Floats:
    """Return the joules as the meter reads them; its errors are the same in all blocks."""
    read_j = true_j.copy()
    for term in terms:
        assert term.limit is not None
        each = generator.uniform(-term.limit, term.limit, 1 if term.shared else true_j.shape[1])
        read_j += each * (true_j if term.unit == "1" else seconds)
    return read_j
