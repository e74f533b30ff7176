"""Load watermarks: the fit of one, and what those of a suite show."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.energy.energy import energy_table
from analysis.energy.watermarks import (
    AGREES,
    CANNOT_TELL,
    DISAGREES,
    Fit,
    Readings,
    Watermark,
    WatermarkTrust,
    agreement,
    delays_s,
    disagreements,
    fit,
    watermarks,
)
from analysis.stats.results import Results, stood_still
from analysis.suite.clocks import Floats, TargetClock
from analysis.suite.records import Meter, Suite
from analysis.suite.samples import NOTHING, of_table
from analysis.suite.suite_folder import read
from analysis.tests.known import plan_of
from contract import schema
from contract.documents import WatermarkLine
from contract.plan import Watermark as Watermarks
from contract.plan import digest
from instrumentation.clock import ClockReading
from instrumentation.sources.standing import IGNORES_LOAD
from instrumentation.watermark import CHIPS, chip_s, pad_s
from validation.synthetic.tables import suite_of

STEP_S = 0.0005
START_S = 20.0


@dataclass
class Scene:
    """A meter whose windows end `offset_ms` late."""

    period_s: float = 0.1
    window_s: float = 0.1
    offset_ms: float = 0.0
    swing_w: float = 20.0
    noise_w: float = 0.05
    fall_s: float = 0.0
    filter_s: float = 0.0
    seed: int = 1

    def mark(self) -> Watermark:
        chip = chip_s(self.period_s)
        edges = START_S + np.flatnonzero(np.diff([0, *CHIPS, 0])) * chip
        return Watermark(
            tuple(round(t * 1e9) for t in edges),
            tuple(1 - n % 2 for n in range(len(edges))),
            chip,
            pad_s(self.period_s),
        )

    def readings(self) -> Readings:
        generator = np.random.default_rng(self.seed)
        mark = self.mark()
        begin_s = mark.t_ns[0] / 1e9 - 8 - self.window_s
        fine_s = np.arange(begin_s, mark.t_ns[-1] / 1e9 + 8, STEP_S)
        load = self._load(fine_s, np.array(mark.t_ns) / 1e9)
        energy = np.concatenate([[0.0], np.cumsum(load) * STEP_S])
        first_s = begin_s + self.window_s + generator.uniform(0, self.period_s)
        end_s = np.arange(first_s, fine_s[-1], self.period_s)
        edges_s = np.append(fine_s, fine_s[-1] + STEP_S)
        until = np.interp(end_s, edges_s, energy)
        since = np.interp(end_s - self.window_s, edges_s, energy)
        power_w = 40 + self.swing_w * (until - since) / self.window_s
        power_w += generator.normal(0, self.noise_w, len(power_w))
        end_ns = np.rint(end_s * 1e9 + self.offset_ms * 1e6).astype(np.int64)
        return Readings(end_ns, np.full(len(end_ns), self.period_s), power_w)

    def _load(self, fine_s: Floats, edges_s: Floats) -> Floats:
        load = np.zeros(len(fine_s))
        for rise, fall in edges_s.reshape(-1, 2):
            load[(fine_s >= rise) & (fine_s < fall + self.fall_s)] = 1
        if self.filter_s:
            kernel = np.exp(-np.arange(0, 8 * self.filter_s, STEP_S) / self.filter_s)
            load = np.convolve(load, kernel / kernel.sum())[: len(load)]
        return load

    def fit(self) -> Fit:
        return fit(self.readings(), self.mark())


def only(readings: Readings, selected: np.ndarray) -> Readings:
    """Return the selected readings."""
    return Readings(
        readings.end_ns[selected], readings.width_s[selected], readings.power_w[selected]
    )


@settings(max_examples=15)
@given(
    st.floats(-300, 300),
    st.floats(2, 50),
    st.sampled_from([0.05, 0.1, 0.5, 1.0]),
    st.integers(0, 1000),
)
def test_offset_and_window_are_recovered(
    offset_ms: float, swing_w: float, period_s: float, seed: int
) -> None:
    scene = Scene(
        period_s=period_s,
        window_s=period_s,
        offset_ms=offset_ms,
        swing_w=swing_w,
        noise_w=swing_w / 100,
        seed=seed,
    )
    fitted = scene.fit()
    assert not fitted.problem
    # The bound, and the grid of time that the readings were made on.
    assert fitted.offset_ms == pytest.approx(offset_ms, abs=fitted.bound_ms + 1e3 * STEP_S)
    assert fitted.window_s == pytest.approx(period_s, rel=0.1)
    assert fitted.delay_s is None
    assert fitted.quality >= 3
    assert fitted.bound_ms < 100 * period_s


def test_more_noise_is_a_wider_bound() -> None:
    bounds = [Scene(noise_w=noise_w).fit().bound_ms for noise_w in (0.05, 0.5, 2)]
    assert bounds[0] < bounds[1] / 4 < bounds[2] / 8


def test_the_edges_uncertainty_is_part_of_the_bound() -> None:
    scene = Scene()
    doubtful = fit(scene.readings(), replace(scene.mark(), edge_bound_s=0.005))
    assert doubtful.bound_ms == pytest.approx(scene.fit().bound_ms + 5)


def test_a_fast_meters_readings_are_averaged_without_bridging_gaps() -> None:
    scene = Scene(period_s=0.0005, window_s=0.0005, offset_ms=7, noise_w=1)
    readings = scene.readings()
    fitted = scene.fit()
    assert fitted.offset_ms == pytest.approx(7, abs=0.5)
    assert fitted.declared_s == pytest.approx(0.001)
    lost = np.random.default_rng(5).random(len(readings.end_ns) // 40) < 0.05
    present = ~np.append(np.repeat(lost, 40), np.zeros(len(readings.end_ns) % 40, bool))
    assert fit(only(readings, present), scene.mark()).offset_ms == pytest.approx(7, abs=0.5)


# What must give no figure.


@pytest.mark.parametrize("period_s", [0.1, 1.0])
@pytest.mark.parametrize("seed", range(10))
def test_a_load_without_swing_is_not_a_watermark(period_s: float, seed: int) -> None:
    fitted = Scene(period_s=period_s, window_s=period_s, swing_w=0, seed=seed).fit()
    assert fitted.problem.startswith("no watermark seen")
    assert fitted.delay_s is None


@pytest.mark.parametrize(
    ("scene", "problem"),
    [
        (Scene(swing_w=0, noise_w=0), "never change"),
        (Scene(swing_w=-20), "falls where the load rises"),
        (Scene(offset_ms=6000), "no watermark seen"),  # out of reach
    ],
)
def test_an_impossible_load_is_not_a_watermark(scene: Scene, problem: str) -> None:
    assert problem in scene.fit().problem


def test_without_readings_there_is_no_watermark() -> None:
    scene = Scene()
    readings = scene.readings()
    gone = only(readings, readings.end_ns < START_S * 1e9)
    assert "readings of the time it was played" in fit(gone, scene.mark()).problem


def test_another_pattern_of_load_is_not_a_watermark() -> None:
    scene = Scene()
    readings = scene.readings()
    for seed in range(10):
        generator = np.random.default_rng(seed)
        count = len(readings.end_ns)
        levels = np.repeat(generator.integers(0, 2, count), 3)[:count]
        other = 40 + 20 * levels + generator.normal(0, 0.1, count)
        fitted = fit(Readings(readings.end_ns, readings.width_s, other), scene.mark())
        assert fitted.problem.startswith("no watermark seen")


def test_a_pattern_that_occurs_twice_is_ambiguous() -> None:
    scene, chip = Scene(), chip_s(0.1)
    readings = scene.readings()
    late = Scene(offset_ms=3e3 * chip).readings()
    again_w = np.interp(readings.end_ns, late.end_ns, late.power_w)
    twice = Readings(readings.end_ns, readings.width_s, readings.power_w + 0.8 * again_w)
    assert "another offset fits about as well" in fit(twice, scene.mark()).problem


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_readings_that_are_missing_widen_the_bound_or_end_the_fit(share: float) -> None:
    scene = Scene(offset_ms=20, noise_w=0.3)
    readings = scene.readings()
    for seed in range(10):
        present = np.random.default_rng(seed).random(len(readings.end_ns)) > share
        fitted = fit(only(readings, present), scene.mark())
        if share > 0.5:
            assert "readings cover" in fitted.problem
        elif not fitted.problem:
            assert abs(fitted.offset_ms - 20) <= fitted.bound_ms < 12


def test_a_gap_in_the_middle_is_covered_or_reported() -> None:
    scene = Scene(offset_ms=20)
    readings = scene.readings()
    for begin_s in np.arange(20, 27, 0.5):
        gap = (readings.end_ns > begin_s * 1e9) & (readings.end_ns < (begin_s + 1.5) * 1e9)
        fitted = fit(only(readings, ~gap), scene.mark())
        if not fitted.problem:
            assert abs(fitted.offset_ms - 20) <= fitted.bound_ms


def test_drift_and_missing_numbers_change_no_offset() -> None:
    scene = Scene(offset_ms=15)
    readings = scene.readings()
    drifting, broken = readings.power_w + 0.02 * (readings.end_ns / 1e9), readings.power_w.copy()
    broken[::9] = np.nan
    for power_w in (drifting, broken):
        fitted = fit(Readings(readings.end_ns, readings.width_s, power_w), scene.mark())
        assert fitted.offset_ms == pytest.approx(15, abs=1)


# What a rectangular window and sharp edges cannot explain must be in the bound.


def covers(fitted: Fit, low_ms: float, high_ms: float) -> bool:
    """Whether the interval holds all that the offset might be called."""
    offset_ms, bound_ms = fitted.offset_ms, fitted.bound_ms
    return offset_ms - bound_ms <= low_ms and high_ms <= offset_ms + bound_ms


def test_an_undeclared_window_widens_the_bound() -> None:
    # The ends are where they are told to be; middles are half a period earlier than told.
    fitted = Scene(window_s=0.2).fit()
    assert fitted.window_s == pytest.approx(0.2, rel=0.02) and fitted.declared_s == 0.1
    assert fitted.offset_ms == pytest.approx(50, abs=2)
    assert fitted.bound_ms > 49
    assert fitted.delay_s == pytest.approx(0.05, abs=0.002)


@pytest.mark.parametrize(
    ("cause", "late_s"), [("filter_s", 0.03), ("filter_s", 0.1), ("fall_s", 0.01), ("fall_s", 0.03)]
)
def test_a_filter_or_a_late_fall_widens_the_bound(cause: str, late_s: float) -> None:
    """The middle of a filtered reading is later by the filter's time constant."""
    filtered = cause == "filter_s"
    plain = Scene(noise_w=0.1)
    scene = replace(plain, filter_s=late_s) if filtered else replace(plain, fall_s=late_s)
    late = scene.fit()
    assert covers(late, 1e3 * late_s if filtered else 0, 1e3 * late_s)
    assert late.bound_ms > (2 if filtered else 1) * plain.fit().bound_ms


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_readings_that_include_the_one_before_widen_the_bound(seed: int) -> None:
    scene = Scene(period_s=1.0, window_s=1.0, noise_w=0.2, seed=seed)
    readings = scene.readings()
    held_w = readings.power_w.copy()
    for i in range(1, len(held_w)):
        held_w[i] = 0.036 * held_w[i - 1] + 0.964 * held_w[i]
    fitted = fit(Readings(readings.end_ns, readings.width_s, held_w), scene.mark())
    assert covers(fitted, 0, 36)


def test_a_clipped_meter_has_a_wide_bound() -> None:
    scene = Scene(noise_w=0.1)
    readings = scene.readings()
    clipped = Readings(readings.end_ns, readings.width_s, np.minimum(readings.power_w, 52.0))
    fitted = fit(clipped, scene.mark())
    assert fitted.problem or covers(fitted, 0, 0)
    assert fitted.problem or fitted.bound_ms > 5 * scene.fit().bound_ms


Line = dict[str, Any]
BOOT = "boot-1"
CHIP_S, PAD_S = 0.205, 0.5
PERIOD_S = 0.01
TARGET_OFFSET_S = 5000.0
STARTS_S = {"start": 20.0, "end": 620.0}


def line(when: str, start_s: float = 0.0, boot: str = BOOT, **fields: Any) -> Line:
    """Return what the target wrote down; `start_s` on the controller's clock."""
    edges = (start_s or STARTS_S[when]) + np.flatnonzero(np.diff([0, *CHIPS, 0])) * CHIP_S
    return {
        "boot_id": boot,
        "when": when,
        "chip_s": CHIP_S,
        "pad_s": PAD_S,
        "cpus": 4,
        "spread_ns": 400_000,
        "received": 1.0,
        "edges": [
            [round((t + TARGET_OFFSET_S) * 1e9), 1 - n % 2] for n, t in enumerate(edges.tolist())
        ],
        **fields,
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


def test_watermark_and_clock_link_agree() -> None:
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


@pytest.mark.parametrize(
    ("wrong_s", "delay_s", "end_s", "verdicts"),
    [
        (-0.02, 0.0, 620.0, [DISAGREES, DISAGREES]),
        (0.02, 0.0, 620.0, [DISAGREES, DISAGREES]),
        (0.0, 0.02, 620.0, [DISAGREES, DISAGREES]),  # a meter later than its limit
        (0.0, 0.0, 620.03, [AGREES, DISAGREES]),  # a clock link that drifts away
    ],
)
def test_a_wrong_clock_or_late_meter_is_flagged(
    wrong_s: float, delay_s: float, end_s: float, verdicts: list[str]
) -> None:
    lines = (LINES[0], line("end", end_s))
    fits = watermarks(suite(lines, meter(LINES, delay_s=delay_s)), clock(wrong_s))
    assert [trust.verdict for trust in fits] == verdicts
    flags = list(disagreements(fits, set()))
    assert len(flags) == verdicts.count(DISAGREES)
    assert all("meter0" in flag and "disagree" in flag for flag in flags)


def test_the_spread_of_children_is_part_of_the_bound() -> None:
    apart = tuple({**mark, "spread_ns": 40_000_000} for mark in LINES)
    sure, _ = watermarks(suite(LINES, meter(LINES)), clock())
    doubtful, _ = watermarks(suite(apart, meter(LINES)), clock())
    assert doubtful.fit.bound_ms == pytest.approx(sure.fit.bound_ms + 19.8, abs=0.01)


def test_undeclared_windows_are_reported_with_their_delay() -> None:
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
    over_s, declared_s = map(float, re.findall(r"([0-9.]+) s(?:,| by)", sentence))
    assert [over_s, declared_s] == pytest.approx([0.03, 0.01], abs=0.001)
    assert trust.verdict == AGREES and not [*disagreements([trust], set())]


def test_no_swing_gives_no_verdict() -> None:
    fitted, _ = watermarks(suite(LINES, meter(LINES, swing_w=0)), clock())
    assert fitted.verdict == CANNOT_TELL
    assert "no watermark seen" in fitted.sentence
    assert [*disagreements([fitted], {"meter0"})] == []


@pytest.mark.parametrize(
    ("swing_w", "limit_s", "is_ignored"),
    [
        (0.0, 0.005, True),
        (-20.0, 0.005, True),
        (0.3, 0.005, False),
        (20.0, 0.005, False),
        (0.0, 10.0, False),  # it may be later than the pattern is long
    ],
)
def test_a_meter_that_ignores_the_load_loses_its_joules_of_the_machine(
    swing_w: float, limit_s: float, is_ignored: bool
) -> None:
    deaf = replace(meter(LINES, swing_w=swing_w), arrival_delay_limit_s=limit_s)
    marked = suite(LINES, deaf)
    trusts = watermarks(marked, clock())
    assert [trust.ignored for trust in trusts] == [is_ignored] * 2


@pytest.mark.parametrize("received", [None, 0.3])
def test_a_load_that_the_target_hardly_received_shows_nothing(received: float | None) -> None:
    starved = tuple({**mark, "received": received} for mark in LINES)
    trusts = watermarks(suite(starved, meter(starved, swing_w=0.0)), clock())
    assert not any(trust.ignored for trust in trusts)


def test_a_suite_whose_meter_ignored_a_watermark_has_no_joules_of_the_machine(
    derived: Results,
) -> None:
    name = derived.suite.meters[0].name
    trust = WatermarkTrust(1, name, "system", Fit("no watermark seen"), {}, CANNOT_TELL, "", True)
    rows = energy_table(derived.suite, derived.clock, [trust]).filter(source=name)
    system = rows.filter(component="system")
    assert system["energy_j"].null_count() == len(system) > 0
    assert all(IGNORES_LOAD in flags for flags in system["flags"])
    assert rows.filter(pl.col("component") != "system")["energy_j"].is_not_null().any()
    assert any("watermark" in sentence for sentence in stood_still(rows))


def test_watermarks_of_another_boot_are_fitted_separately() -> None:
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
def test_a_watermark_that_cannot_be_fitted_gives_the_reason(
    lines: tuple[Line, ...], message: str
) -> None:
    fitted, *_ = watermarks(suite(lines, meter(LINES)), clock())
    assert fitted.verdict == CANNOT_TELL
    assert message in fitted.sentence


def test_a_meter_without_readings_is_reported() -> None:
    empty = replace(meter(LINES), samples=NOTHING)
    lines, _ = watermarks(suite(LINES, empty), clock())
    assert lines.verdict == CANNOT_TELL and "has no readings" in lines.sentence


def test_a_plan_without_watermarks_has_no_verdicts() -> None:
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


def test_lines_of_a_folder_are_read_and_damage_is_reported(tmp_path: Path) -> None:
    names = dict.fromkeys(("suite_id", "suite", "host"), "s")
    plan: Line = {"format": "fde-plan/3", "origin": "modelled", **names}
    plan["sha256"] = digest(plan)
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tmp_path / "watermark.jsonl").write_text(json.dumps(LINES[0]) + '\n{"when": "e')
    lines = read(tmp_path)
    assert lines.watermarks == (schema.read(WatermarkLine, LINES[0]),)
    assert any("watermark.jsonl" in problem for problem in lines.problems)
