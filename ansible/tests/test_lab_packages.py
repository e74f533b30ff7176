"""The example packages in a suite: a meter that measures it, a storage kind that is measured."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from lab.state import REPOSITORY
from validation.tests.test_examples import install

pytestmark = [pytest.mark.lab, pytest.mark.slow]

POWER_W = 42.0
CONFIGURATIONS = [
    {"name": "plain", "kind": "plain", "disk": "plain"},
    {"name": "null", "kind": "dmcrypt_null", "disk": "plain"},
]


PLAYED = """
import sys
from pathlib import Path
from fde_meter_tally import TallySimulator
from instrumentation.tests.simulators.player import Player

Player(TallySimulator(), Path(sys.argv[1]), [float(sys.argv[2])]).run(lambda: False)
"""


@pytest.fixture(scope="module")
def installed(provisioned: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Provide the controller with both packages and the meter, and a target."""
    folder = tmp_path_factory.mktemp("packages")
    port = folder / "meter"
    meter = {
        **{"name": "tally0", "kind": "tally", "port": str(port), "origin": "modelled"},
        "channels": {"0": "system"},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{install(folder / 'site')}:{REPOSITORY}")
        controller = dataclasses.replace(provisioned, build=folder / "build")
        played = subprocess.Popen([sys.executable, "-c", PLAYED, str(port), str(POWER_W)])
        try:
            variables = {"fde_configurations": CONFIGURATIONS, "fde_meters": [meter]}
            assert controller.play("site.yml", **variables).returncode == 0
            yield controller
        finally:
            played.terminate()
            played.wait()
    assert provisioned.play("site.yml").returncode == 0  # as the tests after it find it


@pytest.fixture(scope="module")
def suite(installed: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("suites")
    options = ("--suite", "micro", "--blocks", "1", "--out", str(out))
    place = ("--target", str(installed.target), "--inventory", installed.inventory)
    names = [str(stack["name"]) for stack in CONFIGURATIONS]
    result = installed.python(
        "controller", "run", "--no-report", *options, *place, "--configurations", ",".join(names)
    )
    assert result.returncode == 0
    (folder,) = out.iterdir()
    return folder


def test_runs_of_the_installed_kind_are_proven(suite: Path) -> None:
    runs: list[dict[str, Any]] = [
        json.loads(path.read_text()) for path in suite.glob("runs/*/run.json")
    ]
    null = [run for run in runs if run["configuration"] == "null"]
    assert len(null) >= 6
    for run in null:
        assert (run["status"], run["proof"]["ok"]) == ("finished", True), run["void_reason"]
        assert run["proof"]["layers"][0]["cipher"] == "cipher_null-ecb"


def test_the_installed_meter_has_their_joules(installed: Any, suite: Path) -> None:
    result = installed.python("controller", "report", str(suite))
    assert result.returncode == 0
    assert "dm-crypt null" in (suite / "report.html").read_text(encoding="utf-8")
    energy = pl.read_parquet(suite / "energy.parquet")
    mine = energy.filter(source="tally0", component="system", phase="all", configuration="null")
    assert len(mine) >= 6
    error = mine["energy_j"] / (mine["duration_s"] * POWER_W) - 1
    assert error.abs().max() < 0.02
