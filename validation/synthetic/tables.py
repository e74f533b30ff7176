"""A suite without a folder: its plan, and its energy table from given joules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from analysis.energy.energy import ENERGY_SCHEMA
from analysis.suite.records import Run, Suite
from contract import schema
from contract.assumptions import parse_assumptions
from contract.plan import SuitePlan

DEFAULTS: Mapping[str, Any] = {
    "suite_id": "made",
    "host": "",
    "phase": "all",
    "source": "meter",
    "component": "system",
    "origin": "synthetic",
    "duration_s": 10.0,
    "coverage": 1.0,
    "flags": "",
}

ENCRYPTED_BY = {"plain": "none", "opal": "drive", "dmcrypt": "processor", "tcrypt": "processor"}


def suite_of(
    configurations: Mapping[str, str],
    workloads: Iterable[str],
    contrasts: Iterable[Sequence[str]] = (),
    runs: Iterable[Run] = (),
    **plan: Any,
) -> Suite:
    """Build a suite; `configurations` is name: kind, `plan` holds further keys of plan.json."""
    document = {
        "format": "fde-plan/3",
        "suite_id": "made",
        "suite": "made",
        "host": "made",
        "sha256": "",
        "origin": "synthetic",
        "configurations": [
            {"name": name, "kind": kind, "disk": "any", "encrypted_by": ENCRYPTED_BY.get(kind)}
            for name, kind in configurations.items()
        ],
        "workloads": [{"name": name, "parameters": {}} for name in workloads],
        "analysis": {"contrasts": [list(pair) for pair in contrasts], "margin": 0.02},
        **plan,
    }
    return Suite(
        folder=Path(),
        plan=schema.read(SuitePlan, document),
        runs=tuple(runs),
        assumptions=parse_assumptions(assumed) if (assumed := plan.get("assumptions")) else None,
    )


def energy_of(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Build the energy table of rows that name workload, configuration, block and `energy_j`.

    Power follows from energy and time; a row without an energy (None) has none.
    """
    table = []
    for row in rows:
        values = {"run_id": run_id_of(row), **DEFAULTS, **row}
        energy_j = values["energy_j"]
        values["power_w"] = None if energy_j is None else float(energy_j / values["duration_s"])
        table.append(values)
    return pl.DataFrame(table, schema=dict(ENERGY_SCHEMA))


def run_id_of(row: Mapping[str, Any]) -> str:
    """Return a run's id if the row has none."""
    return f"b{row['block']:02d}-{row['configuration']}-{row['workload']}"
