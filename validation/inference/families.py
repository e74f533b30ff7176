"""False verdicts among all that a suite's report gives, where nothing differs or all is too much.

Family a: the answer's contrasts over all workloads; here the five that suites declare, among four
configurations. Family b: every workload × configuration against the baseline.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from analysis.stats.comparison import LogRatio, closed, settling
from analysis.stats.contrasts import contrasts, permutation_p
from analysis.stats.stats import LEVEL, Floats
from analysis.stats.summary import summarise
from analysis.suite.records import Suite
from validation.bench import Figure
from validation.inference.simulated import (
    FEW,
    SEED,
    SUITES,
    Scene,
    log_ratios,
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
COLUMNS = ("p_value", "p_equivalence", "p_adjusted", "p_equivalence_adjusted")


def measure(quick: bool = False) -> list[Figure]:
    """False positives on A/A suites, false equivalence at the margin, and the report's own path."""
    suites = FEW if quick else SUITES
    figures = [figure for blocks in (3, 10) for figure in _of(blocks, suites)]
    figures += [_mixed(blocks, suites) for blocks in (3, 10, 20)]
    figures.append(_power(suites))
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
    a, b = (_any(tests(family(same))[1][:, 0]) for family in (family_a, family_b))
    # Contrasts between two others are left out: their true ratio is 1.
    alone, on_margin = (found[:, 1, :AGAINST_BASE] for found in tests(family_a(beyond)))
    others = tests(family_b(beyond))[1][:, 1]
    return [a, b, share(alone[:, 0] < LEVEL), _any(on_margin), _any(others)]


def _any(p_values: Floats) -> float:
    return share(np.any(p_values < LEVEL, axis=-1))


def _mixed(blocks: int, suites: int) -> Figure:
    """Any false verdict where one configuration is the baseline's equal, two are on the margin."""
    truth = np.array([1.0, 1 + MARGIN, 1 + MARGIN])
    scene = Scene(blocks=blocks, workloads=WORKLOADS, ratio=tuple(truth.tolist()))
    whole = np.log([1.0, *truth])
    same = np.array([whole[b] == whole[a] for a, b in CONTRASTS])
    false = []
    for batch in range(BATCHES):
        found = simulate(scene, suites, np.random.default_rng(SEED + 20 + batch)).logs
        adjusted = tests(family_a(found))[1] < LEVEL
        wrong = np.where(same, adjusted[:, 0], adjusted[:, 1])
        false.append(share(np.any(wrong, axis=-1)))
    title = f"mixed truths, any false “differs” or “equivalent” in family a, {blocks} blocks"
    return no_more_by_chance(title, float(np.mean(false)), BATCHES * suites, 5)


def _power(suites: int) -> Figure:
    """A change of 1 % beside two large ones, found in spite of them; that alone: 80 %."""
    scene = Scene(workloads=WORKLOADS, ratio=(1.01, 1.2, 1.2), entry_sd=0.0066, run_sd=0.003)
    found = simulate(scene, suites, np.random.default_rng(SEED + 30)).logs
    alone, adjusted = (tested[:, 0, 0] for tested in tests(family_a(found)))
    title = "a true change of 1 % beside two of 20 % found, 10 blocks (tested alone: "
    return Figure(f"{title}{share(alone < LEVEL):.1f} %)", share(adjusted < LEVEL), "%")


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
    found = [permutation_p(row.tolist()) for row in log_ratios(same.logs)]
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
        a = [[c.columns[name] for name in COLUMNS] for c in compared if c]
        rows = summarise(suite, energy).filter(pl.col("ratio").is_not_null())
        b = rows.select(COLUMNS).rows()
        for ours, family in (
            (a, family_a(found.logs[[number]])),
            (b, family_b(found.logs[[number]])),
        ):
            p_values, adjusted = tests(family)
            theirs = np.concatenate([p_values[0], adjusted[0]]).T
            apart = max(apart, float(np.max(np.abs(np.array(ours, float) - theirs))))
    return apart


def tests(family: LogRatio) -> tuple[Floats, Floats]:
    """p-values of both tests (suites × tests × comparisons), and adjusted as the report's are."""
    p_values = np.stack([family.p_value(), family.p_equivalence(MARGIN)], axis=-2)
    return p_values, closed(p_values, settling(p_values, family.p_beyond(MARGIN)))


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
