"""How often the stated intervals of saving and payback hold the truth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import numpy as np

from analysis.money.payback import JOULES_PER_KWH, Payback, payback
from analysis.stats.stats import Floats, estimate
from contract.assumptions import Assumptions
from contract.estimates import Estimate
from validation.bench import Figure, within
from validation.inference.simulated import (
    FEW,
    SEED,
    SUITES,
    Scene,
    holds,
    no_more_by_chance,
    share,
    simulate,
)

BLOCKS = (3, 10, 20)
RATIO = 0.9  # of the self-encrypting disk's joules to software's
RUN_J = 1_000.0
TIME_OF_ENERGY = 0.7  # a run that takes 1 % more energy takes 0.7 % more time
ASSUMPTIONS = Assumptions(
    sed_extra_price=25.0,
    currency="USD",
    electricity_price_per_kwh=0.12,
    battery_wh=50.0,
    life_years=5.0,
    runs_per_day=50.0,
)
paid_back = partial(payback, "kernel_tree", "dmcrypt", assumptions=ASSUMPTIONS, origin="synthetic")
BATTERY = "runs of a battery"
BATTERY_J = ASSUMPTIONS.battery_wh * 3600


def measure(quick: bool = False) -> list[Figure]:
    """Measure few and many blocks, with drift, order and block effects, and without a saving."""
    suites = FEW if quick else SUITES
    return [figure for blocks in BLOCKS for figure in _measure_size(blocks, suites)]


def _measure_size(blocks: int, suites: int) -> list[Figure]:
    scene = Scene(blocks=blocks, ratio=RATIO, swing=0.0)
    logs = simulate(scene, suites, np.random.default_rng(SEED + 9)).logs[:, 0]
    saving_j = RUN_J * (_mean_factor(scene, 1.0) - RATIO * _mean_factor(scene, 1.0))
    price_j = ASSUMPTIONS.sed_extra_price / ASSUMPTIONS.electricity_price_per_kwh * JOULES_PER_KWH
    truth = {
        "saving of a run": saving_j,
        "runs to repay": price_j / saving_j,
        BATTERY: BATTERY_J / (RUN_J * _mean_factor(scene, 1.0)),
    }
    held = np.array([_held(suite, truth) for suite in logs])
    shares = {name: share(column) for name, column in zip(truth, held.T, strict=True)}
    # Joules themselves, not their difference, take the drift for scatter: that interval is wide.
    wide = Figure(f"true {BATTERY} within its interval, {blocks} blocks", shares.pop(BATTERY), "%")
    figures = [
        within(f"true {name} within its interval, {blocks} blocks", value, "%", 93, 97)
        for name, value in shares.items()
    ]
    same = simulate(Scene(blocks=blocks), suites, np.random.default_rng(SEED + 10)).logs[:, 0]
    false = share(np.array([_payback(suite).saves for suite in same]))
    title = f"suites without a saving that show one, {blocks} blocks"
    return [*figures, wide, no_more_by_chance(title, false, suites, 2.5)]


def _mean_factor(scene: Scene, exponent: float) -> float:
    """Return the mean of exp(`exponent` × logarithm) over runs at all places of all blocks."""
    places = np.arange(scene.configurations)
    hours = (np.arange(scene.blocks)[:, None] * scene.configurations + places) * scene.run_h
    factors = np.exp(exponent * (scene.drift_per_h * hours + scene.place * places))
    variance = scene.block_sd**2 + scene.entry_sd**2 + scene.run_sd**2
    return float(np.mean(factors)) * math.exp(exponent**2 * variance / 2)


def _payback(logs: Floats) -> Payback:
    """Return the payback of one suite (blocks × configurations): software first, then the SED."""
    base_j, sed_j = (RUN_J * np.exp(logs[:, k]) for k in (0, 1))
    return paid_back(base_j.tolist(), sed_j.tolist())


def _held(logs: Floats, truth: Mapping[str, float]) -> list[bool]:
    """Return whether each interval holds its truth; without a demonstrated saving none does."""
    payback = _payback(logs)
    battery = estimate((RUN_J * np.exp(logs[:, 0])).tolist()).dividing(BATTERY_J)
    saving = Estimate(payback.saving_j.mean, payback.saving_j.low, payback.saving_j.high)
    stated = (saving, payback.runs, battery)
    return [holds(span, true) for span, true in zip(stated, truth.values(), strict=True)]
