"""Simulated suites through the very functions that the report calls, beside the vectorised ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from analysis.energy import ENERGY_SCHEMA
from analysis.inference.contrasts import contrasts
from analysis.inference.family import holm
from analysis.inference.stats import Floats, Paired
from analysis.records import Suite
from analysis.summary import summarise
from lab.inference import families
from lab.inference.simulated import SEED, Scene, simulate


def largest_difference(scene: Scene, suites: int) -> float:
    """Over all p-values, plain and adjusted, of both families."""
    found = simulate(scene, suites, np.random.default_rng(SEED + 4))
    apart = 0.0
    for number in range(suites):
        logs = found.logs[number]
        suite, energy = suite_of(logs), energy_of(logs)
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


def suite_of(logs: Floats) -> Suite:
    """A suite that planned what was simulated: workloads × blocks × configurations."""
    names = [f"c{k}" for k in range(logs.shape[2])]
    plan = {
        "suite_id": "simulated",
        "origin": "synthetic",
        "configurations": [
            {"name": name, "kind": "dmcrypt" if k else "plain"} for k, name in enumerate(names)
        ],
        "workloads": [{"name": f"w{k}"} for k in range(logs.shape[0])],
        "analysis": {
            "contrasts": [[names[a], names[b]] for a, b in families.CONTRASTS],
            "margin": families.MARGIN,
        },
    }
    return Suite(Path(), plan, (), (), (), (), {}, {}, None, False)


def energy_of(logs: Floats) -> pl.DataFrame:
    """The energy table of one simulated suite."""
    rows = [
        {
            "suite_id": "simulated",
            "host": "",
            "run_id": f"b{block:02d}-c{configuration}-w{workload}",
            "block": block,
            "configuration": f"c{configuration}",
            "workload": f"w{workload}",
            "phase": "all",
            "source": "meter",
            "component": "system",
            "origin": "synthetic",
            "duration_s": 10.0,
            "energy_j": float(np.exp(logs[workload, block, configuration])) * 1000,
            "power_w": float(np.exp(logs[workload, block, configuration])) * 100,
        }
        for workload, block, configuration in np.ndindex(*logs.shape)
    ]
    return pl.DataFrame(rows, schema=dict(ENERGY_SCHEMA))
