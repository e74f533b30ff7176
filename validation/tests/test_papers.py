"""The papers' suites: their figures, and what counts as not done."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from analysis.published.claims import claims
from analysis.published.tables import claim_table
from analysis.stats.results import results
from analysis.suite.records import Suite
from analysis.suite.suite_folder import read
from controller.planning.suites import load_suite
from lab import devices
from validation import papers
from validation.bench import Figure
from validation.papers import Ran
from validation.synthetic.papers import write_papers_suite


def suite(root: Path, name: str, *runs: dict[str, Any]) -> Ran:
    """Return a suite's folder with these runs, all of them planned."""
    for number, run in enumerate(runs):
        folder = root / "runs" / f"{number:04d}{run.get('suffix', '')}"
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"phases": [], "left_out": [], **run}))
    planned = [run for run in runs if "suffix" not in run]
    (root / "plan.json").write_text(json.dumps({"runs": planned}))
    return Ran(name, root, 60.0, "")


def counted(suite_run: Ran) -> dict[str, tuple[float, bool | None]]:
    return {figure.figure: (figure.value, figure.meets) for figure in papers.counts(suite_run)}


def run(status: str, **fields: object) -> dict[str, Any]:
    return {"workload": "file_io", "status": status, **fields}


@pytest.mark.parametrize(
    ("second", "meets"),
    [
        (run("skipped"), True),
        (run("void"), False),
        (run("finished", suffix=".void-1"), True),  # an earlier attempt
    ],
)
def test_only_an_unfinished_run_misses_the_target(
    tmp_path: Path, second: dict[str, Any], meets: bool
) -> None:
    suite_run = suite(tmp_path, "paper", run("finished"), second)
    assert counted(suite_run)["paper: runs finished"] == (1, meets)


def test_a_part_left_out_twice_counts_once(tmp_path: Path) -> None:
    out = [{"what": "streebog", "reason": "none"}]
    suite_run = suite(
        tmp_path, "paper", run("finished", left_out=out), run("finished", left_out=out)
    )
    assert counted(suite_run)["paper: parts left out, with a reason"][0] == 1


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    folder = tmp_path_factory.mktemp("papers") / "suite"
    write_papers_suite(folder)
    return read(folder)


def shares(name: str, suite: Suite, own_cpu_s: float) -> list[Figure]:
    """Return the figures where the agent took so much of every phase."""
    runs = [
        replace(run, phases=tuple(replace(phase, own_cpu_s=own_cpu_s) for phase in run.phases))
        for run in suite.runs
    ]
    return papers.own_figures(name, replace(suite, runs=tuple(runs)))


def test_each_entry_has_our_share(synthetic: Suite) -> None:
    figures = shares("paper-2011", synthetic, 0.05)
    workloads = {run.workload for run in synthetic.runs if run.phases} - {"drift_check"}
    assert len(figures) == len(workloads) and all(figure.value > 0 for figure in figures)


def test_a_suite_that_came_to_no_end_is_not_verified(tmp_path: Path) -> None:
    broken = Ran("paper", suite(tmp_path, "paper").suite_dir, 1.0, "the run ended with 1")
    assert counted(broken)["paper: verified report"] == (0, False)
    rows = papers.rows([broken, Ran("paper", None, 1.0, "no plan")], 2.0)
    assert rows[-1]["figure"] == "suites with a verified report"
    assert (rows[-1]["value"], rows[-1]["meets"]) == (0, False)


def test_an_unknown_suite_is_refused_with_the_nearest_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        papers.main(["paper-201"])
    assert ended.value.code == 2
    assert "did you mean paper-2011?" in capsys.readouterr().err


def test_every_suite_of_a_claim_runs_but_the_one_with_a_closed_product() -> None:
    assert {claim.suite for claim in claims()} - set(papers.SUITES) == {"media-closed"}


@pytest.mark.parametrize("suite", papers.LABS["media", "media"])
def test_the_labs_media_are_those_that_its_suites_need(suite: str) -> None:
    assert set(load_suite(suite).disks or ()) <= set(devices.find("media").behaviours)


def test_each_claim_of_a_run_counts_once_by_its_verdict(tmp_path: Path) -> None:
    write_papers_suite(tmp_path / "suite")
    row = papers.lab_row(Ran("papers", tmp_path / "suite", 90.0, ""))
    claimed = claim_table(results(tmp_path / "suite"))
    assert row.agree + row.disagree + row.open + row.not_comparable == claimed["claim"].n_unique()
    assert (row.minutes, row.figures >= row.comparable > 0) == (1.5, True)


def test_a_row_replaces_the_suites_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(papers, "TABLE", tmp_path / "table.csv")
    counts = dict.fromkeys([field.name for field in fields(papers.LabRow)], 1)
    row = papers.LabRow(**{**counts, "suite": "media-blocks", "day": "2026-11-28"})  # type: ignore[arg-type]
    for recorded in (row, replace(row, suite="paper-2011"), replace(row, blocks=7)):
        papers.record(recorded)
    lines = papers.TABLE.read_text().splitlines()
    assert [line.split(",")[:2] for line in lines[1:]] == [
        ["paper-2011", "1"],
        ["media-blocks", "7"],
    ]
