"""Suites that lack runs, whose runs stall, that are looked at every few blocks, that drift."""

from __future__ import annotations

import math

import numpy as np

from analysis.stats import typical
from analysis.stats.comparison import LogRatio
from analysis.stats.drifting import long_run
from analysis.stats.incomplete import in_blocks
from analysis.stats.stats import LEVEL, Floats, half_width
from validation.bench import Figure, at_least, at_most, within
from validation.inference.simulated import (
    FEW,
    SEED,
    SUITES,
    Scene,
    autoregressive,
    covered,
    no_more_by_chance,
    share,
    simulate,
)

MARGIN, RATIO = 0.02, 1.05
VOID = 0.08
STALL, STALLED = math.log(1.4), 0.03  # of the runs of one configuration
LOOKS = range(5, 61, 5)
CORRELATED = (0.0, 0.5, 0.8, 0.95)


def measure(quick: bool = False) -> list[Figure]:
    """Coverage with missing runs and with stalls, false verdicts with looks, joules that drift."""
    suites = FEW if quick else SUITES
    figures = []
    for blocks, more in (
        *((n, {"workloads": 5}) for n in (3, 5, 10, 20)),
        (10, {}),
        (10, {"workloads": 5, "configurations": 2}),
    ):
        scene = Scene(blocks=blocks, ratio=RATIO, **more)
        figures += _voids(scene, suites // 5)
    figures += [f for blocks in (10, 20) for f in _stalls(blocks, suites)]
    figures += _looks(suites)
    return [*figures, *(f for blocks in (5, 10, 20) for f in _joules(blocks, suites))]


def _voids(scene: Scene, suites: int) -> list[Figure]:
    """True ratio held; suites without an interval; runs used before by whole blocks, and now."""
    generator = np.random.default_rng(SEED + 40)
    logs = simulate(scene, suites, generator).logs
    logs[generator.uniform(size=logs.shape) < VOID] = np.nan
    held, whole, lone, there = [], 0.0, 0.0, 0.0
    for one in logs:
        found = in_blocks(one, MARGIN)
        if found is not None and found.comparison.low is not None:
            held.append(found.comparison.contains(RATIO))
        pairs = np.isfinite(one[..., :2])
        there += np.sum(pairs)
        whole += np.sum(np.all(pairs, axis=(0, 2))) * pairs[:, 0].size
        others = np.sum(np.isfinite(one), axis=-1, keepdims=True) > 1
        lone += np.sum(pairs & others)
    by_blocks, used = (100 * float(part) / float(there) for part in (whole, lone))
    name = f"{scene.blocks} blocks, {scene.workloads} workloads, {scene.configurations} "
    name += f"configurations, {VOID:.0%} of runs void"
    return [
        within(f"true ratio within the 95 % interval, {name}", share(np.array(held)), "%", 94, 97),
        Figure(f"suites without an interval, {name}", 100 * (1 - len(held) / suites), "%"),
        Figure(f"runs of the two configurations used by whole blocks, {name}", by_blocks, "%"),
        at_least(f"runs of the two configurations used, {name}", used, "%", 95),
    ]


def _stalls(blocks: int, suites: int) -> list[Figure]:
    """What the mean's interval and the typical block's hold, and who is called equivalent."""
    generator = np.random.default_rng(SEED + 41)
    scene = Scene(blocks=blocks, ratio=1.0)
    logs = simulate(scene, suites, generator).logs
    stalled = generator.uniform(size=logs.shape[:-1]) < STALLED
    logs[..., 1] += STALL * stalled
    ratios = np.mean(logs[..., 1] - logs[..., 0], axis=1)
    mean, averages = LogRatio.of(ratios), typical.pair_means(ratios)
    seen = np.any(stalled, axis=(1, 2))
    narrow = np.stack(typical.interval(averages, 2 * LEVEL))
    inside = np.all(np.abs(narrow) < math.log1p(MARGIN), axis=0)
    equal = (mean.p_equivalence(MARGIN) < LEVEL) & inside
    name = f"{blocks} blocks, +40 % in 3 % of one configuration's runs"
    expected = STALLED * STALL
    return [
        within(
            f"ratio of a typical block within its 95 % interval, {name}",
            covered(typical.interval(averages, LEVEL), 0.0),
            "%",
            94,
            97.5,
        ),
        Figure(
            f"mean ratio, stalls included, within Student's, {name}",
            covered(mean.interval(), expected),
            "%",
        ),
        Figure(f"suites in which no run stalled, {name}", 100 - share(seen), "%"),
        Figure(f"called equivalent within 2 %, {name}", share(equal), "%"),
        at_most(f"called equivalent with a stalled run, {name}", share(equal & seen), "%", 5),
    ]


def _looks(suites: int) -> list[Figure]:
    """False verdicts anywhere in looks every five blocks up to sixty, and the price."""
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
    low, high = LogRatio.of(ratios, any_look).interval()
    return float(np.mean(high - low)) / 2


def _joules(blocks: int, suites: int) -> list[Figure]:
    """The long-run mean of blocks that hang together, in Student's interval and the wide one."""
    generator = np.random.default_rng(SEED + 43)
    figures = []
    for correlation in CORRELATED:
        values = autoregressive(generator, (suites // 2, blocks), correlation)
        half = half_width(np.std(values, axis=-1, ddof=1), blocks, 1 - LEVEL)
        mean = np.mean(values, axis=-1)
        name = f"{blocks} blocks, correlation of neighbours {correlation:g}"
        plain, wide = covered((mean - half, mean + half), 0.0), covered(long_run(values), 0.0)
        figures += [
            Figure(f"long-run joules within Student's interval, {name}", plain, "%"),
            at_least(f"long-run joules within the long-run interval, {name}", wide, "%", 94),
        ]
    return figures
