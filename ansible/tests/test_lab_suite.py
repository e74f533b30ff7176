"""A block of every workload on each kind of configuration through the real lab: plan to report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from analysis.tests.notebook_cells import notebook_of
from contract.files import sha256_of
from controller.session import seal
from instrumentation.sources.counter import SHORTER
from instrumentation.sources.standing import STANDS_STILL
from lab.state import Layout
from validation import closure

if TYPE_CHECKING:
    from conftest import LabHandle

pytestmark = pytest.mark.lab

CONFIGURATIONS = {"plain", "opal", "dmcrypt-aes256"}
LONG_S = 0.3
WORKLOADS = {"file_io", "kernel_tree", "kernel_grep", "sql", "video", "idle"}


def _runs(suite: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(suite.glob("runs/*/run.json"))]


def test_every_run_finished_and_was_proven(suite: Path) -> None:
    runs = _runs(suite)
    assert {(run["configuration"], run["workload"]) for run in runs} == {
        ("plain", "drift_check"),
        *((configuration, load) for configuration in CONFIGURATIONS for load in WORKLOADS),
    }
    assert len(runs) == 20
    for run in runs:
        assert run["status"] == "finished", (run["run_id"], run["void_reason"])
        assert run["proof"]["ok"] and not run["proof"]["mismatches"]
        assert run["origin"] == "modelled"


def test_the_proof_of_opal_names_its_segment_and_the_refused_read(suite: Path) -> None:
    proofs = [run["proof"] for run in _runs(suite) if run["configuration"] == "opal"]
    for proof in proofs:
        assert {segment["type"] for segment in proof["luks"]["segments"].values()} == {"hw-opal"}
        assert proof["opal"]["state_before"] == "locked"
    after = json.loads((suite / "provenance" / "after.json").read_text())
    (refused,) = after["locked_reads"].values()
    assert refused["error"] == "ENODATA"
    assert refused["link_before"] == refused["link_after"]
    ciphers = {
        run["configuration"]: run["proof"]["key_bits"]
        for run in _runs(suite)
        if run["configuration"].startswith("dmcrypt")
    }
    assert ciphers == {"dmcrypt-aes256": 256}


def test_every_run_has_joules_from_rapl_and_from_the_meter(suite: Path) -> None:
    energy = pl.read_parquet(suite / "energy.parquet").filter(pl.col("phase") == "all")
    assert set(energy["origin"]) == {"modelled"}
    meter = pl.col("source") != "rapl"
    for configuration in CONFIGURATIONS:
        for workload in WORKLOADS:
            mine = energy.filter(configuration=configuration, workload=workload)
            counted = mine.filter(~meter & (pl.col("component") == "package-0"))
            # A crowded host lets the modelled counter rest for longer than the shortest runs.
            rested = {SHORTER, STANDS_STILL} & set(counted["flags"][0].split())
            assert (counted["energy_j"][0] or 0) > 0 or rested
            for channel in ("system", "drive"):
                row = mine.filter(meter & (pl.col("component") == channel))
                assert row["energy_j"][0] > 0, (configuration, workload, channel)
                assert row["coverage"][0] > 0.9


def test_joules_close_with_what_the_meter_was_fed(suite: Path, lab: LabHandle) -> None:
    """On each machine alike; the limit is that of three samples in `make bench-metrology`."""
    phases = closure.phases(suite, Layout(lab.directory).truth)
    errors = [abs(phase.error_percent) for phase in phases if phase.duration_s >= LONG_S]
    assert len(errors) >= 10
    assert np.quantile(errors, 0.95) <= 2.0


def test_the_seal_holds_and_the_report_says_modelled(suite: Path) -> None:
    sums = json.loads((suite / seal.MANIFEST).read_text(encoding="utf-8"))["files"]
    assert {str(path.relative_to(suite)) for path in seal.files(suite)} == set(sums)
    assert all(sha256_of(suite / name) == digest for name, digest in sums.items())
    assert "modelled" in (suite / "report.html").read_text(encoding="utf-8")
    timing = json.loads((suite / "timing.json").read_text(encoding="utf-8"))
    assert 0 < timing["measuring_share"] < 1


def test_the_notebook_runs_on_a_suite_of_the_lab(suite: Path) -> None:
    cells = notebook_of(suite)
    assert cells["power"].height > 0 and cells["by_phase"].height > 0
