"""The whole machine against its parts."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from analysis.energy import trust
from analysis.energy.energy import energy_table
from analysis.energy.windows import DELAY_FLAG
from analysis.report.sections import Report
from analysis.report.trust_section import twice
from analysis.stats.results import Results, reservations


def rows(*values: tuple[str, str, str, float], flags: str = "") -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "run_id": run_id,
                "phase": "all",
                "source": source,
                "component": component,
                "origin": "measured",
                "energy_j": energy_j,
                "flags": flags,
            }
            for run_id, source, component, energy_j in values
        ]
    )


def test_parts_are_added_and_held_against_the_whole() -> None:
    found = trust.whole(
        rows(
            ("a", "rapl", "package-0", 8.0),
            ("a", "rapl", "dram", 4.0),
            ("a", "meter0", "system", 10.0),
            ("a", "meter0", "drive", 1.0),
            ("b", "rapl", "package-0", 5.0),
            ("b", "meter0", "system", 10.0),
        )
    )
    assert (found.runs, found.exceeding, found.modelled) == (2, 1, False)
    assert found.worst_ratio == pytest.approx(1.2)


def test_several_packages_and_memories_count_by_their_sums_alone() -> None:
    found = trust.whole(
        rows(
            ("a", "rapl", "package-0", 4.0),
            ("a", "rapl", "package-1", 3.0),
            ("a", "rapl", "package", 7.0),
            ("a", "rapl", "package-0/dram", 1.0),
            ("a", "rapl", "package-1/dram", 1.0),
            ("a", "rapl", "dram", 2.0),
            ("a", "rapl", "package-1/core", 90.0),
            ("a", "rapl", "psys", 90.0),
            ("a", "meter0", "system", 10.0),
        )
    )
    assert (found.exceeding, found.memory) == (0, True)
    assert found.worst_ratio == pytest.approx(0.9)


def test_a_machine_without_a_dram_zone_is_said_to_have_none(
    found: Results,
) -> None:
    energy, summary = (
        frame.filter(pl.col("component") != "dram") for frame in (found.energy, found.summary)
    )
    assert not trust.whole(energy).memory
    for memory, one in ((True, found), (False, replace(found, energy=energy, summary=summary))):
        (row,) = (row for row in twice(one) if row[1] == "whole system (meter)")
        assert ("no DRAM zone" in row[0]) != memory
        assert ("has no DRAM zone" in str(Report(one).figures())) != memory


def test_without_a_meter_there_is_nothing_to_compare() -> None:
    assert trust.whole(rows(("a", "rapl", "package-0", 4.0))).runs == 0


def test_only_a_machine_proves_its_storage(found: Results) -> None:
    suite = found.suite
    count = len(suite.runs)
    assert trust.proof(suite, "measured").endswith(f"in {count} of them")
    unproven = replace(suite.runs[0], proof={"ok": False})
    wrong = replace(suite, runs=(unproven, *suite.runs[1:]))
    assert trust.proof(wrong, "modelled").endswith(f"in {count - 1} of them")
    assert trust.proof(suite, "synthetic") == "there was no storage to prove"


@pytest.mark.parametrize(("after", "changed"), [("6.0 Gbps", False), ("3.0 Gbps", True)])
def test_a_link_that_a_refused_read_changed_is_told(
    found: Results, after: str, changed: bool
) -> None:
    suite = found.suite
    refused = {"S": {"error": "ENODATA", "link_before": "6.0 Gbps", "link_after": after}}
    said = trust.proof(replace(suite, after={"locked_reads": refused}), "measured")
    assert "S refused a read (ENODATA)" in said
    assert ("changed its link" in said) == changed


def test_records_that_contradict_their_limit_of_delay_are_flagged_and_widen(found: Results) -> None:
    suite = replace(
        found.suite,
        meters=tuple(replace(m, arrival_delay_limit_s=1e-5) for m in found.suite.meters),
    )
    energy = energy_table(suite, found.clock)
    metered, known = (
        table.filter(pl.col("source") == "meter0") for table in (energy, found.energy)
    )
    assert metered["flags"].str.contains(DELAY_FLAG).all()
    assert not known["flags"].str.contains(DELAY_FLAG).any()
    assert [said for said in reservations(suite, energy, None) if said.startswith("meter0: ")]
    assert not [said for said in found.reservations if said.startswith("meter0: ")]
