"""Meters with clocks less exact than quartz, such as ceramic resonators: energy of phases.

Off by 600 to 5,000 ppm to either side, with records lost as ever; the phase is one of 30 s to 120 s
or of 10 to 30 samples. The truth is the load's integral in closed form.
"""

from __future__ import annotations

import numpy as np

from validation.bench import Figure, at_least, at_most
from validation.metrology.loads import INSTRUMENTS, Instrument, Trial, trial
from validation.metrology.phases import KINDS, limits_s

OFF_PPM = (600, 1_000, 2_000, 5_000)
TARGET_PERCENT, LEAST_HELD_PERCENT = 0.5, 93.0
SEED = 20_261_124


def measure(quick: bool = False) -> list[Figure]:
    """Return by meter and rate the error's 95th percentile, and how often the interval held."""
    count = 4 if quick else 1000
    figures = []
    for meter in INSTRUMENTS:
        for ppm in OFF_PPM:
            trials = run_trials(meter, ppm, count)
            where = f"{meter.name}, clock off by {ppm} ppm"
            p95 = float(np.quantile([trial.error_percent for trial in trials], 0.95))
            figures.append(at_most(f"{where}: error p95", p95, "%", TARGET_PERCENT))
            share = 100 * float(np.mean([trial.held for trial in trials]))
            figures.append(at_least(f"{where}: truth held", share, "%", LEAST_HELD_PERCENT))
    return figures


def run_trials(meter: Instrument, ppm: float, count: int) -> list[Trial]:
    """Run this many phases, with the meter's clock alternately fast and slow."""
    generator = np.random.default_rng(SEED)
    _, seconds, periods, _ = KINDS[0]
    trials = []
    for number in range(count):
        skew = (1 if number % 2 else -1) * ppm * 1e-6
        phase_s = float(generator.uniform(*limits_s(meter, seconds, periods)))
        trials.append(trial(generator, meter, phase_s, skew=skew))
    return trials
