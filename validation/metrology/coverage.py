"""How often the stated 95 % interval of a phase's energy holds the truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Picture

from analysis.energy.uncertainty import TypeB, half_width
from instrumentation.accuracy import read_terms
from validation.bench import Figure
from validation.metrology import loads_independent
from validation.metrology.loads import INSTRUMENTS, TRUE, Calibration, Floats, Trial, trial
from validation.metrology.phases import KINDS, errors_by_kind, limits_s

RELATIVE_LIMIT, ABSOLUTE_LIMIT_W = 0.005, 0.05
LEAST, MOST = 93.0, 97.0
SEED = 20_260_201
PLOTTED = 500


def measure(quick: bool = False) -> list[Figure]:
    """Measure all meters and lengths of phases, with and without errors of calibration.

    On the loads that the interval was made with, and on a second, harsher family.
    """
    count = 2 * _KINDS if quick else 1_000
    figures = []
    for family, one_trial in (("", trial), (", other loads", loads_independent.trial)):
        for title, limits in (
            ("truth within the 95 % interval, calibration off within its limits", _LIMITS),
            ("truth within the 95 % interval, statistical part alone", (0.0, 0.0)),
        ):
            distance = _distances(count, *limits, one_trial=one_trial)
            held = 100 * float(np.mean(distance <= 1))
            figures.append(Figure(title + family, held, "%", 95.0, LEAST <= held <= MOST))
            if family:
                of_kind = [100 * float(np.mean(distance[k::_KINDS] <= 1)) for k in range(_KINDS)]
                figures.append(Figure(f"{title}{family}, kind with the least", min(of_kind), "%"))
                figures.append(Figure(f"{title}{family}, kind with the most", max(of_kind), "%"))
    others = errors_by_kind(3 if quick else 200, loads_independent.trial, SEED, ", other loads")
    return [*figures, *others]


_LIMITS = (RELATIVE_LIMIT, ABSOLUTE_LIMIT_W)
_KINDS = len(INSTRUMENTS) * len(KINDS)


def _distances(
    count: int, relative: float, absolute_w: float, *, one_trial: Callable[..., Trial] = trial
) -> Floats:
    """Return the error of each run in units of its half width; the kinds of runs take turns.

    A run without a figure states no interval, and counts as not held.
    """
    generator = np.random.default_rng(SEED)
    kinds = [(meter, kind) for meter in INSTRUMENTS for kind in KINDS]
    terms = read_terms({"relative_limit": relative, "absolute_limit_w": absolute_w})
    distances = []
    for number in range(count):
        meter, (_, seconds, periods, _) = kinds[number % len(kinds)]
        calibration = TRUE
        if relative or absolute_w:
            gain = 1 + generator.uniform(-relative, relative)
            calibration = Calibration(gain, generator.uniform(-absolute_w, absolute_w))
        length_s = float(generator.uniform(*limits_s(meter, seconds, periods)))
        trial = one_trial(generator, meter, length_s, calibration=calibration)
        energy = trial.energy
        limits = (
            None if energy.energy_j is None else TypeB.from_terms(terms, energy.energy_j, length_s)
        )
        if limits is None or energy.energy_j is None or energy.statistical_j is None:
            distances.append(math.inf)
            continue
        limit_j, sigma_j = limits.parts_j(energy.statistical_j)
        half_j = float(half_width(np.array([limit_j]), np.array([sigma_j]))[0])
        distances.append(abs(energy.energy_j - trial.truth_j) / half_j)
    return np.array(distances)


def plot(path: Path) -> None:
    """Plot how often the truth is within multiples of the half width: stated and actual."""
    picture = Picture(figsize=(6, 4), layout="constrained")
    axis = picture.subplots()
    for label, limits in (
        ("with errors of calibration", _LIMITS),
        ("statistical part", (0.0, 0.0)),
    ):
        distance = np.sort(_distances(PLOTTED, *limits))
        axis.plot(distance, np.arange(1, len(distance) + 1) / len(distance) * 100, label=label)
    axis.axvline(1, color="#999999", lw=0.8)
    axis.axhspan(LEAST, MOST, color="#dddddd", zorder=0)
    axis.set(xlim=(0, 2), ylim=(0, 101), xlabel="Error / stated half width")
    axis.set_ylabel("Runs within (%)")
    axis.legend(loc="lower right")
    picture.savefig(path)
