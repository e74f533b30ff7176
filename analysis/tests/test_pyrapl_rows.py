"""pyRAPL's figures of phases: rows and a column of their own, none where the counter wrapped."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from analysis.report import tables
from analysis.stats.results import Results, results
from contract.files import write_json
from validation.synthetic.suite import Options, write_suite


def _with_pyrapl(phase: dict[str, Any], wrapped: bool) -> None:
    """As the agent writes it beside its own counters; its figure is 1 % less, to be told apart."""
    for name in list(phase["counters"]):
        used = round((name["end"]["energy_uj"] - name["start"]["energy_uj"]) * 0.99)
        lost = wrapped and name["zone"] == "package-0"
        phase["counters"].append(
            {
                **name,
                "source": "pyrapl",
                "start": None if lost else {**name["start"], "energy_uj": 0},
                "end": None if lost else {**name["end"], "energy_uj": used},
                "max_range_uj": None,
                "flags": ["pyrapl-wrapped"] if lost else [],
            }
        )


@pytest.fixture(scope="module")
def derived(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("suite") / "s"
    write_suite(folder, Options(blocks=2, workloads=("sql",), counter_start_uj=0))
    for path in sorted(folder.glob("runs/*/run.json")):
        document = json.loads(path.read_text())
        for number, phase in enumerate(document["phases"]):
            wrapped = document["configuration"] == "opal" and number == 0
            _with_pyrapl(phase, wrapped)
        write_json(path, document)
    return results(folder)


def test_its_joules_stand_beside_ours_and_never_in_their_place(derived: Results) -> None:
    energy = derived.energy.filter(configuration="plain")
    counted = energy.filter(pl.col("phase") != "between", source="rapl")
    by_pyrapl = energy.filter(source="pyrapl")
    assert set(by_pyrapl["component"]) == {"pyrapl-package-0", "pyrapl-dram"}
    both = counted.with_columns((pl.lit("pyrapl-") + pl.col("component")).alias("component")).join(
        by_pyrapl, on=["run_id", "phase", "component"], validate="1:1"
    )
    assert len(both) == len(by_pyrapl) == len(counted)
    ratios = both["energy_j_right"] / both["energy_j"]
    assert ratios.to_list() == pytest.approx([0.99] * len(both), rel=1e-4)


def test_a_phase_that_wrapped_has_no_figure_nor_has_its_run(derived: Results) -> None:
    rows = derived.energy.filter(configuration="opal", component="pyrapl-package-0")
    lost = rows.filter(pl.col("energy_j").is_null())
    assert set(lost["phase"]) == {"create", "all"}
    assert all("pyrapl-wrapped" in flags for flags in lost["flags"])
    counted = derived.energy.filter(configuration="opal", component="package-0")
    assert counted["energy_j"].null_count() == 0


def test_the_headline_has_a_column_for_it(derived: Results) -> None:
    shown = tables.columns(derived.summary)
    assert shown[-2:] == ("pyrapl-package-0", "pyrapl-dram")
    table = tables.headline(derived)
    assert "CPU J (pyRAPL)" in table.headers
    assert all(len(row) == len(table.headers) for row in table.rows)


def test_a_meters_further_channels_have_columns(derived: Results) -> None:
    named = {"system": "system", "drive": "usb"}
    rows = derived.energy.filter(~pl.col("source").is_in(["rapl", "pyrapl"]))
    energy = rows.with_columns(pl.col("component").replace(named))
    renamed = Results(derived.suite, derived.clock, energy, ())
    shown = tables.columns(renamed.summary)
    assert shown[-1] == "usb" and "drive" in shown
    assert all(len(row) == len(shown) + 6 for row in tables.headline_rows(renamed, shown))
