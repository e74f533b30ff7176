"""False verdicts among all of a suite's report, without differences or with too large ones.

Family a: the answer's contrasts over all workloads; here the five that suites declare, among four
configurations. Family b: every workload × configuration against the baseline.
"""

from __future__ import annotations

import numpy as np

from analysis.stats.comparison import LogRatio, settled_p_values, step_down
from analysis.stats.stats import LEVEL, Floats
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


def measure(quick: bool = False) -> list[Figure]:
    """Measure false positives on A/A suites, and false equivalence at the margin."""
    suites = FEW if quick else SUITES
    figures = [figure for blocks in (3, 10) for figure in _measure_size(blocks, suites)]
    figures += [_mixed(blocks, suites) for blocks in (3, 10, 20)]
    figures.append(_power(suites))
    return figures


def _measure_size(blocks: int, suites: int) -> list[Figure]:
    """Measure in `BATCHES`, so that chance moves the shares little."""
    rates = np.mean([_false(blocks, suites, SEED + 100 * k) for k in range(BATCHES)], axis=0)
    differs = f"A/A suites with a false “differs”, {blocks} blocks"
    equivalent = f"false “equivalent” with the ratio on the margin, {blocks} blocks"
    titles = (
        f"{differs}, family a",
        f"{differs}, family b",
        f"{equivalent}, one test",
        f"{equivalent}, family a",
        f"{equivalent}, family b",
    )
    return [
        no_more_by_chance(title, value, BATCHES * suites, 5)
        for title, value in zip(titles, rates.tolist(), strict=True)
    ]


def _false(blocks: int, suites: int, seed: int) -> list[float]:
    """Return shares in %, in the order of the titles."""
    same = simulate(_scene(blocks), suites, np.random.default_rng(seed + 1)).logs
    beyond = simulate(_scene(blocks, 1 + MARGIN), suites, np.random.default_rng(seed + 2)).logs
    a, b = (_any(tests(family(same))[1][:, 0]) for family in (family_a, family_b))
    # Contrasts between two others are left out: their true ratio is 1.
    alone, on_margin = (p[:, 1, :AGAINST_BASE] for p in tests(family_a(beyond)))
    others = tests(family_b(beyond))[1][:, 1]
    return [a, b, share(alone[:, 0] < LEVEL), _any(on_margin), _any(others)]


def _any(p_values: Floats) -> float:
    return share(np.any(p_values < LEVEL, axis=-1))


def _mixed(blocks: int, suites: int) -> Figure:
    """Measure any false verdict with one configuration equal to the baseline, two on the margin."""
    truth = np.array([1.0, 1 + MARGIN, 1 + MARGIN])
    scene = Scene(blocks=blocks, workloads=WORKLOADS, ratio=tuple(truth.tolist()))
    effects = np.log([1.0, *truth])
    same = np.array([effects[b] == effects[a] for a, b in CONTRASTS])
    false = []
    for batch in range(BATCHES):
        logs = simulate(scene, suites, np.random.default_rng(SEED + 20 + batch)).logs
        adjusted = tests(family_a(logs))[1] < LEVEL
        wrong = np.where(same, adjusted[:, 0], adjusted[:, 1])
        false.append(share(np.any(wrong, axis=-1)))
    title = f"mixed truths, any false “differs” or “equivalent” in family a, {blocks} blocks"
    return no_more_by_chance(title, float(np.mean(false)), BATCHES * suites, 5)


def _power(suites: int) -> Figure:
    """Measure how often a change of 1 % is detected next to two large ones."""
    scene = Scene(workloads=WORKLOADS, ratio=(1.01, 1.2, 1.2), entry_sd=0.0066, run_sd=0.003)
    logs = simulate(scene, suites, np.random.default_rng(SEED + 30)).logs
    alone, adjusted = (tested[:, 0, 0] for tested in tests(family_a(logs)))
    title = "a true change of 1 % beside two of 20 % found, 10 blocks (tested alone: "
    return Figure(f"{title}{share(alone < LEVEL):.1f} %)", share(adjusted < LEVEL), "%")


def family_a(logs: Floats) -> LogRatio:
    """Return the contrasts along the last axis."""
    means = np.mean(logs, axis=1)
    base, other = (np.stack([means[..., pair[k]] for pair in CONTRASTS], axis=1) for k in (0, 1))
    return LogRatio.from_logs(other - base)


def family_b(logs: Floats) -> LogRatio:
    """Return workload × configuration along the last axis."""
    others = np.moveaxis(logs[..., 1:], -1, 2)
    base = np.broadcast_to(logs[:, :, None, :, 0], others.shape)
    logs = others - base
    return LogRatio.from_logs(logs.reshape(len(logs), -1, logs.shape[-1]))


def _scene(blocks: int, ratio: float = 1.0) -> Scene:
    return Scene(blocks=blocks, workloads=WORKLOADS, ratio=ratio)


def tests(family: LogRatio) -> tuple[Floats, Floats]:
    """Return p-values of both tests (suites × tests × comparisons), and adjusted as reported."""
    p_values = np.stack([family.p_value(), family.p_equivalence(MARGIN)], axis=-2)
    return p_values, step_down(p_values, settled_p_values(p_values, family.p_beyond(MARGIN)))
