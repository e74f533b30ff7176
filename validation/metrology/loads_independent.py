"""A second family of loads and meters, unlike the one on which the uncertainty was tuned.

Work alternates between levels with heavy-tailed dwell times and creeps at random; it begins after
its mark and ends before or after it. A rest is noisy and has short wake-ups, and beyond it there is
other work. There are rests beside the phase only where the agent makes them. All is steps on a
sorted axis of time, so every integral is a sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.signal import lfilter

from validation.metrology.loads import (
    AROUND,
    DELAY_S,
    DROPPED,
    SKEW,
    TRUE,
    Calibration,
    Floats,
    Instrument,
    Trial,
    arrived,
    integrated,
)

SETTLE_S = (0.2, 1.0, 10.0)  # as the suites have it
PAD_PERIODS, SLOW_S = 4.0, 0.5  # a meter of this period or slower is given rests of so many periods
DWELL_S = (0.02, 5.0)
DWELL_TAIL = 0.7  # exponent of the dwell times' survival; below 1 the long ones take most of it
LATE_S = 0.030
NOISE_W, NOISE_STEP_S = 0.3, 0.010


@dataclass(frozen=True, eq=False)
class Signal:
    """Power (W) from each instant of `at_s` to the next; 0 before the first."""

    at_s: Floats
    power_w: Floats

    @classmethod
    def from_parts(cls, parts: list[tuple[Floats, Floats]]) -> Signal:
        """Return the sum of several courses of power: instants and the power from each on."""
        jumps = [(at, np.diff(power, prepend=0.0)) for at, power in parts]
        at_s = np.concatenate([at for at, _ in jumps])
        order = np.argsort(at_s, kind="stable")
        power_w = np.cumsum(np.concatenate([jump for _, jump in jumps])[order])
        return cls(at_s[order], power_w)

    def energy_j(self, t_s: Floats) -> Floats:
        """Return the energy from the first instant to each of `t_s`."""
        sums_j = np.concatenate([[0.0], np.cumsum(self.power_w[:-1] * np.diff(self.at_s))])
        index = np.maximum(np.searchsorted(self.at_s, t_s, side="right") - 1, 0)
        return np.asarray(sums_j[index] + self.power_w[index] * (t_s - self.at_s[index]))


@dataclass(frozen=True, eq=False)
class Scene:
    """A phase between its marks, with the agent's rests before and after it (0: none)."""

    signal: Signal
    start_s: float
    end_s: float
    rest_before_s: float
    rest_after_s: float
    until_s: float

    @property
    def phase_j(self) -> float:
        """Energy between the marks."""
        start_j, end_j = self.signal.energy_j(np.array([self.start_s, self.end_s]))
        return float(end_j - start_j)


def scene(generator: np.random.Generator, meter: Instrument, phase_s: float) -> Scene:
    """Return a first or a later phase of a run, with other work before and after it and its rests.

    A first phase has settled and padded before; a later one is padded only. A slow meter pads, and
    so does a quick one that runs beside a slow one (a third of them).
    """
    slow_s = meter.period_s if meter.period_s >= SLOW_S else 0.0
    if not slow_s and generator.uniform() < 1 / 3:
        slow_s = 1.0
    pad_s = PAD_PERIODS * slow_s
    before_s = pad_s + (generator.choice(SETTLE_S) if generator.uniform() < 0.5 else 0.0)
    start_s = AROUND * meter.period_s + before_s + generator.uniform(0, 5)
    end_s = start_s + phase_s
    until_s = end_s + pad_s + AROUND * meter.period_s
    rest_w, swing_w = generator.uniform(15, 40), generator.uniform(10, 60)
    begun_s = start_s + generator.uniform(0, LATE_S)
    over_s = max(begun_s, end_s + generator.uniform(-LATE_S, LATE_S))
    parts = [
        (np.array([0.0]), np.array([rest_w])),
        _noise(generator, until_s),
        _wakes(generator, until_s),
        # Where there is no rest, the phase's work takes over from the work before at its mark.
        _work(generator, swing_w, 0.0, start_s - before_s if before_s else begun_s),
        _work(generator, swing_w, begun_s, over_s),
        _work(generator, swing_w, end_s + pad_s if pad_s else over_s, until_s),
    ]
    return Scene(Signal.from_parts(parts), start_s, end_s, before_s, pad_s, until_s)


def _work(
    generator: np.random.Generator, swing_w: float, start_s: float, end_s: float
) -> tuple[Floats, Floats]:
    """Draw power above the rest: two to five alternating levels and a random walk; 0 afterwards."""
    if end_s <= start_s:
        return np.array([start_s]), np.zeros(1)
    levels_w = swing_w * generator.uniform(0.2, 1.0, int(generator.integers(2, 6)))
    count = int((end_s - start_s) / DWELL_S[0]) + 1
    low, high = (limit**-DWELL_TAIL for limit in DWELL_S)
    dwell_s = generator.uniform(high, low, count) ** (-1 / DWELL_TAIL)
    at_s = start_s + np.concatenate([[0.0], np.cumsum(dwell_s)])
    at_s = at_s[at_s < end_s]
    # A step to any other level but the one that it comes from.
    turns = generator.integers(1, len(levels_w), len(at_s))
    level_w = levels_w[np.cumsum(turns) % len(levels_w)]
    walk_s = np.arange(start_s, end_s, max(0.02, (end_s - start_s) / 2_000))
    creep_w = swing_w * generator.uniform(0, 0.05) / np.sqrt(len(walk_s))
    walk_w = np.cumsum(generator.normal(0, creep_w, len(walk_s)))
    course = Signal.from_parts([(at_s, level_w), (walk_s, walk_w)])
    return np.append(course.at_s, end_s), np.append(course.power_w, 0.0)


def _noise(generator: np.random.Generator, until_s: float) -> tuple[Floats, Floats]:
    """Return a first-order autoregression of `NOISE_W`, with a memory of 20 ms to 1 s."""
    at_s = np.arange(0.0, until_s, NOISE_STEP_S)
    keep = np.exp(-NOISE_STEP_S / np.exp(generator.uniform(np.log(0.02), 0.0)))
    fresh_w = generator.normal(0, NOISE_W * np.sqrt(1 - keep**2), len(at_s))
    before_w = generator.normal(0, NOISE_W)
    power_w, _ = lfilter([1.0], [1.0, -keep], fresh_w, zi=[keep * before_w])
    return at_s, np.asarray(power_w)


def _wakes(generator: np.random.Generator, until_s: float) -> tuple[Floats, Floats]:
    """Draw the machine's wake-ups: up to two a second, 2 to 20 ms of 2 to 10 W."""
    count = int(generator.poisson(generator.uniform(0.2, 2.0) * until_s))
    begin_s = np.sort(generator.uniform(0, until_s, count))
    end_s = begin_s + generator.uniform(0.002, 0.020, count)
    watts = generator.uniform(2, 10, count)
    # They may overlap, so each is a rise and a fall of its own.
    at_s = np.concatenate([[0.0], begin_s, end_s])
    order = np.argsort(at_s)
    power_w = np.cumsum(np.concatenate([[0.0], watts, -watts])[order])
    return at_s[order], power_w


def records(
    scene: Scene, meter: Instrument, generator: np.random.Generator, calibration: Calibration = TRUE
) -> pl.DataFrame:
    """Return the stored part of the meter's stream: exponentially delayed, some lost."""
    width_s = meter.period_s * (1 + generator.choice([-SKEW, SKEW]))
    end_s = np.arange(generator.uniform(0, width_s), scene.until_s, width_s)
    mean_w = np.diff(scene.signal.energy_j(end_s)) / width_s
    read_w = mean_w * calibration.gain + calibration.offset_w
    read_w += generator.normal(0, meter.noise_w, len(read_w))
    power_w = np.rint(read_w / meter.quantum_w) * meter.quantum_w
    count = len(power_w)
    late_s = np.minimum(DELAY_S[0] + generator.exponential(0.003, count), DELAY_S[1])
    arrival_s = np.maximum.accumulate(end_s[1:] + late_s)
    received = _draw_received(generator, count)
    return arrived(meter, arrival_s, power_w, received)


def _draw_received(generator: np.random.Generator, count: int) -> NDArray[np.bool_]:
    """Keep all but one in a hundred; one loss in five is of two or three records."""
    begins = generator.uniform(size=count) < DROPPED / 1.3
    length = generator.choice([1, 2, 3], size=count, p=[0.8, 0.1, 0.1])
    received = np.ones(count, bool)
    for offset in range(3):
        lost = np.flatnonzero(begins & (length > offset)) + offset
        received[lost[lost < count]] = False
    return received


def trial(
    generator: np.random.Generator,
    meter: Instrument,
    phase_s: float,
    calibration: Calibration = TRUE,
) -> Trial:
    """Run one phase through alignment and integration, with the rests that the agent makes."""
    load = scene(generator, meter, phase_s)
    table = records(load, meter, generator, calibration)
    phase, rests = (load.start_s, load.end_s), (load.rest_before_s, load.rest_after_s)
    return Trial(load.phase_j, integrated(table, meter, generator, phase, rests))
