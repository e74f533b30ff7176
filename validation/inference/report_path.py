"""Simulated suites through the very functions that the report calls, beside the vectorised ones."""

from __future__ import annotations

import numpy as np
import polars as pl

from analysis.stats.contrasts import contrasts
from analysis.stats.stats import Floats, Paired, holm
from analysis.stats.summary import summarise
from analysis.suite.records import Suite
from analysis.synthetic.tables import energy_of, suite_of
from validation.inference import families
from validation.inference.simulated import SEED, Scene, simulate


def largest_difference(scene: Scene, suites: int) -> float:
    """Over all p-values, plain and adjusted, of both families."""
    found = simulate(scene, suites, np.random.default_rng(SEED + 4))
    apart = 0.0
    for number in range(suites):
        logs = found.logs[number]
        suite, energy = _suite(logs), _energy(logs)
        told = [c.comparison for c in contrasts(suite, energy)]
        a = [(c.p_value, c.p_holm, c.p_equivalence, c.p_equivalence_holm) for c in told if c]
        rows = summarise(suite, energy).filter(pl.col("ratio").is_not_null())
        b = rows.select("p_value", "p_holm", "p_equivalence", "p_equivalence_holm").rows()
        for ours, family in (
            (a, families.family_a(found.logs[[number]])),
            (b, families.family_b(found.logs[[number]])),
        ):
            apart = max(apart, float(np.max(np.abs(np.array(ours, float) - _vectorised(family)))))
    return apart


def _vectorised(family: Paired) -> Floats:
    different, equivalent = family.p_value(), family.p_equivalence(families.MARGIN)
    columns = (different, holm(different), equivalent, holm(equivalent))
    return np.stack([column[0] for column in columns], axis=-1)


def _suite(logs: Floats) -> Suite:
    """A suite that planned what was simulated: workloads × blocks × configurations."""
    names = [f"c{k}" for k in range(logs.shape[2])]
    return suite_of(
        {name: "dmcrypt" if k else "plain" for k, name in enumerate(names)},
        [f"w{k}" for k in range(logs.shape[0])],
        [(names[a], names[b]) for a, b in families.CONTRASTS],
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
