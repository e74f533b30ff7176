"""A suite whose machines were started again has the joules that it would have had without."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from analysis.report import provenance
from analysis.report.figures import timeline
from analysis.report.verification import verify
from analysis.stats.results import Results, results, write
from analysis.suite.controller_boots import shifts
from analysis.suite.recordings import read as recordings
from analysis.suite.suite_folder import read
from analysis.tests.pages import Shared
from analysis.tests.reboots import (
    FIRST,
    SECOND,
    reboot_controller,
    reboot_target,
    suspend_controller,
)
from instrumentation.clock import ClockReading
from validation.synthetic.folder import Clocks, clock_lines, write_lines, write_manifest
from validation.synthetic.suite import Options, Truth, write_suite

SMALL = Options(blocks=2, configurations=("plain", "opal"), workloads=("kernel_tree", "sql"))


Clocked = tuple[Path, Truth]  # a suite's folder, and its truth
WHOLE = (pl.col("component") == "system") & (pl.col("phase") == "all")


def errors(derived: Results, truth: Truth) -> dict[str, float]:
    """By run: how far its system's joules are off, as a share."""
    rows = derived.energy.filter(component="system", phase="all")
    return {
        row["run_id"]: abs(
            (row["energy_j"] or 0.0) / truth.energy_j[row["run_id"], "all", "system"] - 1
        )
        for row in rows.iter_rows(named=True)
    }


def between(truth: Truth, number: int) -> float:
    """Return a moment of the controller before the run of that number, while the machine rests."""
    starts = sorted(start for start, _ in truth.runs.values())
    return starts[number] - 0.3


@pytest.fixture
def clocked(shared: Shared, tmp_path: Path) -> Clocked:
    """Return a small suite with a burst of clock readings a second, which a test may change."""

    def make(folder: Path) -> Truth:
        truth = write_suite(folder, SMALL)
        end_s = max(end for _, end in truth.runs.values())
        lines = clock_lines(end_s + 2, Clocks(), np.random.default_rng(3), bursts=round(end_s))
        write_lines(folder / "clock.jsonl", lines)
        write_manifest(folder)
        return truth

    folder, truth = shared("clocked", make)
    return shutil.copytree(folder, tmp_path / "s"), truth


def test_the_controller_started_again_while_the_target_stayed_up(clocked: Clocked) -> None:
    folder, truth = clocked
    plain = results(folder).energy
    at_s = between(truth, 4)
    reboot_controller(folder, at_s)
    derived = results(folder)
    assert derived.suite.controller_boots == 2
    assert [meter.name for meter in derived.suite.meters] == ["meter0"]
    assert max(errors(derived, truth).values()) < 4e-3
    joined = derived.energy.filter(phase="all").join(
        plain, on=["run_id", "phase", "source", "component"], validate="1:1"
    )
    assert len(joined) == 8 * 4
    off = (joined["energy_j"] / joined["energy_j_right"] - 1).abs()
    assert off.to_numpy().max() < 2e-3  # the same bytes: only the fits differ
    assert derived.suite.problems == ()
    text = provenance.sentence(derived.incidents)
    assert "1 reboot of the controller" in text
    assert "silent" not in text  # how far two boots are apart need not be known


@pytest.mark.parametrize("journalled", [True, False])
def test_the_controller_slept_in_one_boot(clocked: Clocked, journalled: bool) -> None:
    """Its clock stood still for two runs, which nobody metered; all others stand in their place."""
    folder, truth = clocked
    at_s = between(truth, 3)
    suspend_controller(folder, at_s, between(truth, 5) - at_s, journalled)
    derived = results(folder)
    assert (derived.suite.controller_boots, derived.suite.controller_sleeps) == (1, 1)
    assert "1 suspension of the controller" in provenance.sentence(derived.incidents)
    order = sorted(truth.runs, key=lambda name: truth.runs[name])
    rows = derived.energy.filter(WHOLE).sort("run_id")
    coverage = dict(rows.select("run_id", "coverage").iter_rows())
    assert max(coverage[run_id] for run_id in order[3:5]) < 0.3
    off = errors(derived, truth)
    complete = [run_id for run_id in order if coverage[run_id] == 1]
    assert len(complete) >= len(order) - 4
    assert max(off[run_id] for run_id in complete) < 4e-3


def test_the_target_lost_power_while_the_controller_stayed_up(clocked: Clocked) -> None:
    folder, truth = clocked
    reboot_target(folder, between(truth, 3))
    derived = results(folder)
    assert len(derived.clock.models) == 2
    assert max(errors(derived, truth).values()) < 4e-3


@pytest.mark.parametrize("target_first", [True, False])
def test_both_were_started_again(clocked: Clocked, target_first: bool) -> None:
    folder, truth = clocked
    target_s, controller_s = between(truth, 3), between(truth, 5)
    if not target_first:
        target_s, controller_s = controller_s, target_s
    reboot_target(folder, target_s)
    reboot_controller(folder, controller_s)
    derived = results(folder)
    assert max(errors(derived, truth).values()) < 4e-3


@pytest.mark.parametrize(
    ("wall", "hours"),
    [
        (None, False),
        (("2026-01-01T00:00:00+00:00", "2026-01-01T03:00:00+00:00"), True),
        (("2026-01-01T00:00:00+00:00", "2025-12-31T23:00:00+00:00"), False),  # stepped back
        (("", "yesterday"), False),
    ],
    ids=["no wall time", "wall time", "wall time stepped back", "no time at all"],
)
def test_nothing_links_the_two_boots_but_wall_time(
    clocked: Clocked, wall: tuple[str, str] | None, hours: bool
) -> None:
    """Both lost power at the same time, so that no boot of the target saw both."""
    folder, truth = clocked
    at_s = between(truth, 4)
    reboot_target(folder, at_s)
    reboot_controller(folder, at_s, wall=wall)
    derived = results(folder)
    assert max(errors(derived, truth).values()) < 4e-3
    starts = sorted(
        derived.clock.to_controller_ns(r.boot_id, r.t_start_ns) or 0 for r in derived.suite.runs
    )
    longest_s = float(np.diff(starts).max()) / 1e9
    assert longest_s == pytest.approx(3 * 3600 if hours else 60, rel=0.2)


def test_runs_that_went_while_the_controller_was_away_get_no_samples_of_its_next_boot(
    clocked: Clocked,
) -> None:
    """The target worked on alone and then lost power: its last runs lie behind all records."""
    folder, truth = clocked
    at_s = between(truth, 5)
    reboot_target(folder, at_s)
    reboot_controller(folder, between(truth, 3), away_s=at_s - between(truth, 3))
    derived = results(folder)
    order = [run_id for run_id, _ in sorted(truth.runs.items(), key=lambda item: item[1])]
    rows = derived.energy.filter(WHOLE & pl.col("run_id").is_in(order[3:5]))
    unseen = {row["run_id"]: row for row in rows.iter_rows(named=True)}
    assert [row["energy_j"] for row in unseen.values()] == [None, None]
    assert {row["coverage"] for row in unseen.values()} == {0.0}
    off = errors(derived, truth)
    assert max(off[run_id] for run_id in order if run_id not in unseen) < 4e-3


def test_a_phase_across_the_break_is_filled_over_its_true_length(clocked: Clocked) -> None:
    folder, truth = clocked
    run_id = sorted(truth.runs, key=lambda name: truth.runs[name])[4]
    phase = "tar" if "kernel_tree" in run_id else "query"
    begin, end = truth.phases_s[run_id, phase]
    reboot_controller(folder, begin + (end - begin) / 3, away_s=(end - begin) / 3)
    derived = results(folder)
    (row,) = derived.energy.filter(run_id=run_id, phase=phase, component="system").iter_rows(
        named=True
    )
    assert row["flags"] == "gap-filled"
    assert row["coverage"] == pytest.approx(2 / 3, abs=0.1)
    assert row["energy_j"] == pytest.approx(truth.energy_j[run_id, phase, "system"], rel=0.03)


def test_two_recordings_are_verified_and_drawn(clocked: Clocked) -> None:
    folder, truth = clocked
    reboot_controller(folder, between(truth, 4))
    write(results(folder))
    assert verify(folder).problems == ()
    suite = read(folder)
    clock = results(folder).clock
    run = suite.runs[5]
    assert "drive" in [name for name, _, _ in timeline.curves(suite, run, clock)]  # the meter's
    start = clock.to_controller_ns(run.boot_id, run.t_start_ns)
    end = clock.to_controller_ns(run.boot_id, run.t_end_ns)
    assert start is not None and end is not None
    near = suite.meters[0].samples.during(start, end)
    assert near.records == pytest.approx((end - start) / 50e6, abs=12)
    with (folder / "meters" / "meter0.2" / "stream.raw").open("ab") as stream:
        stream.write(b"\0")
    assert any("meter0.2/stream.raw was changed" in problem for problem in verify(folder).problems)


def test_a_meter_whose_own_name_has_a_number_is_no_second_recording(clocked: Clocked) -> None:
    folder, _ = clocked
    meter = folder / "meters" / "meter0"
    described = json.loads((meter / "meter.json").read_text())
    for name in ("rig", "rig.2"):
        place = folder / "meters" / name
        place.mkdir()
        for file in ("stream.raw", "samples.parquet"):
            (place / file).write_bytes((meter / file).read_bytes())
        (place / "meter.json").write_text(json.dumps({**described, "name": name}))
    names = {(recording.name, recording.number) for recording in recordings(folder, False, [])}
    assert names == {("meter0", 1), ("rig", 1), ("rig.2", 1)}
    assert [meter.name for meter in read(folder).meters] == ["meter0", "rig", "rig.2"]


def test_a_recording_of_another_kind_of_meter_is_left_out_and_told(clocked: Clocked) -> None:
    folder, truth = clocked
    reboot_controller(folder, between(truth, 4))
    path = folder / "meters" / "meter0.2" / "meter.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "timing": "poll"}))
    write_manifest(folder)
    suite = read(folder)
    assert any("recording 2 is left out" in problem for problem in suite.problems)
    assert suite.meters[0].samples.records < 2000


def test_an_older_suite_without_the_controllers_boot_reads_as_before(clocked: Clocked) -> None:
    folder, truth = clocked
    path = folder / "meters" / "meter0" / "meter.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "controller_boot_id": FIRST}))
    write_manifest(folder)
    suite = read(folder)
    assert suite.controller_boots == 1
    assert {reading.controller_boot_id for reading in suite.clock} == {FIRST}
    assert max(errors(results(folder), truth).values()) < 4e-3


def test_lines_without_a_boot_belong_to_the_first(clocked: Clocked) -> None:
    """A suite that an older version began and this one continued with."""
    folder, truth = clocked
    reboot_controller(folder, between(truth, 4))
    path = folder / "clock.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["controller_boot_id"] == FIRST:
            del line["controller_boot_id"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"t_send_ns": "torn"}\n')
    write_manifest(folder)
    suite = read(folder)
    assert {reading.controller_boot_id for reading in suite.clock} == {FIRST, SECOND}
    assert max(errors(results(folder), truth).values()) < 4e-3


def reading(at_s: float, target: str, boot: str) -> ClockReading:
    sent = round(at_s * 1e9)
    return ClockReading(sent, sent, sent + 1000, target, boot)


def test_the_next_boot_begins_behind_all_runs_of_the_last_one() -> None:
    """Also behind those that went long after the controller's last reading."""
    lines = [reading(t, "a", FIRST) for t in (0, 10)] + [reading(t, "b", SECOND) for t in (7, 20)]
    second = 10**9
    moves = shifts(lines, [], {"a": (second, 500 * second), "b": (2 * second, 30 * second)})
    assert moves[FIRST] == 0
    assert moves[SECOND] + 2 * second == pytest.approx(560 * second, abs=second / 100)


def test_three_boots_come_in_the_order_in_which_they_wrote() -> None:
    lines = [reading(0, "a", "x"), reading(0, "b", "y"), reading(0, "c", "z")]
    assert list(shifts(lines, [], {})) == ["x", "y", "z"]
    moved = shifts(lines, [], {})
    assert moved["x"] < moved["y"] < moved["z"]
