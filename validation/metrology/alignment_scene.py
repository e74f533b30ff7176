"""Sessions of a meter, for the benchmark of alignment; their truth is made here alone.

The true time is the controller's clock; the target's clock has an offset and a skew; the power is a
base with a swing in the intervals of high load, with noise on every reading. A reading is the sum
of the exact overlaps of its window with those intervals, and arrives after its window's end, late
by a serial line's delay. Each session has a watermark at both ends and half an hour of other load
between.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from analysis.energy.watermark import Fit, Readings, Watermark, fit
from analysis.energy.windows import fit as fit_times
from analysis.energy.windows import windows
from analysis.suite.clocks import Floats, Ints, TargetClock
from analysis.suite.samples import of_table
from instrumentation.watermark import CHIPS, chip_s, pad_s

BASE_W, SWING_W = 40.0, 20.0
APART_S = 1800.0
LATENCY_S = 0.016  # of a USB serial adapter's timer
LEAST_DELAY_S, MOST_DELAY_S = 0.001, 0.005
LIMIT_S = LATENCY_S + MOST_DELAY_S
DROPPED = 0.01
BOOT = "benchmark"


@dataclass(frozen=True)
class Scene:
    """A meter, and the targets of its alignment."""

    name: str
    period_s: float
    noise_w: float
    target_ms: float
    target_ppm: float


SCENES = (Scene("1 Hz", 1.0, 0.2, 20.0, 10.0), Scene("10 Hz", 0.1, 0.3, 3.0, 3.0))


@dataclass(frozen=True, eq=False)
class Session:
    """What a session leaves behind, and the truth, in s of the true time.

    `end_s` are the true ends of windows and `arrival_s` when their records came. The target's clock
    shows `offset_s` + (1 + `skew`) × true time.
    """

    scene: Scene
    end_s: Floats
    arrival_s: Floats
    power_w: Floats
    edges_s: tuple[Floats, Floats]
    offset_s: float
    skew: float

    def target_s(self, t_s: Floats) -> Floats:
        """The target's clock at true times."""
        return self.offset_s + (1 + self.skew) * t_s


def session(scene: Scene, generator: np.random.Generator, swing_w: float = SWING_W) -> Session:
    """One session."""
    chip, pad = chip_s(scene.period_s), pad_s(scene.period_s)
    places = np.flatnonzero(np.diff([0, *CHIPS, 0]))
    first, second = (
        start + chip * places + generator.uniform(0, 200e-6, len(places))
        for start in (10.0, 10.0 + APART_S)
    )
    cuts = np.sort(generator.uniform(first[-1] + pad, second[0] - pad, 160))
    loads = np.concatenate([first, cuts, second]).reshape(-1, 2)
    period = scene.period_s * (1 + generator.uniform(-100e-6, 100e-6))
    end = np.arange(generator.uniform(0, period), second[-1] + pad + 10, period) + period
    power = BASE_W + swing_w * loaded_s(loads, end - period, end) / period
    power += generator.normal(0, scene.noise_w, len(end))
    delay = generator.uniform(0, LATENCY_S, len(end))
    delay += generator.uniform(LEAST_DELAY_S, MOST_DELAY_S, len(end))
    kept = generator.random(len(end)) >= DROPPED
    return Session(
        scene=scene,
        end_s=end[kept],
        arrival_s=(end + delay)[kept],
        power_w=power[kept],
        edges_s=(first, second),
        offset_s=generator.uniform(-1.0, 1.0),
        skew=generator.uniform(-100e-6, 100e-6),
    )


def loaded_s(loads: Floats, start: Floats, end: Floats) -> Floats:
    """Seconds of load in each window, summed interval by interval."""
    total = np.zeros(len(end))
    for low, high in loads:
        rows = slice(np.searchsorted(end, low), np.searchsorted(start, high))
        inside = np.minimum(end[rows], high) - np.maximum(start[rows], low)
        total[rows] += np.clip(inside, 0, None)
    return total


def stamps_s(found: Session) -> Floats:
    """Ends of the windows as the analysis makes them, from numbered arrivals."""
    count = len(found.end_s)
    table = pl.DataFrame(
        {
            "epoch": np.ones(count, np.int32),
            "t_mono_ns": ns(found.arrival_s),
            "t_device_us": pl.Series([None] * count, dtype=pl.Int64),
            "window_s": np.full(count, found.scene.period_s),
            "power_w_system": found.power_w,
        }
    )
    samples = of_table(table)
    passing = windows(samples, fit_times(samples, "index", LIMIT_S), ["system"])
    return np.concatenate([part.end_ns for part in passing]) / 1e9


def link(found: Session, generator: np.random.Generator, wrong_s: float = 0.0) -> TargetClock:
    """A clock link of bursts of eight round trips every 30 s over a local network."""
    lines = []
    for burst in np.arange(0.0, found.end_s[-1] + 30, 30.0):
        for send in burst + np.arange(8) * 0.01:
            there, back = 150e-6 + generator.exponential(150e-6, 2)
            target = found.target_s(np.array([send + there]))[0] + wrong_s
            stamps = ns(np.array([send, target, send + there + back])).tolist()
            names = ("t_send_ns", "t_target_ns", "t_receive_ns")
            lines.append({**dict(zip(names, stamps, strict=True)), "boot_id": BOOT})
    return TargetClock.fit(lines)


def watermarks(found: Session, clock: TargetClock | None = None) -> list[Watermark]:
    """The edges by the target's clock, or where the clock link puts them."""
    marks = []
    for edges in found.edges_s:
        times = ns(found.target_s(edges)).tolist()
        if clock is not None:
            times = [clock.models[BOOT].to_controller_ns(t) for t in times]
        period_s = found.scene.period_s
        levels = tuple(1 - n % 2 for n in range(len(times)))
        marks.append(Watermark(tuple(times), levels, chip_s(period_s), pad_s(period_s)))
    return marks


def fitted(found: Session, ends_s: Floats, marks: list[Watermark]) -> Fit:
    """The fit of both watermarks in readings with these stamps."""
    width_s = np.full(len(ends_s), found.scene.period_s)
    return fit(Readings(ns(ends_s), width_s, found.power_w), marks)


def ns(t_s: Floats) -> Ints:
    return np.rint(t_s * 1e9).astype(np.int64)
