"""Whether Stein's second stage keeps its promise, and suites find what is detectable."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from analysis.stats.comparison import Comparison, LogRatio
from analysis.stats.planning import detectable, second_stage, two_stages_half_width
from analysis.stats.stats import LEVEL
from validation.bench import Figure, within
from validation.inference.simulated import (
    FEW,
    SEED,
    SUITES,
    Scene,
    log_ratios,
    no_less_by_chance,
    share,
    simulate,
)

RATIO = 1.05
STILL = Scene(drift_per_h=0.0, swing=0.0, place=0.0)


def measure(quick: bool = False) -> list[Figure]:
    """From pilots of several lengths: the promised width, the stated interval, and the blocks."""
    suites = FEW if quick else SUITES
    figures = []
    for pilot, half_width in ((3, 0.005), (10, 0.005), (10, 0.002), (20, 0.002)):
        batches = [_two_stages(suites // 5, pilot, half_width, SEED + 6 + k) for k in range(25)]
        promised, stated, blocks = np.mean(batches, axis=0).tolist()
        title = f"after Stein's second stage, pilot of {pilot}, ±{100 * half_width:g} %"
        figures += [
            no_less_by_chance(f"truth within the promised width {title}", promised, 5 * suites, 95),
            no_less_by_chance(f"truth within the stated interval {title}", stated, 5 * suites, 95),
            Figure(f"blocks in all, mean, {title}", blocks, "blocks"),
        ]
    return [*figures, *(_power(n, suites) for n in (3, 10, 20))]


def _two_stages(suites: int, pilot: int, half_width: float, seed: int) -> tuple[float, ...]:
    """Shares in % of suites whose promise and whose stated interval held; mean number of blocks.

    The second stage is a new suite, with drift from its start.
    """
    generator = np.random.default_rng(seed)
    firsts = log_ratios(simulate(Scene(blocks=pilot, ratio=RATIO), suites, generator).logs)
    sd = np.std(firsts, axis=-1, ddof=1)
    total = second_stage(sd, pilot, half_width)
    longest = Scene(blocks=int(np.max(total)) - pilot, ratio=RATIO)
    rest = log_ratios(simulate(longest, suites, generator).logs)
    added = np.arange(longest.blocks) < total[:, None] - pilot
    mean = (np.sum(firsts, axis=-1) + np.sum(rest * added, axis=-1)) / total
    off = np.abs(mean - math.log(RATIO))
    stated = off <= two_stages_half_width(sd, pilot, total)
    return share(off <= math.log1p(half_width)), share(stated), float(np.mean(total))


def _power(blocks: int, suites: int) -> Figure:
    """Suites whose true ratio is the detectable one, of those found to differ."""
    scene = replace(STILL, blocks=blocks)
    error = scene.differences_sd / math.sqrt(blocks)
    ratio = detectable(Comparison(blocks, 1.0, 0.02, error, blocks - 1.0))
    if ratio is None:
        raise ValueError("nothing is detectable with so few blocks")
    simulated = simulate(replace(scene, ratio=ratio), suites, np.random.default_rng(SEED + 7))
    power = share(LogRatio.of(log_ratios(simulated.logs)).p_value() < LEVEL)
    return within(f"suites that find the detectable ratio, {blocks} blocks", power, "%", 78, 82)
