"""False verdicts among all that a suite's report gives, where nothing differs or all is too much.

Family a: the answer's contrasts over all workloads; here the five that suites declare, among four
configurations. Family b: every workload × configuration against the baseline.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from analysis.stats.contrasts import contrasts, permutation_p
from analysis.stats.stats import LEVEL, Floats, LogRatio, holm
from analysis.stats.summary import summarise
from analysis.suite.records import Suite
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
from validation.synthetic.tables import energy_of, suite_of

MARGIN = 0.02
CONTRASTS = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3))
AGAINST_BASE = 3  # so many of them
WORKLOADS = 5
BATCHES = 5
PERMUTED = 1_000


def measure(quick: bool = False) -> list[Figure]:
    """False positives on A/A suites, false equivalence at the margin, and the report's own path."""
    suites = FEW if quick else SUITES
    figures = [figure for blocks in (3, 10) for figure in _of(blocks, suites)]
    figures.append(_permuted(40 if quick else PERMUTED))
    apart = largest_difference(_scene(4, 1.01), 2 if quick else 20)
    name = "largest difference of a p-value to the report's own, whole path"
    return [*figures, Figure(name, apart, "", 1e-9, apart <= 1e-9)]


def _of(blocks: int, suites: int) -> list[Figure]:
    """In `BATCHES`, so that chance moves the shares little."""
    found = np.mean([_false(blocks, suites, SEED + 100 * k) for k in range(BATCHES)], axis=0)
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
        for title, value in zip(titles, found.tolist(), strict=True)
    ]


def _false(blocks: int, suites: int, seed: int) -> list[float]:
    """Shares in %, in the order of the titles."""
    same = simulate(_scene(blocks), suites, np.random.default_rng(seed + 1)).logs
    beyond = simulate(_scene(blocks, 1 + MARGIN), suites, np.random.default_rng(seed + 2)).logs
    a, b = (f.p_value() for f in (family_a(same), family_b(same)))
    # Contrasts between two others are left out: their true ratio is 1.
    on_margin = family_a(beyond).p_equivalence(MARGIN)[:, :AGAINST_BASE]
    others = family_b(beyond).p_equivalence(MARGIN)
    one = share(on_margin[:, 0] < LEVEL)
    return [_any(a), _any(b), one, _any(on_margin), _any(others)]


def _any(p_values: Floats) -> float:
    return share(np.any(holm(p_values) < LEVEL, axis=-1))


def family_a(logs: Floats) -> LogRatio:
    """Contrasts along the last axis."""
    means = np.mean(logs, axis=1)
    base, other = (np.stack([means[..., pair[k]] for pair in CONTRASTS], axis=1) for k in (0, 1))
    return LogRatio.of(other - base)


def family_b(logs: Floats) -> LogRatio:
    """Workload × configuration along the last axis."""
    others = np.moveaxis(logs[..., 1:], -1, 2)
    base = np.broadcast_to(logs[:, :, None, :, 0], others.shape)
    logs = others - base
    return LogRatio.of(logs.reshape(len(logs), -1, logs.shape[-1]))


def _scene(blocks: int, ratio: float = 1.0) -> Scene:
    return Scene(blocks=blocks, workloads=WORKLOADS, ratio=ratio)


def _permuted(suites: int) -> Figure:
    """The check of robustness: its own false positives, of one contrast."""
    same = simulate(_scene(10), suites, np.random.default_rng(SEED + 3))
    means = np.mean(same.logs, axis=1)
    ratios = means[..., 1] - means[..., 0]
    found = [permutation_p(row.tolist()) for row in ratios]
    false = share(np.array([p is not None and p <= LEVEL for p in found]))
    title = "A/A suites that the permutation test calls different, one test, 10 blocks"
    return no_more_by_chance(title, false, suites, 5)


def largest_difference(scene: Scene, suites: int) -> float:
    """Over all p-values, plain and adjusted, of both families."""
    found = simulate(scene, suites, np.random.default_rng(SEED + 4))
    apart = 0.0
    for number in range(suites):
        logs = found.logs[number]
        suite, energy = _suite(logs), _energy(logs)
        compared = [c.comparison for c in contrasts(suite, energy)]
        a = [(c.p_value, c.p_holm, c.p_equivalence, c.p_equivalence_holm) for c in compared if c]
        rows = summarise(suite, energy).filter(pl.col("ratio").is_not_null())
        b = rows.select("p_value", "p_holm", "p_equivalence", "p_equivalence_holm").rows()
        for ours, family in (
            (a, family_a(found.logs[[number]])),
            (b, family_b(found.logs[[number]])),
        ):
            apart = max(apart, float(np.max(np.abs(np.array(ours, float) - _vectorised(family)))))
    return apart


def _vectorised(family: LogRatio) -> Floats:
    different, equivalent = family.p_value(), family.p_equivalence(MARGIN)
    columns = (different, holm(different), equivalent, holm(equivalent))
    return np.stack([column[0] for column in columns], axis=-1)


def _suite(logs: Floats) -> Suite:
    """A suite that planned what was simulated: workloads × blocks × configurations."""
    names = [f"c{k}" for k in range(logs.shape[2])]
    return suite_of(
        {name: "dmcrypt" if k else "plain" for k, name in enumerate(names)},
        [f"w{k}" for k in range(logs.shape[0])],
        [(names[a], names[b]) for a, b in CONTRASTS],
    )


def _energy(logs: Floats) -> pl.DataFrame:
    return energy_of(
        {
            "workload": f"w{workload}",
            "configuration": f"c{configuration}",
            "block": block,
            "energy_j": 1000 * float(np.exp(logs[workload, block, configuration])),
        }
        for workload, block, configuration in np.ndindex(*logs.shape)
    )
