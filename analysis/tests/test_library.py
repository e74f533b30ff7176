"""The library: its examples run, and its figures are the report's."""

from __future__ import annotations

import doctest
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import analysis
from analysis import Suite, library
from analysis.money import costs
from analysis.stats.results import Results
from analysis.tests.known import known
from contract.assumptions import Assumptions
from contract.places import ROOT
from contract.tests.refusal import Refusal, refuses
from validation.synthetic.suite import Options, write_suite


@pytest.fixture(scope="module")
def suite(derived: Results) -> Suite:
    return Suite(derived)


def test_its_examples_run(small_suite: Path) -> None:
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    done = doctest.testmod(library, extraglobs={"folder": small_suite}, optionflags=options)
    assert done.attempted > 15 and not done.failed


def test_every_stable_name_is_there() -> None:
    assert all(getattr(analysis, name) for name in analysis.__all__)
    with pytest.raises(AttributeError, match="nonesuch"):
        _ = analysis.nonesuch


def test_every_run_is_there_with_its_state(suite: Suite) -> None:
    records = suite.results.suite
    assert suite.runs.height == len(records.plan.runs) == len(records.runs)
    assert set(suite.runs["state"]) == {"finished"}
    assert suite.phases(suite.runs["run_id"][0])["phase"].to_list()[-1] == "tail"


def test_runs_that_do_not_count_say_why(tmp_path: Path) -> None:
    write_suite(tmp_path / "s", Options(blocks=2, workloads=("sql",)))
    next((tmp_path / "s" / "runs").iterdir()).joinpath("run.json").unlink()
    runs = Suite.open(tmp_path / "s").runs
    void = runs.filter(state="void")
    assert void.height == 1 and void["reason"].item() == "run.json is missing"
    with refuses("unknown-name", what="finished run"):
        Suite.open(tmp_path / "s").power(void["run_id"].item())


def test_power_is_what_the_joules_are_made_of(suite: Suite) -> None:
    """A mean over a phase's windows and the joules' own power differ by the cut windows alone."""
    run = suite.runs.filter(workload="video", configuration="plain")["run_id"][0]
    power, phases = suite.power(run, 2.0), suite.phases(run)
    start, end = phases.filter(phase="play").select("start_ns", "end_ns").row(0)
    assert power["start_s"].min() < -1  # type: ignore[operator]
    for component in ("system", "drive", "package-0"):
        inside = power.filter(
            pl.col("start_ns") > start, pl.col("end_ns") < end, component=component
        )
        weights = (inside["end_s"] - inside["start_s"]).to_numpy()
        expected = suite.energy.filter(run_id=run, phase="play", component=component)
        mean_w = np.average(inside["power_w"].to_numpy(), weights=weights)
        assert mean_w == pytest.approx(expected["power_w"].item(), rel=0.02)


def test_contrasts_are_the_reports(suite: Suite) -> None:
    made = suite.contrasts().rows(named=True)
    assert len(made) == len(suite.results.contrasts) > 0
    for row, contrast in zip(made, suite.results.contrasts, strict=True):
        expected = known(contrast.comparison)
        assert (row["ratio"], row["ratio_low"], row["ratio_high"]) == (
            expected.ratio,
            expected.low,
            expected.high,
        )
        assert (row["n"], row["verdict"]) == (expected.n, expected.verdict)
        assert row["p_adjusted"] == expected.p_adjusted


def test_payback_is_the_reports_and_moves_with_what_is_assumed(suite: Suite) -> None:
    expected = costs.paybacks(suite.results.suite, suite.energy)
    made = suite.payback().rows(named=True)
    assert [(p.workload, p.against) for p in expected] == [
        (r["workload"], r["against"]) for r in made
    ]
    for row, p in zip(made, expected, strict=True):
        assert row["saving_j"] == p.saving_j.mean
        assert row["net_present_value_high"] == p.net_present_value.high
        assert row["runs_low"] == (p.runs.low if p.runs else None)
    cheap = suite.payback(electricity_price_per_kwh=0.06, duty={"sql": 3.0})
    assert cheap["workload"][0] == "sql" and cheap["runs_per_day"][0] == 3.0
    moved = dict(cheap.select(pl.concat_str("workload", "against"), "runs").iter_rows())
    saving = [row for row in made if row["runs"] is not None]
    assert saving
    for row in saving:
        assert moved[row["workload"] + row["against"]] == pytest.approx(2 * row["runs"])
    assert suite.results.suite.assumptions == suite.assumptions  # nothing was changed
    assert suite.battery(battery_wh=10.0)["runs"][0] == pytest.approx(
        suite.battery()["runs"][0] / 5
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prize": 1.0}, refuses("unknown-name", what="assumption", name="prize")),
        ({"life_years": -1.0}, refuses("invalid-assumptions")),
        ({"sed_extra_price": "dear"}, refuses("invalid-assumptions")),
    ],
)
def test_an_assumption_that_cannot_be_is_refused(
    suite: Suite, changes: dict[str, object], message: Refusal
) -> None:
    with message:
        suite.payback(**changes)


def test_without_assumptions_they_may_be_given(tmp_path: Path) -> None:
    assert {f.name for f in fields(Assumptions)} >= {"sed_extra_price", "discount_rate"}
    write_suite(tmp_path / "s", Options(blocks=2, workloads=("sql",), configurations=("plain",)))
    suite = Suite.open(tmp_path / "s")
    assert suite.payback(life_years=3.0).is_empty()  # nothing to compare
    assert suite.contrasts()["n"].to_list() == [0, 0]  # declared, and of what the plan lacks


@pytest.mark.parametrize("first", ["", "import importlib.util as u; u.find_spec('numpy'); "])
def test_numpy_is_imported_with_the_same_rounding_everywhere(first: str) -> None:
    """Also where polars has asked for its spec before."""
    code = (
        f"import analysis.rounding; {first}import numpy; "
        "from numpy._core._multiarray_umath import __cpu_features__ as found; "
        "print(found.get('AVX512_SPR'))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout in ("False\n", "None\n")
