"""Simulated suites with different blocks, drift, an effect of the order, and scatter.

Only the logarithms of joules, for ten thousand suites at once: what the tests of the analysis are
made of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from analysis.stats.stats import Floats
from analysis.stats.steadiness import Ints
from contract.estimates import Estimate
from validation.bench import Figure

SUITES, FEW = 10_000, 400
SEED = 20_260_401


@dataclass(frozen=True)
class Scene:
    """A suite's layout and faults; all effects are of the logarithm (0.01 is about 1 %).

    Drift is per hour of the suite, `swing` a slow wave besides. `place` is the change from one
    place in the order of a block to the next, `carry` what the last configuration adds to the one
    that runs after it. `run_h` is the time of one configuration with all its workloads. `ratio` is
    the true one of every configuration but the first to the first, or of each of them.
    """

    blocks: int = 10
    configurations: int = 4
    workloads: int = 1
    ratio: float | tuple[float, ...] = 1.0
    block_sd: float = 0.01
    entry_sd: float = 0.001
    run_sd: float = 0.003
    drift_per_h: float = 0.002
    swing: float = 0.002
    place: float = 0.0005
    carry: float = 0.0
    run_h: float = 0.25
    tails: int | None = None  # degrees of freedom of a t instead of the normal scatter of runs

    @property
    def differences_sd(self) -> float:
        """Scatter of a log-ratio within a block without drift and order."""
        return math.sqrt(2 * (self.entry_sd**2 + self.run_sd**2 / self.workloads))


@dataclass(frozen=True, eq=False)
class Simulated:
    """Logarithms (suites × workloads × blocks × configurations), and their components.

    Hours, places, the configuration that ran just before (−1: none) and the blocks' own true
    effects are suites × blocks × configurations.
    """

    logs: Floats
    hours: Floats
    places: Floats
    after: Ints
    blocks: Floats


def simulate(scene: Scene, suites: int, generator: np.random.Generator) -> Simulated:
    """Simulate suites with random order within each block, one entry of each configuration."""
    s = scene
    shape = suites, s.blocks, s.configurations
    places = generator.permuted(np.broadcast_to(np.arange(s.configurations), shape), axis=-1)
    elapsed = np.arange(s.blocks)[:, None] * s.configurations + places
    hours = np.asarray(elapsed * s.run_h, np.float64)
    order = np.argsort(places, axis=-1).reshape(suites, s.blocks * s.configurations)
    before = np.roll(order, 1, axis=-1)
    before[:, :1] = -1
    after = np.take_along_axis(before.reshape(shape), places, axis=-1)
    phase = generator.uniform(0, 2 * math.pi, (suites, 1, 1))
    of_blocks = generator.normal(0, s.block_sd, (suites, s.blocks, 1)) + np.zeros(shape)
    common = (
        s.drift_per_h * hours
        + s.swing * np.sin(hours / 2 + phase)
        + s.place * places
        + s.carry * (after == s.configurations - 1)
        + of_blocks
        + generator.normal(0, s.entry_sd, shape)
    )
    common[..., 1:] += np.log(s.ratio)
    of_runs = suites, s.workloads, s.blocks, s.configurations
    if s.tails is None:
        scatter = generator.normal(0, s.run_sd, of_runs)
    else:
        scale = s.run_sd / math.sqrt(s.tails / (s.tails - 2))
        scatter = scale * generator.standard_t(s.tails, of_runs)
    of_blocks = of_blocks + s.drift_per_h * np.mean(hours, axis=-1, keepdims=True)
    return Simulated(common[:, None] + scatter, hours, places.astype(float), after, of_blocks)


def log_ratios(logs: Floats) -> Floats:
    """Return suites × blocks: the second configuration against the first, over all workloads."""
    means = np.mean(logs, axis=1)
    return np.asarray(means[..., 1] - means[..., 0])


def autoregressive(
    generator: np.random.Generator, shape: tuple[int, ...], correlation: float
) -> Floats:
    """Return series along the last axis with variance 1, neighbours correlated (first order)."""
    values = generator.normal(0, 1, shape)
    for at in range(1, shape[-1]):
        values[..., at] *= math.sqrt(1 - correlation**2)
        values[..., at] += correlation * values[..., at - 1]
    return values


def holds(span: Estimate | None, true: float) -> bool:
    """Return whether an interval contains the truth; one without limits does not."""
    if span is None or span.low is None or span.high is None:
        return False
    return span.low <= true <= span.high


def share(held: Floats | np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> float:
    """Return a share of suites, in %."""
    return 100 * float(np.mean(held))


def covered(interval: tuple[Floats, Floats], truth: float | Floats) -> float:
    """Return the share in % of the intervals (low, high) that hold the truth."""
    low, high = interval
    return share((low <= truth) & (truth <= high))


def no_more_by_chance(figure: str, value: float, suites: int, target: float) -> Figure:
    """Return a share in % that may exceed its target by the scatter of that many suites (99 %)."""
    scatter = chance(suites, target)
    return Figure(figure, value, "%", f"≤{target:g}+{scatter:.1g}", value <= target + scatter)


def chance(suites: int, target: float) -> float:
    """Return the scatter of a share in % over that many suites."""
    return 2.33 * 100 * math.sqrt(target / 100 * (1 - target / 100) / suites)
