"""The library and the notebook give the report's figures."""

from __future__ import annotations

import doctest
import json
import os
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import jupytext
import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import pytest

import analysis
from analysis import Suite, library
from analysis.money import costs
from analysis.stats.results import Results, results
from analysis.stats.summary import estimate_of, groups_of
from analysis.tests.faulty_suite import FaultySuite
from analysis.tests.known import known
from analysis.tests.notebook_cells import SCRIPT, Cells, notebook_of
from analysis.tests.pages import change_plan
from contract.assumptions import Assumptions
from contract.places import ROOT
from contract.tests.refusal import Refusal, refuses
from validation.synthetic.folder import RANGE_UJ
from validation.synthetic.suite import ASSUMPTIONS, SLOWER, Options, write_suite


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


@pytest.fixture(scope="module")
def cells(derived: Results) -> Cells:
    return notebook_of(derived.suite.folder)


def rows(frame: pl.DataFrame, *columns: str) -> dict[tuple[str, ...], list[float]]:
    return {tuple(row[:2]): list(row[2:]) for row in frame.select(columns).iter_rows()}


def test_intervals_are_students_of_the_blocks(derived: Results, cells: Cells) -> None:
    limits = rows(cells["means"], "workload", "configuration", "low", "high")
    for key, group in groups_of(derived.suite, derived.energy).items():
        if key[3] == "system":
            mean = known(estimate_of(group.energy_j))
            assert limits.pop(key[:2]) == pytest.approx([mean.low, mean.high], rel=1e-9)
    assert not limits


def test_nothing_differs_from_the_report(cells: Cells) -> None:
    compared = ("rapl", "means", "ratios", "payback", "battery")
    assert cells["differing"] == dict.fromkeys(compared, 0)


def test_a_comparison_sees_what_differs(cells: Cells) -> None:
    means = cells["means"].select("workload", "configuration", "mean", "low")
    keys = ("workload", "configuration")
    assert cells["compare"]("", means, means, *keys) == 0
    assert cells["compare"]("", means.with_columns(pl.col("low") * 1.0001), means, *keys) == 24
    assert cells["compare"]("", means.head(20), means, *keys) == 4


def test_joules_by_overlap_are_nearly_the_reports(derived: Results, cells: Cells) -> None:
    """The report corrects the windows at the edges as well."""
    expected = derived.energy.filter(run_id=cells["run_id"], component="system")
    by_phase = dict(expected.select("phase", "energy_j").iter_rows())
    overlap = cells["by_overlap"]
    assert overlap.height > 2
    for phase, share_j, covered_s in overlap.iter_rows():
        assert share_j == pytest.approx(by_phase[phase], rel=0.05) and covered_s > 0


def test_joules_by_phase_are_of_every_run(derived: Results, cells: Cells) -> None:
    phases = cells["by_phase"].filter(workload="sql", configuration="opal", phase="all")
    runs = derived.energy.filter(
        workload="sql", configuration="opal", phase="all", component="system"
    )
    assert phases["runs"].item() == len(runs) > 1
    assert phases["energy_j"].item() == pytest.approx(runs["energy_j"].mean())


def test_a_slider_moves_the_payback(cells: Cells) -> None:
    before = cells["payback_table"]["runs"].to_list()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plt, "show", lambda: plt.close("all"))
        cells["sliders"]["price"].value = 50.0  # twice what the plan assumes
    assert [row["runs"] for row in cells["shown"]] == pytest.approx([2 * runs for runs in before])


def test_without_widgets_the_picture_of_the_plan_is_there(
    small_suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    cells = notebook_of(small_suite)
    assert "Sliders need ipywidgets" in capsys.readouterr().out
    assert cells["sliders"] == {} and cells["shown"] == cells["payback_table"].rows(named=True)


@pytest.mark.parametrize(
    "options",
    [
        Options(blocks=1, workloads=("sql", "idle"), configurations=("plain", "opal")),
        Options(blocks=2, workloads=("idle",), configurations=("opal", "dmcrypt-aes256")),
    ],
    ids=["one block", "no baseline"],
)
def test_it_runs_on_whatever_suite_there_is(tmp_path: Path, options: Options) -> None:
    write_suite(tmp_path / "s", options)
    assert set(notebook_of(tmp_path / "s")["differing"].values()) == {0}


@pytest.mark.parametrize(
    ("lost", "name", "value"), [("meters", "component", "package-0"), ("runs", "run_id", "")]
)
def test_it_runs_without_a_meter_and_without_runs(
    tmp_path: Path, small_suite: Path, lost: str, name: str, value: str
) -> None:
    shutil.copytree(small_suite, tmp_path / "s", ignore=shutil.ignore_patterns(lost))
    cells = notebook_of(tmp_path / "s")
    assert cells[name] == value and set(cells["differing"].values()) == {0}


def test_it_runs_on_faults_and_on_a_suite_that_may_be_looked_at_any_time(
    tmp_path: Path, small_suite: Path, night: FaultySuite
) -> None:
    shutil.copytree(small_suite, tmp_path / "s")
    change_plan(tmp_path / "s", analysis={"margin": 0.02, "looks": "any"})
    for folder in (tmp_path / "s", night.folder):
        assert set(notebook_of(folder)["differing"].values()) == {0}


def test_a_counter_that_starts_again_in_a_phase_is_counted_through(tmp_path: Path) -> None:
    options = Options(blocks=1, workloads=("sql",), counter_start_uj=RANGE_UJ - 20_000_000)
    write_suite(tmp_path / "s", options)
    cells = notebook_of(tmp_path / "s")
    assert (cells["edges_of_counters"]["end_uj"] < cells["edges_of_counters"]["start_uj"]).any()
    assert set(cells["differing"].values()) == {0}


def test_phases_too_short_for_their_counter_are_left_out(tmp_path: Path, small_suite: Path) -> None:
    """Their report has no joules for them, and the notebook none to compare."""
    shutil.copytree(small_suite, tmp_path / "s")
    for file in (tmp_path / "s" / "runs").glob("*/run.json"):
        run = json.loads(file.read_text(encoding="utf-8"))
        for phase in run["phases"]:
            for counter in phase["counters"] or ():
                counter["update_ns"] = 10**13
        file.write_text(json.dumps(run), encoding="utf-8")
    cells = notebook_of(tmp_path / "s")
    assert cells["by_counter"].height > 0
    assert set(cells["differing"].values()) == {0}


def test_a_machine_that_idles_afterwards_and_two_disks_are_counted_as_the_report_does(
    tmp_path: Path,
) -> None:
    names = ("plain", "sed-unlocked", "opal", "dmcrypt-aes256")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ASSUMPTIONS, "after_work", "idle")
        slower = {**SLOWER, "sed-unlocked": 1.05}
        options = Options(workloads=("sql", "idle"), configurations=names, slower=slower)
        write_suite(tmp_path / "s", options)
    derived = results(tmp_path / "s")
    computed = costs.paybacks(derived.suite, derived.energy)[0]
    assert computed.after_work == "idle"
    assert known(costs.between_disks(derived.suite, "opal", "dmcrypt-aes256"))
    cells = notebook_of(tmp_path / "s")
    assert set(cells["differing"].values()) == {0}


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
    assert len(code) >= 26 and notebook[-2][1].startswith("## Your question")
