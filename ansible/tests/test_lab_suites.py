"""Suites that ask of the storage itself, at the lab's size, to their reports: nothing void."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PHASES = {"file-systems": {"write-large", "read-large"}}


@pytest.mark.parametrize("name", PHASES)
def test_every_run_is_proven_and_has_joules(provisioned: Any, tmp_path: Path, name: str) -> None:
    place = ["--target", str(provisioned.target), "--inventory", provisioned.inventory]
    options = ["--suite", name, "--scale", "lab", "--blocks", "1"]
    result = provisioned.python(
        "controller", "run", "--no-report", *options, "--out", str(tmp_path), *place
    )
    assert result.returncode == 0, "the suite failed; see above"
    (folder,) = tmp_path.iterdir()
    plan = json.loads((folder / "plan.json").read_text())
    runs = [json.loads(path.read_text()) for path in folder.glob("runs/*/run.json")]
    assert len(runs) == len(plan["runs"])
    for run in runs:
        assert run["status"] == "finished", (run["run_id"], run["void_reason"])
        assert run["proof"]["ok"]
    assert {run["configuration"] for run in runs} == {
        entry["name"] for entry in plan["configurations"]
    }

    assert provisioned.python("controller", "report", str(folder)).returncode == 0
    energy = pl.read_parquet(folder / "energy.parquet").filter(pl.col("component") == "system")
    assert set(energy["phase"]) >= PHASES[name]
    assert energy.filter(pl.col("phase").is_in(PHASES[name]))["energy_j"].min() > 0
