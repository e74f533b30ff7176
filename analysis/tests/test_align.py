from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from analysis import align
from instrumentation import decode


def samples(
    arrival_s: list[float], device_ms: list[int | None], epoch: list[int] | None = None
) -> pl.DataFrame:
    count = len(arrival_s)
    return pl.DataFrame(
        {
            "seq": range(count),
            "epoch": epoch or [0] * count,
            "t_mono_ns": [round(t * 1e9) for t in arrival_s],
            "t_device_ms": device_ms,
            "channel": ["system"] * count,
            "window_s": [0.1] * count,
            "power_w": [10.0] * count,
            "energy_j": [None] * count,
            "flags": [""] * count,
        },
        schema=decode.SCHEMA,
    )


def test_envelope_finds_the_line_under_late_bunches() -> None:
    generator = np.random.default_rng(1)
    x = np.arange(0, 600e9, 50e6)
    delay = generator.exponential(2e6, len(x))
    delay[np.arange(len(x)) % 40 < 10] += 400e6
    intercept, slope = align.lower_envelope(x, 5e6 + 30e-6 * x + delay)
    assert slope == pytest.approx(30e-6, abs=0.2e-6)
    assert intercept == pytest.approx(5e6, abs=0.1e6)


def test_envelope_takes_no_slope_that_no_clock_has() -> None:
    intercept, slope = align.lower_envelope(np.array([0.0, 1e9]), np.array([2e6, 9e6]))
    assert (intercept, slope) == (2e6, 0.0)


def test_windows_end_by_device_time_not_by_arrival() -> None:
    device = [100 * k for k in range(1, 101)]
    arrival = [0.1 * k + 0.002 + (0.5 if 40 <= k < 45 else 0.0) for k in range(1, 101)]
    ends = align.window_ends_ns(samples(arrival, list(device)))
    true = np.arange(1, 101) * 100_000_000 + 2_000_000
    assert np.abs(ends - true).max() <= 1_000


def test_a_meter_that_restarts_starts_a_new_line() -> None:
    arrival = [0.1 * k for k in range(1, 101)]
    device: list[int | None] = [100 * k if k <= 50 else 100 * (k - 50) for k in range(1, 101)]
    ends = align.window_ends_ns(samples(arrival, device))
    assert np.abs(ends - np.arange(1, 101) * 100_000_000).max() <= 1_000


def test_without_device_time_the_arrival_stands_for_it() -> None:
    ends = align.window_ends_ns(samples([1.0, 2.5], [None, None]))
    assert ends.tolist() == [1_000_000_000, 2_500_000_000]


def test_rounding_is_joined_and_a_gap_is_not() -> None:
    frame = samples([0.1, 0.199, 0.301, 0.6], [None] * 4)
    windows = align.windows(frame, align.window_ends_ns(frame), "system")
    assert windows.start_ns.tolist() == [0, 100_000_000, 199_000_000, 500_000_000]


def test_windows_never_overlap() -> None:
    frame = samples([0.1, 0.15, 0.4, 0.41], [None] * 4)
    windows = align.windows(frame, align.window_ends_ns(frame), "system")
    assert (windows.start_ns[1:] >= windows.end_ns[:-1]).all()


def test_each_boot_has_its_own_clock() -> None:
    lines: list[dict[str, object]] = [
        {"t_send_ns": 0, "t_target_ns": 5_000, "t_receive_ns": 10, "boot_id": "a"},
        {"t_send_ns": 10**12, "t_target_ns": 70, "t_receive_ns": 10**12 + 20, "boot_id": "b"},
        {"t_send_ns": "torn"},
    ]
    clock = align.TargetClock.fit(lines)
    assert clock.to_controller_ns("a", 5_000) == 5
    assert clock.to_controller_ns("b", 70) == 10**12 + 10
    assert clock.to_controller_ns("c", 70) is None
