"""Loads of known energy, by formula, and the readings that a meter would give of them.

The power is a sum of steps and of ramps that begin at known instants, so its integral is exact; a
meter sees the mean over each window of its skewed clock, rounded to its last digit, and its
records come late by some milliseconds or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.energy.curve import Edge
from analysis.energy.metered import Energy, Metered
from analysis.suite.samples import of_table

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Load:
    """Steps (s, W) and bends (s, W/s) of the power, in order of time; phase from start to end."""

    step_s: Floats
    step_w: Floats
    bend_s: Floats
    bend_w_per_s: Floats
    start_s: float
    end_s: float

    def energy_j(self, t_s: Floats) -> Floats:
        """Return the energy up to each instant: Σ ΔP (t − tᵢ) + ½ Σ Δs (t − tᵢ)², all tᵢ < t."""
        t = t_s - self.start_s  # small numbers keep all digits
        watts, offset_j = _up_to(t, self.step_s - self.start_s, self.step_w)
        slope, slope_t, slope_tt = _up_to(t, self.bend_s - self.start_s, self.bend_w_per_s, 3)
        ramps_j = slope * t**2 / 2 - slope_t * t + slope_tt / 2
        return np.asarray(watts * t - offset_j + ramps_j)

    @property
    def phase_j(self) -> float:
        """Energy of the phase."""
        start_j, end_j = self.energy_j(np.array([self.start_s, self.end_s]))
        return float(end_j - start_j)


def _up_to(t: Floats, at: Floats, jump: Floats, moments: int = 2) -> list[Floats]:
    """Return Σ jumpᵢ atᵢ^m over all atᵢ ≤ t for each m < `moments`."""
    order = np.argsort(at)
    before = np.searchsorted(at[order], t, side="right")
    sums = (np.cumsum(jump[order] * at[order] ** m) for m in range(moments))
    return [np.concatenate([[0.0], total])[before] for total in sums]


@dataclass(frozen=True)
class Instrument:
    """A meter's properties; `timing` as in meter.json."""

    name: str
    period_s: float
    quantum_w: float
    noise_w: float
    timing: str
    rest_s: float


INSTRUMENTS = (
    Instrument("1 Hz, 0.1 W", 1.0, 0.1, 0.03, "index", 4.0),
    Instrument("10 Hz, 1 mW", 0.1, 0.001, 0.003, "index", 1.0),
    Instrument("100 Hz, 1 mW", 0.01, 0.001, 0.01, "device", 1.0),
)
SKEW = 100e-6
DROPPED = 0.01
DELAY_S = (0.001, 0.016)
NORMAL_95 = 1.96
CLOCK_BOUND_S = 0.0003  # between target and controller: half of a round trip over a wire
AROUND = 300  # records before and after, by which the meter's clock is known


def realistic(generator: np.random.Generator, phase_s: float, around_s: float) -> Load:
    """Return a phase of work between two rests, at a random place in time.

    10 to 60 W above a rest of 15 to 40 W; up to two more levels (±25 %); some bursts a second of
    20 to 200 ms (±30 %); creeping by up to 10 %. Afterwards it rests at up to 0.5 W more or less.
    """
    start = around_s + generator.uniform(0, 5)
    end = start + phase_s
    rest_w, work_w = generator.uniform(15, 40), generator.uniform(10, 60)
    step_s, step_w = [0.0, start, end], [rest_w, work_w, -work_w + generator.uniform(-0.5, 0.5)]
    level_w = 0.0
    for at in np.sort(generator.uniform(start, end, generator.integers(0, 3))):
        change = work_w * generator.uniform(-0.25, 0.25)
        step_s.append(float(at))
        step_w.append(change)
        level_w += change
    step_s.append(end)
    step_w.append(-level_w)
    count = generator.poisson(generator.uniform(0, 4) * phase_s)
    begins = generator.uniform(start, end, count)
    ends = np.minimum(begins + generator.uniform(0.02, 0.2, count), end)
    heights = work_w * generator.uniform(-0.3, 0.3, count)
    slope = work_w * generator.uniform(-0.1, 0.1) / phase_s
    at = np.concatenate([step_s, begins, ends, [end]])
    jumps = np.concatenate([step_w, heights, -heights, [-slope * phase_s]])
    bend_s, bends = np.array([start, end]), np.array([slope, -slope])
    return Load(at, jumps, bend_s, bends, start, end)


@dataclass(frozen=True)
class Calibration:
    """A meter reads P as P · gain + offset_w. Drawn within its limits of error."""

    gain: float = 1.0
    offset_w: float = 0.0


TRUE = Calibration()


def records(
    load: Load,
    meter: Instrument,
    generator: np.random.Generator,
    *,
    calibration: Calibration = TRUE,
    dropped: float = DROPPED,
    skew: float = SKEW,
) -> pl.DataFrame:
    """Return the stored part of the meter's stream up to `AROUND` records after the phase.

    The meter's clock takes (1 + `skew`) s for each of its seconds.
    """
    until_s = load.end_s + AROUND * meter.period_s
    width_s = meter.period_s * (1 + skew)
    first_s = generator.uniform(0, width_s)
    count = int((until_s - first_s) / width_s)
    end_s: Floats = np.asarray(first_s + width_s * np.arange(count))
    energy_j = load.energy_j(end_s)
    mean_w = np.diff(energy_j) / width_s * calibration.gain + calibration.offset_w
    mean_w += generator.normal(0, meter.noise_w, len(mean_w))
    power_w = np.rint(mean_w / meter.quantum_w) * meter.quantum_w
    end_s = end_s[1:]
    arrival_s = np.maximum.accumulate(end_s + generator.uniform(*DELAY_S, len(end_s)))
    received = generator.uniform(size=len(end_s)) >= dropped
    return arrived(meter, arrival_s, power_w, received)


def arrived(
    meter: Instrument, arrival_s: Floats, power_w: Floats, received: NDArray[np.bool_]
) -> pl.DataFrame:
    """Build samples.parquet of the records [n] that were not lost."""
    own_us = np.rint(np.arange(1, len(power_w) + 1) * meter.period_s * 1e6).astype(np.int64)
    count = int(received.sum())
    return pl.DataFrame(
        {
            "seq": np.arange(count),
            "epoch": np.ones(count, np.int32),
            "t_mono_ns": np.rint(arrival_s[received] * 1e9).astype(np.int64),
            "t_device_us": own_us[received] if meter.timing == "device" else [None] * count,
            "window_s": np.full(count, meter.period_s),
            "flags": [""] * count,
            "power_w_system": power_w[received],
        },
        schema_overrides={"t_device_us": pl.Int64},
    )


@dataclass(frozen=True)
class Trial:
    """One phase: its true energy, and the result of the code under test."""

    truth_j: float
    energy: Energy

    @property
    def error_percent(self) -> float:
        """Size of the error; 100 without a figure."""
        return 100 * (
            1.0 if self.energy.energy_j is None else abs(self.energy.energy_j / self.truth_j - 1)
        )

    @property
    def held(self) -> bool:
        """Whether the 95 % interval, only its statistical part, holds the truth."""
        energy_j, sigma_j = self.energy.energy_j, self.energy.statistical_j
        if energy_j is None or sigma_j is None:
            return False
        return abs(energy_j - self.truth_j) <= NORMAL_95 * sigma_j


def trial(
    generator: np.random.Generator,
    meter: Instrument,
    phase_s: float,
    *,
    calibration: Calibration = TRUE,
    rests: bool = True,
    skew: float = SKEW,
) -> Trial:
    """Run one load through alignment and integration; without `rests` the analysis gets none."""
    load = realistic(generator, phase_s, AROUND * meter.period_s)
    table = records(load, meter, generator, calibration=calibration, skew=skew)
    rest_s = meter.rest_s if rests else 0.0
    phase = (load.start_s, load.end_s)
    return Trial(load.phase_j, integrated(table, meter, generator, phase, (rest_s, rest_s)))


def integrated(
    table: pl.DataFrame,
    meter: Instrument,
    generator: np.random.Generator,
    phase_s: tuple[float, float],
    rests_s: tuple[float, float],
) -> Energy:
    """Integrate the phase with the code under test, its edges off by the error of the clocks.

    `rests_s` are the rests before and after the phase, 0 for none.
    """
    bound_ns = round(CLOCK_BOUND_S * 1e9)
    off_s = generator.uniform(-CLOCK_BOUND_S, CLOCK_BOUND_S)
    start, end = (round((t + off_s) * 1e9) for t in phase_s)
    before_ns, after_ns = (round(s * 1e9) for s in rests_s)
    edges = {
        Edge(start, "before" if before_ns else None, before_ns, bound_ns),
        Edge(end, "after" if after_ns else None, after_ns, bound_ns),
    }
    metered = Metered.from_samples(of_table(table), meter.timing, DELAY_S[1], ["system"], edges)
    return metered.energy("system", [(start, end)])
