"""Records of a meter as windows on the controller's clock, in pieces of any size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from analysis.energy import windows
from analysis.energy.windows import fit
from analysis.suite import clocks, samples
from instrumentation.clock import ClockReading
from validation.synthetic.suite import Truth

S = 1_000_000_000
LIMIT_S = 0.02


def table(
    arrival_s: Sequence[float],
    device_ms: list[int | None] | None = None,
    epoch: list[int] | None = None,
    window_s: float = 0.1,
) -> pl.DataFrame:
    count = len(arrival_s)
    return pl.DataFrame(
        {
            "epoch": epoch or [1] * count,
            "t_mono_ns": [round(t * 1e9) for t in arrival_s],
            "t_device_us": [
                None if ms is None else ms * 1000 for ms in device_ms or [None] * count
            ],
            "window_s": [window_s] * count,
            "power_w_system": [10.0] * count,
        },
        schema_overrides={"epoch": pl.Int32, "t_device_us": pl.Int64},
    )


def windows_of(frame: pl.DataFrame, kind: str, limit_s: float = LIMIT_S) -> windows.Windows:
    records = samples.of_table(frame)
    timing = windows.fit(records, kind, limit_s)
    parts = list(windows.windows(records, timing, ["system"]))
    return windows.Windows(
        np.concatenate([p.start_ns for p in parts]),
        np.concatenate([p.end_ns for p in parts]),
        np.concatenate([p.epoch for p in parts]),
        {"system": np.concatenate([p.power_w["system"] for p in parts])},
    )


def test_the_envelope_is_the_line_under_late_bunches() -> None:
    generator = np.random.default_rng(1)
    x = np.arange(0, 600e9, 50e6)
    delay = generator.exponential(2e6, len(x))
    delay[np.arange(len(x)) % 40 < 10] += 400e6
    intercept, slope = clocks.lower_envelope(x, 5e6 + 30e-6 * x + delay)
    assert slope == pytest.approx(30e-6, abs=0.2e-6)
    assert intercept == pytest.approx(5e6, abs=0.1e6)


def test_an_impossible_slope_over_a_short_time_widens_the_bound() -> None:
    x, y = np.array([0.0, 1e9]), np.array([2e6, 9e6])
    line = clocks.fit_line(x, y, (x, y), 16e6)
    assert (line.intercept_ns, line.slope) == (2e6, 0.0)
    assert line.bound_ns == pytest.approx(16e6 - 6.65e6 + 7e6)


@pytest.mark.parametrize("ppm", [600, -1_000, 2_000, -5_000])
def test_a_clock_off_by_more_than_quartz_is_followed(ppm: int) -> None:
    x = np.arange(0, 100e9, 1e8)
    y = ppm * 1e-6 * x + np.random.default_rng(3).uniform(1e6, 16e6, len(x))
    line = clocks.fit_line(x, y, (x, y), 16e6)
    assert np.abs(line.at(x) - x - ppm * 1e-6 * x - 1e6).max() < 1e6
    assert line.bound_ns == pytest.approx(1.75e6, abs=0.5e6)
    assert not line.contradicted


def test_delays_beyond_their_limit_widen_the_bound() -> None:
    x = np.arange(0, 100e9, 1e8)
    y = np.random.default_rng(3).uniform(1e6, 60e6, len(x))
    line = clocks.fit_line(x, y, (x, y), 16e6)
    assert line.contradicted
    assert line.bound_ns == pytest.approx(56e6, abs=2e6)


@pytest.mark.parametrize("ppm", [-5_000, 5_000])
def test_lost_records_of_a_poor_clock_are_counted(ppm: int) -> None:
    generator = np.random.default_rng(8)
    number = np.flatnonzero(generator.uniform(size=2000) > 0.01)
    true_s = number * (1 + ppm * 1e-6)
    arrival_s = np.maximum.accumulate(true_s + generator.uniform(0.001, 0.016, len(number)))
    records = windows_of(table(arrival_s.tolist(), window_s=1.0), "index")
    gaps = np.flatnonzero(records.start_ns[1:] > records.end_ns[:-1])
    assert gaps.tolist() == np.flatnonzero(np.diff(number) > 1).tolist()
    assert np.abs(records.end_ns / 1e9 - true_s).max() < 0.003


@pytest.mark.parametrize(("period_ms", "flags"), [(101, ()), (103, (windows.PERIOD_FLAG,))])
def test_a_period_other_than_declared_is_flagged(period_ms: int, flags: tuple[str]) -> None:
    device: list[int | None] = [period_ms * k for k in range(1, 101)]
    frame = table([ms / 1e3 + 0.001 for ms in device if ms is not None], device)
    assert windows.fit(samples.of_table(frame), "device", LIMIT_S).flags == flags


def test_a_wandering_clock_is_followed_and_late_records_are_not() -> None:
    generator = np.random.default_rng(2)
    x = np.arange(0, 36_000e9, 1e9)
    wander = 8e6 * np.sin(2 * np.pi * x / 36_000e9)  # rate within ±1.4 ppm
    delay = generator.uniform(1e6, 16e6, len(x))
    delay[(x > 9_000e9) & (x < 9_900e9)] += 200e6
    y = 40e-6 * x + wander + delay
    line = clocks.fit_line(x, y, (x[::7], y[::7]), 16e6)
    off = line.at(x) - x - (40e-6 * x + wander)
    assert np.abs(off).max() < 7e6  # 10 ppm to the middle of the late stretch and back
    assert np.quantile(np.abs(off), 0.95) < 2.2e6
    assert line.bound_ns < 2.5e6


def test_the_bound_is_the_limit_less_the_spread_of_delays() -> None:
    x = np.arange(0, 100e9, 1e8)
    steady = clocks.fit_line(x, np.full(len(x), 3e6), (x, np.full(len(x), 3e6)), 16e6)
    assert steady.bound_ns == 16e6
    y = np.random.default_rng(3).uniform(1e6, 16e6, len(x))
    assert clocks.fit_line(x, y, (x, y), 16e6).bound_ns == pytest.approx(1.75e6, abs=0.5e6)


def test_windows_end_by_device_time_not_by_arrival() -> None:
    device = [100 * k for k in range(1, 101)]
    arrival = [0.1 * k + 0.002 + (0.5 if 40 <= k < 45 else 0.0) for k in range(1, 101)]
    ends = windows_of(table(arrival, list(device)), "device").end_ns
    true = np.arange(1, 101) * 100_000_000 + 2_000_000
    assert np.abs(ends - true).max() <= 1_000


def test_a_meter_that_restarts_starts_a_new_line() -> None:
    arrival = [0.1 * k for k in range(1, 101)]
    device: list[int | None] = [100 * k if k <= 50 else 100 * (k - 50) for k in range(1, 101)]
    ends = windows_of(table(arrival, device), "device").end_ns
    assert np.abs(ends - np.arange(1, 101) * 100_000_000).max() <= 1_000


def test_a_record_without_device_time_is_placed_by_arrival() -> None:
    device: list[int | None] = [100, None, 300]
    ends = windows_of(table([0.1, 0.215, 0.3], device), "device").end_ns
    assert ends.tolist() == [100_000_000, 215_000_000, 300_000_000]


def test_a_polled_record_is_placed_by_arrival() -> None:
    records = windows_of(table([1.0, 2.5]), "poll")
    assert records.end_ns.tolist() == [S, 2 * S + S // 2]


@pytest.mark.parametrize("window_s", [1.0, 0.1])
def test_records_of_a_meter_without_a_clock_are_numbered(window_s: float) -> None:
    """One lost in a hundred, late bunches, a skewed clock: ends are found, lost ones are gaps.

    Which record a loss within a bunch comes before, nobody can tell: all of the bunch are late.
    """
    generator = np.random.default_rng(4)
    number = np.flatnonzero(generator.uniform(size=4000) > 0.01)
    true_s = 7.0 + number * window_s * (1 + 100e-6)
    arrival_s: clocks.Floats = np.maximum.accumulate(
        true_s + generator.uniform(0.001, 0.016, len(number)) + 3.5 * window_s * (number % 97 > 92)
    )
    records = windows_of(table(arrival_s.tolist(), window_s=window_s), "index")
    assert np.quantile(np.abs(records.end_ns / 1e9 - true_s), 0.99) < 0.0025
    gaps = np.flatnonzero(records.start_ns[1:] > records.end_ns[:-1])
    lost = np.flatnonzero(np.diff(number) > 1)
    assert len(gaps) == len(lost)
    assert len(set(gaps) & set(lost)) > 0.8 * len(lost)


def test_jitter_of_more_than_a_window_loses_no_record() -> None:
    """1 to 16 ms late at 100 Hz, up to the last record of the stream."""
    generator = np.random.default_rng(6)
    for _ in range(20):
        true_s = 1 + 0.01 * np.arange(1_000)
        arrival_s = np.maximum.accumulate(true_s + generator.uniform(0.001, 0.016, 1_000))
        records = windows_of(table(arrival_s.tolist(), window_s=0.01), "index")
        assert (records.start_ns[1:] == records.end_ns[:-1]).all()


def test_a_long_silence_restarts_the_numbering() -> None:
    arrival = [*np.arange(1, 101), *(np.arange(1, 101) + 700.4)]
    records = windows_of(table([float(t) for t in arrival], window_s=1.0), "index")
    assert np.abs(records.end_ns / 1e9 - arrival).max() < 1e-6


def test_pieces_give_the_same_result_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(5)
    number = np.flatnonzero(generator.uniform(size=3000) > 0.02)
    arrival_s = number * 0.1 + np.maximum.accumulate(generator.uniform(0, 0.01, len(number)))
    epoch = [1 + (k >= 1800) for k in range(len(number))]
    frame = table(arrival_s.tolist(), [int(n) * 100 for n in number], epoch)
    for kind in ("device", "index", "poll"):
        monkeypatch.setattr(samples, "CHUNK_RECORDS", 10_000)
        at_once = windows_of(frame, kind)
        monkeypatch.setattr(samples, "CHUNK_RECORDS", 611)
        pieces = windows_of(frame, kind)
        assert np.abs(at_once.end_ns - pieces.end_ns).max() <= 50_000
        assert (
            (at_once.start_ns[1:] > at_once.end_ns[:-1])
            == (pieces.start_ns[1:] > pieces.end_ns[:-1])
        ).all()


def test_rounding_is_joined_and_a_gap_is_not() -> None:
    records = windows_of(table([0.1, 0.199, 0.301, 0.6]), "poll")
    assert records.start_ns.tolist() == [0, 100_000_000, 199_000_000, 500_000_000]


def test_windows_never_overlap() -> None:
    records = windows_of(table([0.1, 0.15, 0.4, 0.41]), "poll")
    assert (records.start_ns[1:] >= records.end_ns[:-1]).all()
    records = windows_of(table([0.1, 0.15, 0.29], epoch=[1, 2, 2]), "poll")
    assert records.start_ns.tolist() == [0, 100_000_000, 150_000_000]


def test_a_record_without_power_is_a_gap() -> None:
    frame = table([0.1, 0.2, 0.3, 0.4])
    frame = frame.with_columns(power_w_system=pl.Series([1.0, None, float("nan"), 4.0]))
    records = windows_of(frame, "poll")
    assert records.end_ns.tolist() == [100_000_000, 400_000_000]
    assert records.start_ns.tolist() == [0, 300_000_000]


def test_each_boot_has_its_own_clock() -> None:
    readings = [ClockReading(0, 5_000, 10, "a"), ClockReading(10**12, 70, 10**12 + 20, "b")]
    clock = clocks.TargetClock.fit(readings)
    assert clock.to_controller_ns("a", 5_000) == 5
    assert clock.to_controller_ns("b", 70) == 10**12 + 10
    assert clock.to_controller_ns("c", 70) is None


def test_a_time_is_placed_by_the_boot_of_the_controller_that_is_nearest() -> None:
    def line(at_s: int, ahead_ns: int, boot: str) -> ClockReading:
        sent = at_s * S
        return ClockReading(sent, sent + ahead_ns, sent, "a", boot)

    first = [line(t, 0, "x") for t in (0, 10, 20)]
    clock = clocks.TargetClock.fit([*first, *(line(t, 1_000_000, "y") for t in (620, 630))])
    assert clock.to_controller_ns("a", 30 * S) == 30 * S  # not on the way from one to the other
    assert clock.to_controller_ns("a", 610 * S) == 610 * S - 1_000_000
    assert clock.models["a"].skew_ppm == 0.0


def test_a_jump_of_the_targets_clock_widens_the_bound() -> None:
    def line(at_s: int, ahead_s: int) -> ClockReading:
        sent = at_s * S
        return ClockReading(sent, sent + ahead_s * S, sent + 1000, "a")

    clock = clocks.TargetClock.fit([line(100, 0), line(130, 0), line(160, -20), line(190, -20)])
    assert [clock.to_controller_ns("a", t * S) for t in (110, 150)] == [
        pytest.approx(110 * S, abs=1e6),
        pytest.approx(170 * S, abs=1e6),
    ]
    bounds_ns = [clock.bound_ns("a", t * S) or 0 for t in (110, 135, 150)]
    assert bounds_ns[0] < 1e6 and bounds_ns[2] < 1e6
    assert bounds_ns[1] == pytest.approx(20 * S, rel=0.01)


def test_an_enormous_declared_delay_fits_the_clock() -> None:
    records = samples.of_table(table([0.1 * k for k in range(1, 50)]))
    assert windows.fit(records, "index", 1e40).bound_ns <= 1e15


COLUMNS = ("epoch", "t_mono_ns", "t_device_us", "window_s")


@pytest.mark.parametrize("lengths", [[70, 250, 3], [100, 100], [1] * 205, [0, 40], []])
def test_pieces_are_even_and_have_every_row_in_order(
    lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "CHUNK_RECORDS", 100)
    rows = pl.DataFrame({"row": range(sum(lengths))}, schema={"row": pl.Int64()})
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    pieces = list(samples.rechunk(rows.slice(a, n) for a, n in zip(starts, lengths, strict=True)))
    assert [len(piece) for piece in pieces[:-1]] == [100] * (len(pieces) - 1)
    assert [row for piece in pieces for row in piece["row"]] == rows["row"].to_list()


def test_the_time_of_a_meter_is_the_same_from_raw_bytes_and_from_the_file(
    whole_suite: tuple[Path, Truth], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "CHUNK_RECORDS", 333)  # several pieces, as a long suite has
    folder = whole_suite[0] / "meters" / "meter0"
    from_file = samples.of_file(folder / "samples.parquet", ("system", "drive"))
    from_bytes = samples.of_recording(folder)
    assert from_file.records > 1000
    assert all(
        a.equals(b)
        for a, b in zip(from_file.tables(COLUMNS), from_bytes.tables(COLUMNS), strict=True)
    )
    a, b = (
        fit(recording, "device", 0.02).stretches[0].line for recording in (from_file, from_bytes)
    )
    assert (a.intercept_ns, a.slope, a.bound_ns) == (b.intercept_ns, b.slope, b.bound_ns)
    assert all((x == y).all() for x, y in zip(a.knots, b.knots, strict=True))
