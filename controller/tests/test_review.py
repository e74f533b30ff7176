"""What a meter has not seen is found, and asked for again with the agent's own command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import tries
from contract import plan as plans
from contract.errors import ControllerError
from contract.plan import Plan
from controller import review
from controller.agent_client import AgentClient
from controller.review import Recording
from controller.tests.examples import journal, plan, target
from controller.tests.standin import Standin
from instrumentation.clock import ClockReading, append_reading

S = 10**9
PERIOD_S = 0.01
LATE_NS = 2_000_000
OFFSET_NS = 1000 * S  # of the target's clock


def samples(times_s: Sequence[float], *, device: bool = True, late_s: float = 0.0) -> pl.DataFrame:
    """Records that end at these times of the controller, each come `late_s` later."""
    times = np.array(times_s)
    device_us = np.round(times * 1e6).astype(np.int64)
    return pl.DataFrame(
        {
            "epoch": np.ones(len(times), np.int32),
            "t_mono_ns": ((times + late_s) * 1e9).astype(np.int64),
            "t_device_us": device_us if device else [None] * len(times),
            "window_s": np.full(len(times), PERIOD_S),
        },
        schema_overrides={"t_device_us": pl.Int64},
    )


def record(suite_dir: Path, folder: str, boot: str, table: pl.DataFrame) -> None:
    """A decoded recording."""
    place = suite_dir / "meters" / folder
    place.mkdir(parents=True)
    table.write_parquet(place / "samples.parquet")
    described = {
        "name": folder.partition(".")[0],
        "controller_boot_id": boot,
        "arrival_delay_limit_s": LATE_NS / S,
    }
    (place / "meter.json").write_text(json.dumps(described), encoding="utf-8")


def compare_clocks(suite_dir: Path, controller_boot: str, at_s: float, boot: str = "b") -> None:
    there = int(at_s * S)
    append_reading(
        suite_dir / "clock.jsonl",
        ClockReading(there, there + OFFSET_NS, there, boot, controller_boot),
    )


def every(period_s: float, until_s: float, *lost: tuple[float, float]) -> list[float]:
    """Times of records but for those lost in between."""
    times = np.arange(1, round(until_s / period_s) + 1) * period_s
    for start_s, end_s in lost:
        times = times[(times <= start_s + 1e-9) | (times > end_s + 1e-9)]
    return [float(t) for t in times]


@pytest.fixture
def suite_dir(tmp_path: Path) -> Path:
    """Every run finished, each with a phase of 8 s; run n is at 10 n s of the controller."""
    folder = tmp_path / "suite"
    document = plan(attempts=3)
    lines = [(0.0, "suite-started", "")]
    for number, run in enumerate(document["runs"]):
        start_ns = 10 * number * S + OFFSET_NS
        phases = [
            {"name": "busy", "t_start_ns": start_ns + S, "t_end_ns": start_ns + 9 * S},
            {"name": "tail", "t_start_ns": start_ns + 9 * S, "t_end_ns": start_ns + 999 * S},
        ]
        place = folder / "runs" / run["run_id"]
        place.mkdir(parents=True)
        found = json.dumps({"boot_id": "b", "phases": phases})
        (place / "run.json").write_text(found, encoding="utf-8")
        lines.append((10.0 * number + 9, "finished", run["run_id"]))
    (folder / "plan.json").write_text(json.dumps(document), encoding="utf-8")
    entries = journal([*lines, (999.0, "suite-finished", "")])
    text = "".join(json.dumps(asdict(entry)) + "\n" for entry in entries)
    (folder / "journal.jsonl").write_text(text, encoding="utf-8")
    return folder


def the_plan(suite_dir: Path) -> Plan:
    return plans.load(suite_dir / "plan.json")


def span_s(suite_dir: Path) -> float:
    return 10.0 * len(the_plan(suite_dir).runs)


def judged(suite_dir: Path, *meters: str) -> review.Review:
    return review.review(the_plan(suite_dir), suite_dir, meters or ("m",))


def numbers(suite_dir: Path, found: Sequence[review.Uncovered]) -> list[int]:
    order = [run.run_id for run in the_plan(suite_dir).runs]
    return [order.index(run.finished.run_id) for run in found]


def test_what_every_meter_has_seen_is_left_alone(suite_dir: Path) -> None:
    compare_clocks(suite_dir, "c", 0)
    for name in ("m", "n"):
        record(suite_dir, name, "c", samples(every(PERIOD_S, span_s(suite_dir))))
    assert judged(suite_dir, "m", "n") == review.Review((), (), ())


def test_a_hole_is_found_in_its_run_alone(suite_dir: Path) -> None:
    compare_clocks(suite_dir, "c", 0)
    record(suite_dir, "m", "c", samples(every(PERIOD_S, span_s(suite_dir))))
    holes = ((12.0, 12.3), (25.0, 25.1), (39.1, 40.9))  # 3.8 %, 1.3 %, and between two runs
    record(suite_dir, "n", "c", samples(every(PERIOD_S, span_s(suite_dir), *holes)))
    found = judged(suite_dir, "m", "n")
    assert numbers(suite_dir, found.repeat) == [1]
    assert found.repeat[0].reason == "n recorded 96% of a phase, 98% are needed"
    assert "1 run asked for again" in found.sentences()[0]


def test_a_recording_that_ends_early_lacks_all_that_follows(suite_dir: Path) -> None:
    compare_clocks(suite_dir, "c", 0)
    record(suite_dir, "m", "c", samples(every(PERIOD_S, 35.0)))
    runs = len(the_plan(suite_dir).runs)
    assert numbers(suite_dir, judged(suite_dir).repeat) == list(range(3, runs))


def test_two_boots_of_the_controller_add_up(suite_dir: Path) -> None:
    """The second boot's clock began anew; the run in which the first one died is asked for."""
    compare_clocks(suite_dir, "c", 0)
    record(suite_dir, "m", "c", samples(every(PERIOD_S, 25.0)))
    shift_s = 27.0
    there = int(shift_s * S) + OFFSET_NS
    append_reading(suite_dir / "clock.jsonl", ClockReading(5 * S, there + 5 * S, 5 * S, "b", "d"))
    record(suite_dir, "m.2", "d", samples(every(PERIOD_S, span_s(suite_dir) - shift_s)))
    assert numbers(suite_dir, judged(suite_dir).repeat) == [2]


def test_without_a_comparison_of_clocks_nothing_is_known_to_be_seen(suite_dir: Path) -> None:
    compare_clocks(suite_dir, "c", 0, boot="another boot of the target")
    record(suite_dir, "m", "c", samples(every(PERIOD_S, span_s(suite_dir))))
    found = judged(suite_dir)
    assert len(found.repeat) == len(the_plan(suite_dir).runs)
    assert "and 15 more" in found.sentences()[0]


def test_a_run_without_a_try_left_stays_and_is_said(suite_dir: Path) -> None:
    compare_clocks(suite_dir, "c", 0)
    record(suite_dir, "m", "c", samples(every(PERIOD_S, span_s(suite_dir), (12.0, 14.0))))
    document = {k: v for k, v in plan(attempts=1).items() if k != "sha256"}
    (suite_dir / "plan.json").write_text(json.dumps(plans.freeze(document)), encoding="utf-8")
    found = judged(suite_dir)
    assert not found.repeat
    assert numbers(suite_dir, found.uncovered) == [1]
    assert "after all tries" in found.sentences()[0]


def test_void_runs_are_told(suite_dir: Path) -> None:
    lines = (suite_dir / "journal.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (suite_dir / "journal.jsonl").write_text("".join(lines[:-2]), encoding="utf-8")
    compare_clocks(suite_dir, "c", 0)
    record(suite_dir, "m", "c", samples(every(PERIOD_S, span_s(suite_dir))))
    assert judged(suite_dir).void == (the_plan(suite_dir).runs[-1].run_id,)


def test_damage_is_said(suite_dir: Path) -> None:
    run_id = the_plan(suite_dir).runs[0].run_id
    (suite_dir / "runs" / run_id / "run.json").write_text("{", encoding="utf-8")
    with pytest.raises(ControllerError, match="fetch the results again"):
        judged(suite_dir)


def test_the_agents_own_command_takes_the_request(
    suite_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare_clocks(suite_dir, "c", 0)
    record(suite_dir, "m", "c", samples(every(PERIOD_S, span_s(suite_dir), (12.0, 14.0))))
    standin = Standin(tmp_path / "there", monkeypatch)
    suite_id = the_plan(suite_dir).suite_id
    suite_dir.rename(standin.suites / suite_id)
    suite_dir = standin.suites / suite_id
    found, told = judged(suite_dir), list[str]()
    for _ in range(2):  # asked twice is asked once
        review.ask(AgentClient(target(), suite_id), found, told.append)
    wanted: list[Any] = tries.read(suite_dir)
    assert [(r.run_id, r.seq, r.reason) for r in wanted] == [
        (r.finished.run_id, r.finished.seq, r.reason) for r in found.repeat
    ]
    standin.unplug()
    with pytest.raises(ControllerError, match="cannot be reached"):
        review.ask(AgentClient(target(), suite_id), found, told.append)


@given(
    st.lists(st.booleans(), min_size=2, max_size=300),
    st.sampled_from([0.0, 0.001, 0.5]),
)
def test_the_share_is_that_of_the_records_that_came(came: list[bool], late_s: float) -> None:
    """With the meter's own time each lost record counts, however late the others come."""
    kept = [n for n, there in enumerate(came, start=1) if there]
    if len(kept) < 2:
        return
    table = samples([n * PERIOD_S for n in kept], late_s=late_s)
    first, last = (int(t) for t in (table["t_mono_ns"][0], table["t_mono_ns"][-1]))
    first -= int(PERIOD_S * S)
    records = round((last - first) / (PERIOD_S * S))
    recording = _read(table)
    assert recording.covered(first, last) == pytest.approx(len(kept) / records, abs=1e-6)
    assert recording.covered(last, last + S) == pytest.approx(0, abs=1e-6)
    assert recording.covered(first - S, first) == pytest.approx(0, abs=1e-6)


def _read(table: pl.DataFrame) -> Recording:
    from controller.review import _holes

    return Recording("m", "c", _holes(table, LATE_NS))


def test_a_meter_without_a_time_of_its_own_may_be_late() -> None:
    times = np.array(every(PERIOD_S, 10.0))
    jitter = np.random.default_rng(1).uniform(0, LATE_NS / S, len(times))
    table = samples(every(PERIOD_S, 10.0), device=False).with_columns(
        t_mono_ns=((times + jitter) * 1e9).astype(np.int64)
    )
    assert _read(table).covered(S, 9 * S) == 1
    lost = table.filter((pl.col("t_mono_ns") < 3 * S) | (pl.col("t_mono_ns") > 5 * S))
    assert _read(lost).covered(S, 9 * S) == pytest.approx(0.75, abs=0.01)
