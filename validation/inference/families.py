"""False verdicts among all that a suite's report gives, where nothing differs or all is too much.

The answer is the contrasts over all workloads, here the five that suites declare among four
configurations; the rows are every workload × configuration against the baseline.
"""

from __future__ import annotations

import math

import numpy as np

from analysis.stats.comparison import ANSWER_SHARE, LogRatio, deciding_levels
from analysis.stats.stats import Floats
from validation.bench import Figure
from validation.inference.simulated import (
    FEW,
    SEED,
    SUITES,
    Scene,
    no_more_by_chance,
    share,
    simulate,
)

MARGIN = 0.02
CONTRASTS = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3))
AGAINST_BASE = 3  # so many of them
WORKLOADS = 5
BATCHES = 5
BEYOND = 1 + 1.0001 * MARGIN


def measure(quick: bool = False) -> list[Figure]:
    """Measure false words on pages whose ratios are 1, on the margin, or both, and the power."""
    suites = FEW if quick else SUITES
    truths = {
        "all ratios are 1": (1.0, 1.0, 1.0),
        "all are just beyond the margin": (BEYOND, BEYOND, BEYOND),
        "one is 1, two are just beyond the margin": (1.0, BEYOND, BEYOND),
    }
    figures = [
        no_more_by_chance(
            f"any false word on a page, {name}, {blocks} blocks",
            float(np.mean([_false(truth, blocks, suites, SEED + k) for k in range(BATCHES)])),
            BATCHES * suites,
            5,
        )
        for name, truth in truths.items()
        for blocks in (3, 6, 10)
    ]
    return [*figures, _joint_coverage(suites), _power(suites)]


def _false(truth: tuple[float, ...], blocks: int, suites: int, seed: int) -> float:
    """Return the share of pages in % with a false word."""
    scene = Scene(blocks=blocks, workloads=WORKLOADS, ratio=truth)
    page = page_of(simulate(scene, suites, np.random.default_rng(seed)).logs)
    low, high = page.interval(levels_of(page))
    true, limit = true_logs(truth), math.log1p(MARGIN)
    differs, equivalent = (low > 0) | (high < 0), (low > -limit) & (high < limit)
    wrong = np.where(true == 0, differs & ~equivalent, equivalent & (np.abs(true) > limit))
    return share(np.any(wrong, axis=-1))


def _joint_coverage(suites: int) -> Figure:
    """Return how often all intervals of a page hold their ratios, with large changes among them."""
    truth = (1.01, 1.2, 1.3)
    scene = Scene(workloads=WORKLOADS, ratio=truth)
    page = page_of(simulate(scene, suites, np.random.default_rng(SEED + 40)).logs)
    low, high = page.interval(levels_of(page))
    true = true_logs(truth)
    held = np.all((low <= true) & (true <= high), axis=-1)
    return Figure("all intervals of a page hold their ratios, 10 blocks", share(held), "%")


def _power(suites: int) -> Figure:
    """Return a change of 1 % next to two large ones, found in spite of them; that alone: 80 %."""
    scene = Scene(workloads=WORKLOADS, ratio=(1.01, 1.2, 1.2), entry_sd=0.0066, run_sd=0.003)
    page = page_of(simulate(scene, suites, np.random.default_rng(SEED + 30)).logs)
    alone, together = (page.interval(level)[0][:, 0] > 0 for level in (0.05, levels_of(page)))
    title = "a true change of 1 % next to two of 20 % found, 10 blocks (tested alone: "
    return Figure(f"{title}{share(alone):.1f} %)", share(together), "%")


def page_of(logs: Floats) -> LogRatio:
    """Return the ratios of pages (suites × questions): the contrasts, then the rows."""
    means = np.mean(logs, axis=1)
    answer = np.stack([means[..., other] - means[..., base] for base, other in CONTRASTS], axis=1)
    rows = np.moveaxis(logs[..., 1:] - logs[..., :1], -1, 2)
    rows = rows.reshape(len(logs), -1, logs.shape[2])
    return LogRatio.from_logs(np.concatenate([answer, rows], axis=1))


def levels_of(page: LogRatio) -> Floats:
    """Return the levels that decide, by suite and question."""
    rows = page.mean.shape[-1] - len(CONTRASTS)
    weights = [ANSWER_SHARE / len(CONTRASTS)] * len(CONTRASTS) + [(1 - ANSWER_SHARE) / rows] * rows
    return deciding_levels(page.interval, MARGIN, np.broadcast_to(weights, page.mean.shape))


def true_logs(truth: tuple[float, ...]) -> Floats:
    """Return the true logarithm of each question's ratio."""
    effects = np.log([1.0, *truth])
    answer = [effects[other] - effects[base] for base, other in CONTRASTS]
    return np.array([*answer, *np.tile(effects[1:], WORKLOADS)])
