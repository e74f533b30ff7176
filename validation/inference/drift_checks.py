"""How often the drift check moves, with and without a change."""

from __future__ import annotations

import numpy as np
from scipy import special

from analysis.stats.drift_check import line_change
from analysis.stats.stats import LEVEL, Floats
from validation.bench import Figure
from validation.inference.simulated import (
    FEW,
    SEED,
    SUITES,
    autoregressive,
    no_more_by_chance,
    share,
)

LIMIT = 0.01  # as the plan has it
READINGS = 6  # phases × components, each with a scatter of its own
CHECKS = (5, 11, 21)
SCATTERS = (0.001, 0.005, 0.02)
CORRELATION = 0.5  # of a machine that wanders, between neighbours


def measure(quick: bool = False) -> list[Figure]:
    """Measure false and true moves by number of checks and scatter."""
    suites = FEW if quick else SUITES
    return [f for checks in CHECKS for sd in SCATTERS for f in _moves(checks, sd, suites)]


def _moves(checks: int, sd: float, suites: int) -> list[Figure]:
    generator = np.random.default_rng(SEED + 50)
    still = generator.normal(0, sd, (suites, READINGS, checks))
    drift = np.linspace(0, 6 * sd, checks)
    name = f"{checks} checks, scatter {sd:.1%}"
    ends = np.any(np.abs(np.expm1(still[..., -1] - still[..., 0])) > LIMIT, axis=-1)
    wandering = sd * autoregressive(generator, still.shape, CORRELATION)
    figures = [
        no_more_by_chance(f"false “moved”, {name}", share(_moved(still)), suites, 5),
        Figure(f"the same by the first and the last check alone, {name}", share(ends), "%"),
        Figure(
            f"“moved”, {name}, neighbours' correlation {CORRELATION:g}",
            share(_moved(wandering)),
            "%",
        ),
    ]
    if 6 * sd > 2 * LIMIT:
        moved = share(_moved(still + drift))
        figures.append(Figure(f"drift of six times the scatter found, {name}", moved, "%"))
    return figures


def _moved(logs: Floats) -> Floats:
    """Return whether each suite moved, as `analysis.stats.drift_check` decides.

    `logs` has the readings along its last axis but one.
    """
    checks = logs.shape[-1]
    change, error = line_change(logs, np.arange(float(checks)))
    p_value = 2 * special.stdtr(checks - 2, -np.abs(change) / error)
    moved = (p_value * READINGS < LEVEL) & (np.abs(np.expm1(change)) > LIMIT)
    return np.asarray(np.any(moved, axis=-1), dtype=float)
