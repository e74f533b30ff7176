"""The table of a fleet: each group's own duty and prices, and sums over groups."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from analysis.money import fleet
from analysis.money.costs import profiles
from analysis.stats.results import Results
from analysis.suite.records import SuiteError

FLEET = """
groups:
  - {name: office, machines: 100, duty: {kernel_tree: 10}}
  - name: build
    machines: 20
    duty: {kernel_tree: 40, sql: 8}
    electricity_price_per_kwh: 0.3
    grid_g_co2_per_kwh: 400
"""


def rows(found: Results, tmp_path: Path, text: str) -> list[dict[str, str]]:
    described, out = tmp_path / "fleet.yml", tmp_path / "fleet.csv"
    described.write_text(text, encoding="utf-8")
    fleet.write(found.suite, found.energy, described, out)
    with out.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_groups_are_so_many_machines_and_the_total_is_their_sum(
    found: Results, tmp_path: Path
) -> None:
    told = rows(found, tmp_path, FLEET)
    software = [found.suite.label(name) for name in found.suite.software]
    assert [row["group"] for row in told] == [
        *("office" for _ in software),
        *("build" for _ in software),
        *("all" for _ in software),
    ]
    office, build, total = (row for row in told if row["against"] == software[0])
    assert total["machines"] == "120"
    for column in ("kwh_per_year", "saving_per_year_low", "net_present_value_high", "extra_price"):
        assert float(total[column]) == pytest.approx(float(office[column]) + float(build[column]))
    assert build["co2_kg_per_year"] and not office["co2_kg_per_year"]
    assert not total["co2_kg_per_year"], "not the half of it under the name of all"
    one = profiles(found.suite, found.energy)[0]
    per_run = one.kwh_per_year.mid / one.runs_per_day
    assert float(office["kwh_per_year"]) == pytest.approx(100 * 10 * per_run)
    assert float(build["saving_per_year"]) == pytest.approx(0.3 * float(build["kwh_per_year"]))
    assert {row["origin"] for row in told} == {"modelled"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "describes no fleet"),
        ("groups: []", "a name of its own"),
        ("groups: [{name: a, machines: 0}]", "describes no fleet"),
        ("groups: [{name: a, machines: 1}, {name: a, machines: 2}]", "a name of its own"),
        ("groups: [{name: all, machines: 1}]", "a name of its own"),
        ("groups: [{name: a, machines: 1, prize: 2}]", "assumptions that are none .prize."),
        ("groups: [{name: a, machines: 1, life_years: -1}]", "a value that cannot be"),
        ("groups: [{name: a, machines: 1, duty: {video_editing: 2}}]", "no payback for the duty"),
    ],
)
def test_what_is_no_fleet_is_refused(found: Results, tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SuiteError, match=words):
        rows(found, tmp_path, text)
