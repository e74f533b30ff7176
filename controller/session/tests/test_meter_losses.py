"""Runs without enough records of a meter: found, and requested again from the agent."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent import requests
from analysis.stats import results
from contract import plan as plans
from contract.files import append_line
from contract.plan import Plan
from contract.tests.refusal import refuses
from controller.session import meter_losses, seal
from controller.session.agent_client import AgentClient
from controller.tests.examples import journal, plan, resolved, run_json, suite_folder
from controller.tests.standin import Standin
from instrumentation.clock import ClockReading

S = 10**9
PERIOD_S = 0.1
OFFSET_NS = 1000 * S  # of the target's clock


def record(suite_dir: Path, folder: str, boot: str, ends_s: Sequence[float]) -> None:
    """Write a decoded recording whose records end at these times of the controller."""
    times = np.array(ends_s)
    table = pl.DataFrame(
        {
            "epoch": np.ones(len(times), np.int32),
            "t_mono_ns": (times * 1e9).astype(np.int64),
            "t_device_us": np.round(times * 1e6).astype(np.int64),
            "window_s": np.full(len(times), PERIOD_S),
            "power_w_system": np.full(len(times), 20.0),
        }
    )
    place = suite_dir / "meters" / folder
    place.mkdir(parents=True)
    table.write_parquet(place / "samples.parquet")
    described = {
        **{"format": "fde-meter/2", "name": folder.partition(".")[0], "controller_boot_id": boot},
        **{"kind": "smartpower3", "port": "pty", "origin": "modelled", "settings": {}},
        **{"channels": {"0": "system"}, "timing": "device", "arrival_delay_limit_s": 0.002},
        "accuracy": {},
    }
    (place / "meter.json").write_text(json.dumps(described), encoding="utf-8")
    seal.mark_samples(suite_dir)


def compare_clocks(suite_dir: Path, controller_boot: str, at_s: float, boot: str = "b") -> None:
    t_ns = int(at_s * S)
    reading = ClockReading(t_ns, t_ns + OFFSET_NS, t_ns, boot, controller_boot)
    append_line(suite_dir / "clock.jsonl", asdict(reading))


def record_all(suite_dir: Path, *lost: tuple[float, float], meter: str = "m") -> None:
    """Record a meter over all runs, except in the given spans."""
    record(suite_dir, meter, "c", every(span_s(suite_dir), *lost))


def every(until_s: float, *lost: tuple[float, float]) -> list[float]:
    """Return the times of records outside the given spans."""
    times = np.arange(1, round(until_s / PERIOD_S) + 1) * PERIOD_S
    for start_s, end_s in lost:
        times = times[(times <= start_s + 1e-9) | (times > end_s + 1e-9)]
    return [float(t) for t in times]


@pytest.fixture
def suite_dir(tmp_path: Path) -> Path:
    """Make a suite of three blocks."""
    return finished_suite(tmp_path / "suite")


def finished_suite(folder: Path, **changes: Any) -> Path:
    """Make a suite of finished runs with a phase of 8 s; run n begins at 10 n s."""
    document = plan(**{"attempts": 3, **changes})
    lines = [(0.0, "suite-started", "")]
    for number, run in enumerate(document["runs"]):
        start_ns = 10 * number * S + OFFSET_NS
        busy = {"t_start_ns": start_ns + S, "t_end_ns": start_ns + 9 * S}
        phases = [
            # Nothing works, so that a power that never changes is no fault of the meter.
            {"name": "busy", **busy, "cpu_busy_s": 0.0},
            {"name": "tail", "t_start_ns": start_ns + 9 * S, "t_end_ns": start_ns + 999 * S},
        ]
        place = folder / "runs" / run["run_id"]
        place.mkdir(parents=True)
        times = {"t_start_ns": start_ns, "t_end_ns": start_ns + 999 * S, "phases": phases}
        (place / "run.json").write_text(json.dumps(run_json(document, run, **times)))
        lines.append((10.0 * number + 9, "finished", run["run_id"]))
    compare_clocks(folder, "c", 0)
    return suite_folder(folder, document, journal([*lines, (999.0, "suite-finished", "")]))


def the_plan(suite_dir: Path) -> Plan:
    return plans.load(suite_dir / "plan.json")


def span_s(suite_dir: Path) -> float:
    return 10.0 * len(the_plan(suite_dir).runs)


def review(suite_dir: Path, *meters: str) -> meter_losses.Review:
    return meter_losses.review(the_plan(suite_dir), suite_dir, meters or ("m",))


def numbers(suite_dir: Path, uncovered: Sequence[meter_losses.Uncovered]) -> list[int]:
    order = [run.run_id for run in the_plan(suite_dir).runs]
    return [order.index(run.finished.run_id) for run in uncovered]


def test_a_meter_with_constant_power_causes_no_repetition(suite_dir: Path) -> None:
    record_all(suite_dir)
    for path in suite_dir.glob("runs/*/run.json"):
        path.write_text(path.read_text("utf-8").replace('"cpu_busy_s": 0.0', '"cpu_busy_s": 8.0'))
    energy = results.energy_of(suite_dir)
    assert energy.filter(source="m")["energy_j"].null_count() == len(energy.filter(source="m"))
    assert review(suite_dir) == meter_losses.Review((), (), ())


def test_a_gap_repeats_only_its_run(suite_dir: Path) -> None:
    record_all(suite_dir)
    holes = ((12.0, 12.3), (25.0, 25.1), (39.1, 40.9))  # 3.8 %, 1.3 %, and between two runs
    record_all(suite_dir, *holes, meter="n")
    uncovered = review(suite_dir, "m", "n")
    assert numbers(suite_dir, uncovered.repeat) == [1]
    assert uncovered.repeat[0].reason == "n recorded 96% of a phase, 98% are needed"
    assert "1 run asked for again" in uncovered.sentences()[0]


def test_recordings_of_two_boots_add_up(suite_dir: Path) -> None:
    """The second boot's clock began again; the run in which the first boot died is repeated."""
    record(suite_dir, "m", "c", every(25.0))
    shift_s = 27.0
    shift_ns = int(shift_s * S) + OFFSET_NS
    reading = ClockReading(5 * S, shift_ns + 5 * S, 5 * S, "b", "d")
    append_line(suite_dir / "clock.jsonl", asdict(reading))
    record(suite_dir, "m.2", "d", every(span_s(suite_dir) - shift_s))
    assert numbers(suite_dir, review(suite_dir).repeat) == [2]


def test_without_clock_readings_every_run_is_uncovered(suite_dir: Path) -> None:
    (suite_dir / "clock.jsonl").unlink()
    compare_clocks(suite_dir, "c", 0, boot="another boot of the target")
    record_all(suite_dir)
    uncovered = review(suite_dir)
    assert len(uncovered.repeat) == len(the_plan(suite_dir).runs)
    assert "and 15 more" in uncovered.sentences()[0]


def test_a_run_after_its_last_attempt_stays_uncovered(tmp_path: Path) -> None:
    suite_dir = finished_suite(tmp_path / "suite", attempts=1)
    record_all(suite_dir, (12.0, 14.0))
    uncovered = review(suite_dir)
    assert not uncovered.repeat
    assert numbers(suite_dir, uncovered.uncovered) == [1]
    assert "after all tries" in uncovered.sentences()[0]


def test_a_run_without_a_last_line_is_void(suite_dir: Path) -> None:
    lines = (suite_dir / "journal.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (suite_dir / "journal.jsonl").write_text("".join(lines[:-2]), encoding="utf-8")
    record_all(suite_dir)
    assert review(suite_dir).void == (the_plan(suite_dir).runs[-1].run_id,)


def test_damaged_records_are_refused(suite_dir: Path) -> None:
    record_all(suite_dir)
    (suite_dir / "meters" / "m" / "samples.parquet").unlink()
    with refuses("meters-unread"):
        review(suite_dir)
    run_id = the_plan(suite_dir).runs[0].run_id
    (suite_dir / "runs" / run_id / "run.json").write_text("{", encoding="utf-8")
    with refuses("run-unusable"):
        review(suite_dir)


def test_a_meter_without_records_covers_no_run(suite_dir: Path) -> None:
    record_all(suite_dir)
    uncovered = review(suite_dir, "m", "n")
    assert {(run.meter, run.share) for run in uncovered.repeat} == {("n", 0.0)}
    assert len(uncovered.repeat) == len(the_plan(suite_dir).runs)


def test_repetitions_are_requested_once_from_the_agent(
    suite_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_all(suite_dir, (12.0, 14.0))
    standin = Standin(tmp_path / "there", monkeypatch)
    suite_id = the_plan(suite_dir).suite_id
    suite_dir.rename(standin.suites / suite_id)
    suite_dir = standin.suites / suite_id
    losses, notes = review(suite_dir), list[str]()
    for _ in range(2):  # asked twice is asked once
        meter_losses.ask(AgentClient(resolved(), suite_id), losses, notes.append)
    requested = requests.read(suite_dir)
    assert [(r.run_id, r.seq, r.reason) for r in requested] == [
        (r.finished.run_id, r.finished.seq, r.reason) for r in losses.repeat
    ]
    standin.unplug()
    with refuses("no-route"):
        meter_losses.ask(AgentClient(resolved(), suite_id), losses, notes.append)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(1, 595), st.integers(1, 40)), max_size=6))
def test_repeated_runs_are_those_the_analysis_cannot_use(gaps: list[tuple[int, int]]) -> None:
    """Both are the runs in which more than 2 % of the records are missing."""
    lost = {number for first, count in gaps for number in range(first, first + count)}
    recorded = [number for number in range(1, 601) if number not in lost]
    with tempfile.TemporaryDirectory() as folder:
        suite_dir = finished_suite(Path(folder) / "suite", blocks=1)
        record(suite_dir, "m", "c", [number * PERIOD_S for number in recorded])
        asked = numbers(suite_dir, review(suite_dir).repeat)
        energy = results.energy_of(suite_dir)
        order = [run.run_id for run in the_plan(suite_dir).runs]
    assert asked == [
        n for n in range(6) if len(lost & {*range(100 * n + 11, 100 * n + 91)}) > 0.02 * 80
    ]
    assert asked == sorted(order.index(run_id) for run_id in results.uncovered(energy))
    accepted = energy.filter(~pl.col("run_id").is_in([order[n] for n in asked]))
    assert accepted.filter(pl.col("phase") == "busy")["energy_j"].to_list() == pytest.approx(
        [160.0] * (6 - len(asked))
    )
