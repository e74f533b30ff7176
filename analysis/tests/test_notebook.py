"""The notebook says what the report says."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import jupytext
import polars as pl
import pytest

from analysis.money.costs import paybacks
from analysis.stats.results import Results

SCRIPT = Path(__file__).parents[1] / "notebook.py"


@pytest.fixture(scope="module")
def cells(found: Results) -> dict[str, Any]:
    """The names that its cells leave."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FDE_SUITE_DIR", str(found.suite.folder))
        return runpy.run_path(str(SCRIPT))


def rows(frame: pl.DataFrame, *columns: str) -> dict[tuple[str, ...], list[float]]:
    return {tuple(row[:2]): list(row[2:]) for row in frame.select(columns).iter_rows()}


def test_means_and_ratios_are_the_reports(found: Results, cells: dict[str, Any]) -> None:
    summary = found.summary.filter(component="system")
    names = ("workload", "configuration")
    for made, columns in (
        ("means", ("n", "mean_j", "ci_low_j", "ci_high_j")),
        ("ratios", ("n", "ratio", "ratio_low", "ratio_high")),
    ):
        told = rows(summary.filter(pl.col(columns[1]).is_not_null()), *names, *columns)
        own = rows(cells[made], *names, "n", "mean", "low", "high")
        assert own.keys() == told.keys() and own
        for key, values in own.items():
            assert values == pytest.approx(told[key], rel=1e-9)


def test_joules_by_phase_are_of_every_run(found: Results, cells: dict[str, Any]) -> None:
    made = cells["by_phase"].filter(workload="sql", configuration="opal", phase="all")
    runs = found.energy.filter(
        workload="sql", configuration="opal", phase="all", component="system"
    )
    assert made["runs"].item() == len(runs) > 1
    assert made["energy_j"].item() == pytest.approx(runs["energy_j"].mean())


def test_payback_is_the_reports(found: Results, cells: dict[str, Any]) -> None:
    told = {
        p.against: p.runs
        for p in paybacks(found.suite, found.energy)
        if p.workload == "kernel_tree" and p.demonstrated
    }
    made = {row["configuration"]: row for row in cells["payback"].iter_rows(named=True)}
    assert made.keys() == told.keys() and made
    for name, row in made.items():
        runs = told[name]
        assert runs is not None
        own = (row["runs"], row["runs_low"], row["runs_high"])
        assert own == pytest.approx((runs.mid, runs.low, runs.high), rel=1e-9)


def test_the_notebook_is_the_paired_script() -> None:
    script, notebook = (
        [(cell["cell_type"], cell["source"]) for cell in jupytext.read(path)["cells"]]
        for path in (SCRIPT, SCRIPT.with_suffix(".ipynb"))
    )
    assert script == notebook, "run: jupytext --to ipynb analysis/notebook.py"
