"""Suites that lack runs, and suites that are looked at every few blocks."""

from __future__ import annotations

import math

import numpy as np

from analysis.stats.comparison import LogRatio
from analysis.stats.incomplete import in_blocks
from analysis.stats.stats import LEVEL, Floats
from validation.bench import Figure, at_least, within
from validation.inference.simulated import (
    FEW,
    SEED,
    SUITES,
    Scene,
    no_more_by_chance,
    share,
    simulate,
)

MARGIN, RATIO = 0.02, 1.05
VOID = 0.08
LOOKS = range(5, 61, 5)


def measure(quick: bool = False) -> list[Figure]:
    """Coverage with missing runs, and false verdicts with looks."""
    suites = FEW if quick else SUITES
    figures = []
    for blocks, more in (
        *((n, {"workloads": 5}) for n in (3, 5, 10, 20)),
        (10, {}),
        (10, {"workloads": 5, "configurations": 2}),
    ):
        scene = Scene(blocks=blocks, ratio=RATIO, **more)
        figures += _voids(scene, suites // 5)
    figures += _looks(suites)
    return figures


def _voids(scene: Scene, suites: int) -> list[Figure]:
    """Measure how often the true ratio is held with void runs, whole blocks or all runs used."""
    generator = np.random.default_rng(SEED + 40)
    logs = simulate(scene, suites, generator).logs
    logs[generator.uniform(size=logs.shape) < VOID] = np.nan
    held, of_whole_blocks, lone, of_all_runs = [], 0.0, 0.0, 0.0
    for suite in logs:
        ratio = in_blocks(suite, MARGIN)
        if ratio is not None and ratio.low is not None:
            held.append(ratio.contains(RATIO))
        pairs = np.isfinite(suite[..., :2])
        of_all_runs += np.sum(pairs)
        of_whole_blocks += np.sum(np.all(pairs, axis=(0, 2))) * pairs[:, 0].size
        others = np.sum(np.isfinite(suite), axis=-1, keepdims=True) > 1
        lone += np.sum(pairs & others)
    by_blocks, used = (100 * float(part) / float(of_all_runs) for part in (of_whole_blocks, lone))
    name = f"{scene.blocks} blocks, {scene.workloads} workloads, {scene.configurations} "
    name += f"configurations, {VOID:.0%} of runs void"
    return [
        within(f"true ratio within the 95 % interval, {name}", share(np.array(held)), "%", 94, 97),
        Figure(f"suites without an interval, {name}", 100 * (1 - len(held) / suites), "%"),
        Figure(f"runs of the two configurations used by whole blocks, {name}", by_blocks, "%"),
        at_least(f"runs of the two configurations used, {name}", used, "%", 95),
    ]


def _looks(suites: int) -> list[Figure]:
    """Measure false verdicts in looks every five blocks up to sixty, and their price."""
    generator = np.random.default_rng(SEED + 42)
    same = generator.normal(0, 0.005, (suites, LOOKS[-1]))
    beyond = same + math.log1p(MARGIN)
    figures = []
    for any_look, name in ((False, "plain intervals"), (True, "looks: any")):
        differs, equal = np.zeros(suites, bool), np.zeros(suites, bool)
        for blocks in LOOKS:
            differs |= LogRatio.of(same[:, :blocks], any_look).p_value() < LEVEL
            p_value = LogRatio.of(beyond[:, :blocks], any_look).p_equivalence(MARGIN)
            equal |= p_value < LEVEL
        for what, false in (("differs", differs), ("equivalent", equal)):
            title = f"false “{what}” in looks every 5 of 60 blocks, {name}"
            value = share(false)
            figures.append(
                no_more_by_chance(title, value, suites, 5)
                if any_look
                else Figure(title, value, "%")
            )
    wider = half_of(same[:, :10], True) / half_of(same[:, :10], False)
    return [
        *figures,
        Figure("width of looks: any beside the plain interval, 10 blocks", wider, "×"),
    ]


def half_of(ratios: Floats, any_look: bool) -> float:
    """Return the mean half width of the intervals, of logarithms."""
    low, high = LogRatio.of(ratios, any_look).interval()
    return float(np.mean(high - low)) / 2
