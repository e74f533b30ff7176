"""Watermarks of a whole suite against its clock link: agreement, disagreement, and neither."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from analysis.energy.watermarks import (
    AGREES,
    CANNOT_TELL,
    DISAGREES,
    Fit,
    agreement,
    delays_s,
    disagreements,
    watermarks,
)
from analysis.suite.clocks import TargetClock
from analysis.suite.manifest import check
from analysis.suite.records import Meter, Suite
from analysis.suite.samples import NOTHING, of_table
from analysis.suite.suite_folder import read
from analysis.tests.known import plan_of
from contract import schema
from contract.documents import WatermarkLine
from contract.plan import Watermark as Watermarks
from contract.plan import digest
from instrumentation.clock import ClockReading
from instrumentation.watermark import CHIPS
from validation.synthetic.tables import suite_of

Line = dict[str, Any]
BOOT = "boot-1"
CHIP_S, PAD_S = 0.205, 0.5
PERIOD_S = 0.01
TARGET_OFFSET_S = 5000.0
STARTS_S = {"start": 20.0, "end": 620.0}


def line(when: str, start_s: float = 0.0, boot: str = BOOT, **more: Any) -> Line:
    """Return what the target wrote down; `start_s` on the controller's clock."""
    edges = (start_s or STARTS_S[when]) + np.flatnonzero(np.diff([0, *CHIPS, 0])) * CHIP_S
    return {
        "boot_id": boot,
        "when": when,
        "chip_s": CHIP_S,
        "pad_s": PAD_S,
        "cpus": 4,
        "spread_ns": 400_000,
        "edges": [
            [round((t + TARGET_OFFSET_S) * 1e9), 1 - n % 2] for n, t in enumerate(edges.tolist())
        ],
        **more,
    }


def meter(lines: Sequence[Line], swing_w: float = 20.0, delay_s: float = 0.0) -> Meter:
    """Return readings around the lines' edges: `system` swings with the load, `drive` does not."""
    generator = np.random.default_rng(3)
    parts = []
    for mark in lines:
        edges = np.array([t for t, _ in mark["edges"]]) / 1e9 - TARGET_OFFSET_S
        end = np.arange(edges[0] - 6, edges[-1] + 6, PERIOD_S) + 0.0031
        loads = edges.reshape(-1, 2)
        overlap = np.minimum(end, loads[:, 1:]) - np.maximum(end - PERIOD_S, loads[:, :1])
        parts.append((end, np.clip(overlap, 0, None).sum(axis=0) / PERIOD_S))
    end, share = (np.concatenate(column) for column in zip(*parts, strict=True))
    late = delay_s + generator.uniform(0.001, 0.002, len(end))
    table = pl.DataFrame(
        {
            "epoch": np.ones(len(end), np.int32),
            "t_mono_ns": np.rint((end + late) * 1e9).astype(np.int64),
            "t_device_us": np.rint(end * 1e6).astype(np.int64),
            "window_s": np.full(len(end), PERIOD_S),
            "power_w_drive": 3 + generator.normal(0, 0.1, len(end)),
            "power_w_system": 40 + swing_w * share + generator.normal(0, 0.1, len(end)),
        }
    )
    return Meter(
        name="meter0",
        kind="smartpower3",
        origin="modelled",
        own_names=("1", "0"),
        channels=("drive", "system"),
        terms=(),
        timing="device",
        arrival_delay_limit_s=0.005,
        samples=of_table(table),
    )


def suite(lines: Sequence[Line], *meters: Meter, **plan: Any) -> Suite:
    """Return a suite whose watermark.jsonl has these lines."""
    return replace(
        suite_of({}, ()),
        folder=Path("s"),
        plan=plan_of(**{"watermark": Watermarks(CHIP_S, PAD_S), **plan}),
        meters=meters,
        watermarks=tuple(schema.read(WatermarkLine, line) for line in lines),
    )


def clock(wrong_s: float = 0.0, boots: Sequence[str] = (BOOT,)) -> TargetClock:
    """Round trips of 1 ms every 30 s."""
    return TargetClock.fit(
        ClockReading(
            round(t * 1e9),
            round((t + 0.0005 + TARGET_OFFSET_S + wrong_s) * 1e9),
            round((t + 0.001) * 1e9),
            boot,
        )
        for boot in boots
        for t in range(0, 900, 30)
    )


LINES = (line("start"), line("end"))


def test_both_ways_agree() -> None:
    fitted, end = watermarks(suite(LINES, meter(LINES)), clock())
    assert fitted.verdict == end.verdict == AGREES
    assert (fitted.number, fitted.source, fitted.component) == (1, "meter0", "system")
    assert fitted.fit.offset_ms == pytest.approx(1, abs=0.5)
    low_ms, high_ms = map(float, re.findall(r"allow (.+) to (.+) ms", fitted.sentence)[0])
    # Half a round trip of 1 ms, and what the rate of a clock may wander between two of them.
    assert -0.7 < low_ms < -0.4
    assert 0.5 < high_ms <= 5.7
    assert "the clocks allow" in fitted.sentence
    assert [*disagreements([fitted, end], {"meter0"})] == []


@pytest.mark.parametrize("wrong_s", [-0.02, 0.02])
def test_a_wrong_clock_link_is_flagged(wrong_s: float) -> None:
    fits = watermarks(suite(LINES, meter(LINES)), clock(wrong_s))
    assert [trust.verdict for trust in fits] == [DISAGREES] * 2
    flag, _ = disagreements(fits, set())
    assert "meter0" in flag and "disagree" in flag


def test_a_meter_later_than_its_limit_is_flagged() -> None:
    fits = watermarks(suite(LINES, meter(LINES, delay_s=0.02)), clock())
    assert [trust.verdict for trust in fits] == [DISAGREES] * 2


def test_a_clock_link_that_drifts_away_is_flagged_by_the_second_watermark() -> None:
    late = line("end", STARTS_S["end"] + 0.03)
    fits = watermarks(suite((LINES[0], late), meter(LINES)), clock())
    assert [trust.verdict for trust in fits] == [AGREES, DISAGREES]


def test_the_children_s_spread_is_part_of_the_bound() -> None:
    apart = tuple({**mark, "spread_ns": 40_000_000} for mark in LINES)
    sure, _ = watermarks(suite(LINES, meter(LINES)), clock())
    doubtful, _ = watermarks(suite(apart, meter(LINES)), clock())
    assert doubtful.fit.bound_ms == pytest.approx(sure.fit.bound_ms + 19.8, abs=0.01)


def test_windows_that_are_not_as_declared_are_said_and_known_by_their_delay() -> None:
    """Means over three windows of 10 ms, which come a window later in the mean."""
    sound = meter(LINES)
    table = pl.concat(sound.samples.tables(sound.samples.columns)).with_columns(
        pl.col("power_w_system").rolling_mean(3, min_samples=1)
    )
    slow = replace(sound, samples=of_table(table))
    assert delays_s(watermarks(suite(LINES, sound), clock()), "meter0") == {}
    trust, _ = watermarks(suite(LINES, slow), clock())
    assert delays_s([trust], "meter0") == {"system": pytest.approx(0.01, abs=0.002)}
    (sentence,) = disagreements([trust], {"meter0"})
    over_s, told_s = map(float, re.findall(r"([0-9.]+) s(?:,| by)", sentence))
    assert [over_s, told_s] == pytest.approx([0.03, 0.01], abs=0.001)
    assert trust.verdict == AGREES and not [*disagreements([trust], set())]


def test_no_swing_gives_no_verdict() -> None:
    fitted, _ = watermarks(suite(LINES, meter(LINES, swing_w=0)), clock())
    assert fitted.verdict == CANNOT_TELL
    assert "no watermark seen" in fitted.sentence
    assert [*disagreements([fitted], {"meter0"})] == []


def test_each_watermark_is_fitted_separately_also_of_another_boot() -> None:
    broken_off = line("start", 20.0)
    again = (line("start", 120.0), line("end", 220.0))
    rebooted = line("start", 420.0, boot="boot-2")
    lines = (broken_off, *again, rebooted)
    fits = watermarks(suite(lines, meter(lines)), clock(boots=(BOOT, "boot-2")))
    assert [trust.number for trust in fits] == [1, 2, 3, 4]
    assert [trust.verdict for trust in fits] == [AGREES] * 4


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((), "the target left none"),
        (({**line("start"), "error": "no process"},), "played: no process"),
        (({"when": "start", "boot_id": BOOT},), "not whole"),
        ((line("start") | {"edges": []},), "not whole"),
        ((line("start", boot="another"),), "nothing of that boot"),
        ((line("start", 5000.0),), "no readings of that time"),
    ],
)
def test_what_cannot_be_told_is_said(lines: tuple[Line, ...], message: str) -> None:
    fitted, *_ = watermarks(suite(lines, meter(LINES)), clock())
    assert fitted.verdict == CANNOT_TELL
    assert message in fitted.sentence


def test_a_meter_without_readings_is_said() -> None:
    empty = replace(meter(LINES), samples=NOTHING)
    lines, _ = watermarks(suite(LINES, empty), clock())
    assert lines.verdict == CANNOT_TELL and "has no readings" in lines.sentence


def test_a_plan_without_watermarks_asks_for_none() -> None:
    assert watermarks(suite((), meter(LINES), watermark=None), clock()) == []
    assert watermarks(suite(LINES), clock()) == []


@pytest.mark.parametrize(
    ("offset_ms", "bound_ms", "verdict"),
    [
        (3.0, 1.0, AGREES),
        (-1.9, 1.0, AGREES),
        (-2.1, 1.0, DISAGREES),
        (22.9, 1.0, AGREES),
        (23.1, 1.0, DISAGREES),
        (10.0, 200.0, CANNOT_TELL),
        (900.0, 200.0, DISAGREES),
    ],
)
def test_intervals_that_meet_agree(offset_ms: float, bound_ms: float, verdict: str) -> None:
    fitted = Fit(offset_ms=offset_ms, bound_ms=bound_ms)
    assert agreement(fitted, -1.0, 22.0)[0] == verdict


def test_a_file_that_no_seal_covers_is_told(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": "fde-manifest/1", "files": {}}')
    (tmp_path / "watermark.jsonl").write_text(json.dumps(LINES[0]) + "\n")
    assert check(tmp_path).problems == ("watermark.jsonl was added after sealing.",)


def test_lines_of_a_folder_are_read_and_damage_is_told(tmp_path: Path) -> None:
    names = dict.fromkeys(("suite_id", "suite", "host"), "s")
    plan: Line = {"format": "fde-plan/3", "origin": "modelled", **names}
    plan["sha256"] = digest(plan)
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tmp_path / "watermark.jsonl").write_text(json.dumps(LINES[0]) + '\n{"when": "e')
    lines = read(tmp_path)
    assert lines.watermarks == (schema.read(WatermarkLine, LINES[0]),)
    assert any("watermark.jsonl" in problem for problem in lines.problems)
