"""Suites that end with the block that settles every contrast (`fde run --until-settled`).

Each is looked at after every block, as a session does; what it ends by is `Family.settled`.
"""

from __future__ import annotations

import numpy as np

from validation.bench import Figure, at_least
from validation.inference.reach import CONFIGURATIONS, WORKLOADS, is_false, judge_logs, list_words
from validation.inference.simulated import no_more_by_chance, share

SUITES, FEW = 200, 4
BLOCKS = 20
# Fewer blocks settle nothing: p is at least (1 + 4n)^(-(n - 1)/2) at n of them, 0.014 at four.
FIRST_LOOK = 5
MOST_EFFECT, UNCHANGED = 0.05, 0.25
SEED = 20_261_127


def measure(quick: bool = False) -> list[Figure]:
    """Return the blocks saved against a fixed number and the false words, for two scatters."""
    suites = FEW if quick else SUITES
    figures = []
    for run_sd in (0.004, 0.01):
        ends = [_end(SEED + number, run_sd) for number in range(suites)]
        blocks = np.array([blocks for blocks, _, _ in ends])
        title = f"ended once settled, of {BLOCKS} blocks, runs scatter by {run_sd:.1%}"
        false = share(np.array([wrong for _, _, wrong in ends]))
        figures += [
            at_least(f"machine time saved, {title}", 100 * (1 - np.mean(blocks) / BLOCKS), "%", 30),
            no_more_by_chance(f"any false verdict on a page, {title}", false, suites, 5),
            Figure(f"suites settled, {title}", share(np.array([s for _, s, _ in ends])), "%"),
        ]
    return figures


def _end(seed: int, run_sd: float) -> tuple[int, bool, bool]:
    """Return at how many blocks a suite ended, whether settled, and whether any word was false.

    Each configuration has a true effect of 0 to 5 %, a quarter of them none, the same in all
    workloads.
    """
    generator = np.random.default_rng(seed)
    effects = np.log1p(generator.uniform(0, MOST_EFFECT, len(CONFIGURATIONS)))
    effects *= generator.random(len(CONFIGURATIONS)) >= UNCHANGED
    effects[0] = 0.0
    shape = len(WORKLOADS), BLOCKS, len(CONFIGURATIONS)
    logs = generator.normal(0, 0.01, (1, BLOCKS, 1)) + generator.normal(0, run_sd, shape) + effects
    truth = np.broadcast_to(effects, shape[::2])
    for blocks in range(FIRST_LOOK, BLOCKS + 1):
        family = judge_logs(logs[:, :blocks], any_look=True)
        if family.settled:
            break
    return blocks, family.settled, is_false(list_words(family, truth))
