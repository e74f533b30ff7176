"""The whole machine against its parts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from analysis.energy import run_checks
from analysis.energy.energy import energy_table
from analysis.energy.windows import DELAY_FLAG
from analysis.report.sections import Report
from analysis.report.trust_section import cross_checks
from analysis.stats.results import Results, flag_notes, reservations, results
from analysis.suite.clocks import TargetClock
from analysis.suite.suite_folder import read
from analysis.tests.known import replanned
from contract.documents import LockedRead, Proof
from controller.session.seal import mark_samples
from validation.synthetic.folder import dump, write_manifest
from validation.synthetic.suite import Truth


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


ONE = {"package-0": 8.0, "dram": 4.0}
SEVERAL = {
    **{"package-0": 4.0, "package-1": 3.0, "package": 7.0},
    **{"package-0/dram": 1.0, "package-1/dram": 1.0, "dram": 2.0},
    **{"package-1/core": 90.0, "psys": 90.0},
}


@pytest.mark.parametrize(("zones", "ratio"), [(ONE, 1.2), (SEVERAL, 0.9)])
def test_parts_are_added_and_held_against_the_whole(zones: dict[str, float], ratio: float) -> None:
    """Of several packages and memories their sums alone count."""
    of_zones = [("a", "rapl", zone, joules) for zone, joules in zones.items()]
    metered = [("a", "meter0", "system", 10.0), ("a", "meter0", "drive", 1.0)]
    other = [("b", source, zone, joules / 2) for _, source, zone, joules in of_zones]
    other += [("b", "meter0", "system", 10.0)]
    shares = run_checks.shares_of_parts(rows(*of_zones, *metered, *other))
    assert sorted(shares) == pytest.approx([ratio / 2, ratio])


def test_a_machine_without_a_dram_zone_is_said_to_have_none(derived: Results) -> None:
    energy = derived.energy.filter(pl.col("component") != "dram")
    for memory, case in ((True, derived), (False, replace(derived, all_energy=energy))):
        (row,) = (row for row in cross_checks(case) if row[1] == "whole system (meter)")
        assert ("no DRAM zone" in row[0]) != memory
        assert ("has no DRAM zone" in str(Report(case).workloads())) != memory


def test_without_a_meter_there_is_nothing_to_compare() -> None:
    assert run_checks.shares_of_parts(rows(("a", "rapl", "package-0", 4.0))) == []


def test_only_a_machine_proves_its_storage(derived: Results) -> None:
    suite = derived.suite
    count = len(suite.runs)
    assert run_checks.proof(suite, "measured").startswith(f"in {count} of them")
    unproven = replace(suite.runs[0], proof=Proof(ok=False))
    wrong = replace(suite, runs=(unproven, *suite.runs[1:]))
    assert run_checks.proof(wrong, "modelled").startswith(f"in {count - 1} of them")
    assert run_checks.proof(suite, "synthetic") == "there was no storage to prove"


@pytest.mark.parametrize(("after", "changed"), [("6.0 Gbps", False), ("3.0 Gbps", True)])
def test_a_link_that_a_refused_read_changed_is_told(
    derived: Results, after: str, changed: bool
) -> None:
    suite = derived.suite
    refused = {"S": LockedRead("ENODATA", "6.0 Gbps", after)}
    proof = run_checks.proof(replace(suite, locked_reads=refused), "measured")
    assert "S was locked and refused a read (ENODATA)" in proof
    assert ("changed its link" in proof) == changed


def test_records_that_contradict_their_limit_of_delay_are_flagged_and_widen(
    derived: Results,
) -> None:
    suite = replace(
        derived.suite,
        meters=tuple(replace(m, arrival_delay_limit_s=1e-5) for m in derived.suite.meters),
    )
    energy = energy_table(suite, derived.clock)
    metered, reference = (table.filter(source="meter0") for table in (energy, derived.energy))
    assert metered["flags"].str.contains(DELAY_FLAG).all()
    assert not reference["flags"].str.contains(DELAY_FLAG).any()
    (note,) = [note for note in flag_notes(energy) if note.code == DELAY_FLAG]
    assert note.facts["source"] == "meter0" and note.facts["flagged"] == note.facts["of"] > 0
    assert note.sentence in list(reservations(suite, energy, None))
    assert not [note for note in derived.flags if note.code == DELAY_FLAG]


def with_a_second_meter(folder: Path, ratio: float, without: Sequence[str]) -> None:
    """`meter1` beside `meter0`: as it, but by `ratio`, and away during some runs."""
    meter = shutil.copytree(folder / "meters" / "meter0", folder / "meters" / "meter1")
    described = json.loads((meter / "meter.json").read_text())
    dump(meter / "meter.json", {**described, "name": "meter1"})
    (meter / "stream.raw").unlink()
    samples = pl.read_parquet(meter / "samples.parquet")
    samples = samples.with_columns(pl.col("^power_w_.*$") * ratio)
    suite = read(folder)
    clock = TargetClock.fit(suite.clock)
    for run in (run for run in suite.runs if run.run_id in without):
        start, end = (
            clock.to_controller_ns(run.boot_id, t) for t in (run.t_start_ns, run.t_end_ns)
        )
        samples = samples.filter(~pl.col("t_mono_ns").is_between(start, end))
    samples.write_parquet(meter / "samples.parquet")
    mark_samples(folder)  # as if they had been decoded here
    write_manifest(folder)


def test_a_second_meter_of_a_channel_is_a_cross_check_and_in_no_mean(
    whole_suite: tuple[Path, Truth], derived: Results, tmp_path: Path
) -> None:
    folder = shutil.copytree(whole_suite[0], tmp_path / "s")
    with_a_second_meter(folder, 1.03, [run.run_id for run in derived.suite.runs[::7]])
    two_meters = results(folder)
    assert set(two_meters.all_energy["source"]) == {"rapl", "meter0", "meter1"}
    assert two_meters.energy.equals(derived.energy)
    assert two_meters.contrasts == derived.contrasts
    of_system = run_checks.two_meters(two_meters.suite, two_meters.all_energy)[0]
    assert (of_system.reference, of_system.other) == ("meter0", "meter1")
    assert of_system.ratio == pytest.approx(1.03, abs=1e-3)
    assert 0.8 * len(derived.suite.runs) < of_system.runs < len(derived.suite.runs)
    rows = [row for row in cross_checks(two_meters) if row[1] == "meter1"]
    assert rows[0][0] == "meter0, system: the reference"
    assert rows[0][2].startswith("+3.0 %")


def test_the_plan_says_which_meter_is_the_reference(derived: Results) -> None:
    meter = derived.suite.meters[0]
    meters = meter, replace(meter, name="better")
    suite = replace(derived.suite, meters=meters)
    assert suite.reference_meter("system") == "meter0"
    declared = replanned(suite, reference_meters={"system": "better"})
    assert declared.reference_meter("system") == "better"
    assert declared.reference_meter("drive") == "meter0"
    assert declared.reference_meter("gpu") is None
