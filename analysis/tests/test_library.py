"""The library and the notebook give the report's figures."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import jupytext
import numpy as np
import polars as pl
import pytest

import analysis
from analysis import Suite, library, rounding
from analysis.money import costs
from analysis.stats.results import Results
from analysis.tests.faulty_suite import FaultySuite
from analysis.tests.known import known
from analysis.tests.notebook_cells import SCRIPT, Cells, notebook_of
from contract.assumptions import Assumptions
from contract.places import ROOT
from contract.tests.refusal import Refusal, refuses
from validation.synthetic.suite import Options, write_suite


@pytest.fixture(scope="module")
def suite(derived: Results) -> Suite:
    return Suite(derived)


def test_its_examples_run(small_suite: Path) -> None:
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    outcome = doctest.testmod(library, extraglobs={"folder": small_suite}, optionflags=options)
    assert outcome.attempted > 15 and not outcome.failed


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
    table = suite.contrasts().rows(named=True)
    assert len(table) == len(suite.results.contrasts) > 0
    for row, contrast in zip(table, suite.results.contrasts, strict=True):
        expected = known(contrast.comparison)
        assert (row["ratio"], row["ratio_low"], row["ratio_high"]) == (
            expected.ratio,
            expected.low,
            expected.high,
        )
        assert (row["n"], row["verdict"]) == (expected.n, expected.verdict)
        assert row["level"] == expected.level


def test_payback_is_the_reports_and_moves_with_what_is_assumed(suite: Suite) -> None:
    expected = costs.paybacks(suite.results.suite, suite.energy)
    table = suite.payback().rows(named=True)
    assert [(p.workload, p.against) for p in expected] == [
        (r["workload"], r["against"]) for r in table
    ]
    for row, p in zip(table, expected, strict=True):
        assert row["saving_j"] == p.saving_j.mean
        assert row["net_present_value_high"] == p.net_present_value.high
        assert row["runs_low"] == (p.runs.low if p.runs else None)
    cheap = suite.payback(electricity_price_per_kwh=0.06, duty={"sql": 3.0})
    assert cheap["workload"][0] == "sql" and cheap["runs_per_day"][0] == 3.0
    moved = dict(cheap.select(pl.concat_str("workload", "against"), "runs").iter_rows())
    saving = [row for row in table if row["runs"] is not None]
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
    process = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert process.stdout in ("False\n", "None\n")


def test_features_of_the_processor_are_those_that_the_kernel_lists() -> None:
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    assert rounding._has(rounding._SSE4_2) == ("sse4_2" in flags)
    assert rounding._has(rounding._AVX2) == ("avx2" in flags)


@pytest.mark.parametrize(
    ("lacks", "output"), [("AVX2", "None 2.0\n"), ("SSE4_2", ""), ("", "Haswell 2.0\n")]
)
def test_what_crashes_on_an_old_processor_is_not_used(lacks: str, output: str) -> None:
    code = (
        "import os; from analysis import rounding as r; "
        f"r._has = lambda feature: feature != getattr(r, '_{lacks}', None); "
        "import numpy; print(os.environ.get('OPENBLAS_CORETYPE'), numpy.ones(2) @ numpy.ones(2))"
    )
    environ = {**os.environ, "OPENBLAS_CORETYPE": "Haswell"}
    command = [sys.executable, "-c", code]
    options: dict[str, Any] = {"capture_output": True, "text": True, "cwd": ROOT, "env": environ}
    process = subprocess.run(command, check=False, **options)
    assert process.stdout == output
    assert ("no SSE4.2" in process.stderr) == (process.returncode != 0) == (lacks == "SSE4_2")


@pytest.fixture(scope="module")
def cells(derived: Results) -> Cells:
    return notebook_of(derived.suite.folder)


def test_the_notebooks_figures_are_the_reports(derived: Results, cells: Cells) -> None:
    assert cells["costs"].equals(derived.summary.filter(component="system"))
    assert cells["payback"].equals(Suite(derived).payback())
    assert cells["energy"].equals(derived.measured_energy)
    shown = cells["by_phase"].filter(phase="all", configuration="opal")
    row = cells["costs"].filter(workload=cells["workload"], configuration="opal")
    assert shown["energy_j"].item() == pytest.approx(row["mean_j"].item())


def test_the_first_cell_prints_the_answer(
    small_suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = notebook_of(small_suite)["suite"]
    printed = capsys.readouterr().out
    answer = suite.answer
    assert printed.startswith(f"{suite.id}\n\n{answer}")
    assert all(word in answer for word in ("Cost:", "Payback:", "Trust:", "Next:"))


def test_each_section_is_a_question_with_a_line_to_change() -> None:
    cells = jupytext.read(SCRIPT)["cells"]
    heads = [i for i, cell in enumerate(cells) if cell["source"].startswith("## ")]
    assert len(heads) == 10
    for i in heads[:-1]:
        assert cells[i]["source"].partition("\n")[0].endswith("?")
        assert re.match(r"\w+(: .+)? = ", cells[i + 1]["source"])


def test_blocks_for_a_half_width_follow_from_the_interval(derived: Results, cells: Cells) -> None:
    row = cells["needed"].row(0, named=True)
    place = row["workload"], row["configuration"]
    c = {key[:2]: c for key, c in derived.family.versus.items() if key[3] == "system"}[place]
    half = 50 * float(np.log(known(c.high) / known(c.low)))
    assert row["half_width_percent"] == pytest.approx(half)
    assert row["blocks"] == max(2, np.ceil(c.n * half**2))


@pytest.mark.parametrize(
    "options",
    [
        Options(blocks=1, workloads=("sql", "idle"), configurations=("plain", "opal")),
        Options(blocks=2, workloads=("idle",), configurations=("opal", "dmcrypt-aes256")),
        Options(blocks=2, workloads=("idle",), origin="synthetic"),
    ],
    ids=["one block", "no baseline", "synthetic"],
)
def test_it_runs_on_whatever_suite_there_is(tmp_path: Path, options: Options) -> None:
    write_suite(tmp_path / "s", options)
    assert notebook_of(tmp_path / "s")["suite"].origin in ("modelled", options.origin)


@pytest.mark.parametrize(
    ("lost", "name", "value"), [("meters", "component", "package-0"), ("runs", "run_id", "")]
)
def test_it_runs_without_a_meter_and_without_runs(
    tmp_path: Path, small_suite: Path, lost: str, name: str, value: str
) -> None:
    shutil.copytree(small_suite, tmp_path / "s", ignore=shutil.ignore_patterns(lost))
    assert notebook_of(tmp_path / "s")[name] == value


def test_it_runs_on_faults_and_on_the_examples(night: FaultySuite) -> None:
    bundles = sorted((ROOT / "data" / "examples").glob("*.tar.gz"))
    for suite in (night.folder, *bundles):
        assert notebook_of(suite)["suite"].answer


@pytest.mark.parametrize(
    ("module", "on_path", "remedy"),
    [("fde_testbed", "", "`fde notebook`"), ("polars", str(SCRIPT.parents[1]), sys.executable)],
)
def test_without_a_module_it_says_what_to_do(
    module: str, on_path: str, remedy: str, tmp_path: Path
) -> None:
    shutil.copy(SCRIPT, tmp_path)
    (tmp_path / f"{module}.py").write_text(f"raise ModuleNotFoundError(name='{module}')")
    environment = {**os.environ, "PYTHONPATH": on_path}
    process = subprocess.run(
        [sys.executable, str(tmp_path / "notebook.py")],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=tmp_path,
    )
    assert process.returncode == 1 and process.stderr.count("\n") == 1
    assert module in process.stderr and remedy in process.stderr


def test_the_notebook_is_the_paired_script() -> None:
    script, notebook = (
        [(cell["cell_type"], cell["source"]) for cell in jupytext.read(path)["cells"]]
        for path in (SCRIPT, SCRIPT.with_suffix(".ipynb"))
    )
    assert script == notebook, "run: jupytext --to ipynb analysis/notebook.py"
    code = [source for kind, source in notebook if kind == "code" and source]
    assert len(code) >= 14 and notebook[-2][1].startswith("## Your question")
