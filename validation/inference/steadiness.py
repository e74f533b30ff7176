"""How often true or false carry-over is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.stats.stats import LEVEL, Floats
from analysis.stats.steadiness import Layout
from validation.bench import Figure
from validation.inference.simulated import (
    FEW,
    SEED,
    SUITES,
    Scene,
    Simulated,
    no_more_by_chance,
    share,
    simulate,
)

BLOCKS = (3, 10, 20)
CARRY = 0.005  # of the joules, after one of the configurations


def measure(quick: bool = False) -> list[Figure]:
    """Measure for few and many blocks."""
    suites = FEW if quick else SUITES
    return [figure for blocks in BLOCKS for figure in _measure_size(blocks, suites)]


def _measure_size(blocks: int, suites: int) -> list[Figure]:
    """Measure suites without carry-over, and suites with one."""
    scene = Scene(blocks=blocks, swing=0.0, ratio=1.05)
    layout = layout_of(scene)
    generator = np.random.default_rng(SEED + 8)
    simulated = simulate(scene, suites, generator)
    carried = simulate(replace(scene, carry=CARRY), suites, generator)
    change = np.mean(carried.logs[:, 0, :, -1] - carried.logs[:, 0, :, 0]) - np.log(scene.ratio)
    return [
        no_more_by_chance(
            f"suites without carry-over in which one is found, {scene.blocks} blocks",
            share(_carried(layout, simulated)),
            suites,
            100 * LEVEL,
        ),
        Figure(
            f"suites in which a carry-over of {CARRY:.1%} after one configuration is found, "
            f"{scene.blocks} blocks",
            share(_carried(layout, carried)),
            "%",
        ),
        Figure(
            f"left of that carry-over in the ratio of two configurations, {scene.blocks} blocks",
            100 * float(change),
            "%",
        ),
    ]


def layout_of(scene: Scene) -> Layout:
    """Return the layout of suites with every configuration once in each block."""
    blocks = np.repeat(np.arange(scene.blocks), scene.configurations)
    configurations = np.tile(np.arange(scene.configurations), scene.blocks)
    layout = Layout.from_cells(tuple(blocks.tolist()), tuple(configurations.tolist()))
    if layout is None:
        raise ValueError("the effects of so small a suite cannot be separated")
    return layout


def flat(part: Floats) -> Floats:
    """Return suites × runs, one block after another."""
    return part.reshape(part.shape[0], -1)


def _carried(layout: Layout, simulated: Simulated) -> Floats:
    """Return the suites in which the test finds carry-over."""
    after = simulated.after.reshape(len(simulated.after), -1)
    p_values = layout.carry_over(flat(simulated.logs[:, 0]), after, flat(simulated.places))[0]
    return np.asarray(p_values < LEVEL)
