"""Alignment by the load watermark, and by the clock link, against a known truth.

An error of alignment is how far the offset that is found (of the stamps of the windows against the
target's clock) is from the true one, at the watermarks; an error of skew is against the skew that
was put in. For the clock link no watermark is used at all.

The truth of the sessions is made here alone. The true time is the controller's clock; the target's
clock has an offset and a skew; the power is a base with a swing in the intervals of high load, with
noise on every reading. A reading is the sum of the exact overlaps of its window with those
intervals, and arrives after its window's end, late by a serial line's delay. Each session has a
watermark at both ends and half an hour of other load between.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from matplotlib.figure import Figure as Picture

from analysis.energy.watermarks import (
    AGREES,
    CANNOT_TELL,
    DISAGREES,
    Fit,
    Readings,
    Watermark,
    agreement,
    fit,
)
from analysis.energy.windows import fit as fit_times
from analysis.energy.windows import windows
from analysis.suite.clocks import Floats, Ints, TargetClock
from analysis.suite.samples import of_table
from instrumentation.clock import ClockReading
from instrumentation.watermark import CHIPS, chip_s, pad_s
from validation.bench import Figure, at_least, at_most

BASE_W, SWING_W = 40.0, 20.0
APART_S = 1800.0
LATENCY_S = 0.016  # of a USB serial adapter's timer
LEAST_DELAY_S, MOST_DELAY_S = 0.001, 0.005
LIMIT_S = LATENCY_S + MOST_DELAY_S
DROPPED = 0.01
BOOT = "benchmark"
WRONG_LINK_S = 0.060
LEAST_HELD = 0.93  # of a bound of 95 %, as for energies
ENOUGH_SESSIONS = 100
TRIALS, QUICK_TRIALS = 400, 6


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
    """Records of a session, and the truth, in s of the true time.

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
        """Return the target's clock at true times."""
        return self.offset_s + (1 + self.skew) * t_s


def session(scene: Scene, generator: np.random.Generator, swing_w: float = SWING_W) -> Session:
    """Simulate one session."""
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
    stored = generator.random(len(end)) >= DROPPED
    return Session(
        scene=scene,
        end_s=end[stored],
        arrival_s=(end + delay)[stored],
        power_w=power[stored],
        edges_s=(first, second),
        offset_s=generator.uniform(-1.0, 1.0),
        skew=generator.uniform(-100e-6, 100e-6),
    )


def loaded_s(loads: Floats, start: Floats, end: Floats) -> Floats:
    """Return the seconds of load in each window, summed interval by interval."""
    total = np.zeros(len(end))
    for low, high in loads:
        rows = slice(np.searchsorted(end, low), np.searchsorted(start, high))
        inside = np.minimum(end[rows], high) - np.maximum(start[rows], low)
        total[rows] += np.clip(inside, 0, None)
    return total


def stamps_s(simulated: Session) -> Floats:
    """Return the windows' ends as the analysis computes them, from numbered arrivals."""
    count = len(simulated.end_s)
    table = pl.DataFrame(
        {
            "epoch": np.ones(count, np.int32),
            "t_mono_ns": ns(simulated.arrival_s),
            "t_device_us": pl.Series([None] * count, dtype=pl.Int64),
            "window_s": np.full(count, simulated.scene.period_s),
            "power_w_system": simulated.power_w,
        }
    )
    samples = of_table(table)
    passing = windows(samples, fit_times(samples, "index", LIMIT_S), ["system"])
    return np.concatenate([part.end_ns for part in passing]) / 1e9


def link(simulated: Session, generator: np.random.Generator, wrong_s: float = 0.0) -> TargetClock:
    """Return a clock link of bursts of eight round trips every 30 s over a local network."""
    lines = []
    for burst in np.arange(0.0, simulated.end_s[-1] + 30, 30.0):
        for send in burst + np.arange(8) * 0.01:
            forth_s, back_s = 150e-6 + generator.exponential(150e-6, 2)
            target = simulated.target_s(np.array([send + forth_s]))[0] + wrong_s
            sent_ns, target_ns, received_ns = ns(
                np.array([send, target, send + forth_s + back_s])
            ).tolist()
            lines.append(ClockReading(sent_ns, target_ns, received_ns, BOOT))
    return TargetClock.fit(lines)


def watermarks(simulated: Session, clock: TargetClock | None = None) -> list[Watermark]:
    """Return the edges by the target's clock, or as the clock link places them."""
    marks = []
    for edges in simulated.edges_s:
        times = ns(simulated.target_s(edges)).tolist()
        if clock is not None:
            times = [clock.models[BOOT].to_controller_ns(t) for t in times]
        period_s = simulated.scene.period_s
        levels = tuple(1 - n % 2 for n in range(len(times)))
        marks.append(Watermark(tuple(times), levels, chip_s(period_s), pad_s(period_s)))
    return marks


def fitted(simulated: Session, ends_s: Floats, marks: list[Watermark]) -> list[Fit]:
    """Return the fits of both watermarks in readings with these stamps."""
    width_s = np.full(len(ends_s), simulated.scene.period_s)
    readings = Readings(ns(ends_s), width_s, simulated.power_w)
    return [fit(readings, mark) for mark in marks]


def ns(t_s: Floats) -> Ints:
    """Convert seconds to whole nanoseconds."""
    return np.rint(t_s * 1e9).astype(np.int64)


class Errors(NamedTuple):
    """Errors of one way to align, two (start and end) a session; bounds where it states them."""

    offset_ms: list[float]
    offset_bound_ms: list[float]
    skew_ppm: list[float]
    skew_bound_ppm: list[float]


def _lag_s(simulated: Session, ends_s: Floats, k: int) -> float:
    """Return how late the stamps are around a watermark, in true time."""
    near = np.abs(simulated.end_s - simulated.edges_s[k].mean()) < 30
    return float(np.mean((ends_s - simulated.end_s)[near]))


def _note(errors: Errors, simulated: Session, ends_s: Floats, fits: list[Fit]) -> None:
    """Add the errors of the fits against the target's own clock."""
    middles_s = [(edges[0] + edges[-1]) / 2 for edges in simulated.edges_s]
    for k, (result, middle_s) in enumerate(zip(fits, middles_s, strict=True)):
        middle = np.array([middle_s])
        true_s = _lag_s(simulated, ends_s, k) - float((simulated.target_s(middle) - middle)[0])
        errors.offset_ms.append(abs(result.offset_ms - true_s * 1e3))
        errors.offset_bound_ms.append(result.bound_ms)
    per_ms = 1e3 / (middles_s[1] - middles_s[0])  # ppm of an ms at one end
    skew_ppm = (fits[1].offset_ms - fits[0].offset_ms) * per_ms
    errors.skew_ppm.append(abs(skew_ppm + simulated.skew * 1e6))
    errors.skew_bound_ppm.append((fits[0].bound_ms + fits[1].bound_ms) * per_ms)


def _note_link(errors: Errors, simulated: Session, ends_s: Floats, clock: TargetClock) -> None:
    """Add the errors of stamps and clock link without a watermark."""
    model = clock.models[BOOT]
    for k, edges in enumerate(simulated.edges_s):
        target = ns(simulated.target_s(edges))
        placed = [model.to_controller_ns(int(t)) / 1e9 for t in target]
        error_s = _lag_s(simulated, ends_s, k) - float(np.mean(placed - edges))
        errors.offset_ms.append(abs(error_s) * 1e3)
    errors.skew_ppm.append(abs(model.skew_ppm - simulated.skew * 1e6))


@dataclass(frozen=True, eq=False)
class Tally:
    """Results of the sessions of one meter."""

    scene: Scene
    watermark: Errors = field(default_factory=lambda: Errors([], [], [], []))
    arrivals: Errors = field(default_factory=lambda: Errors([], [], [], []))
    link: Errors = field(default_factory=lambda: Errors([], [], [], []))
    verdicts: list[str] = field(default_factory=list)
    verdicts_wrong_link: list[str] = field(default_factory=list)
    refused: list[bool] = field(default_factory=list)
    from_rest: list[bool] = field(default_factory=list)

    @classmethod
    def from_trials(cls, scene: Scene, trials: int) -> Tally:
        """Simulate this many sessions, the same ones each time."""
        tally = cls(scene)
        for trial in range(trials):
            tally.add(np.random.default_rng([trial, round(scene.period_s * 1000)]))
        return tally

    def add(self, generator: np.random.Generator) -> None:
        """Add one session, one with a wrong clock link, and one with an idle target."""
        simulated = session(self.scene, generator)
        clock, wrong = link(simulated, generator), link(simulated, generator, WRONG_LINK_S)
        ends_s = stamps_s(simulated)
        for errors, stamps in ((self.watermark, ends_s), (self.arrivals, simulated.arrival_s)):
            fits = fitted(simulated, stamps, watermarks(simulated))
            self.refused.append(any(result.problem for result in fits))
            if not self.refused[-1]:
                _note(errors, simulated, stamps, fits)
        _note_link(self.link, simulated, ends_s, clock)
        self.verdicts.append(_verdict(simulated, ends_s, clock))
        self.verdicts_wrong_link.append(_verdict(simulated, ends_s, wrong))
        idle = session(self.scene, generator, swing_w=0.0)
        fits = fitted(idle, idle.arrival_s, watermarks(idle))
        self.from_rest.append(not all(result.problem for result in fits))

    def figures(self) -> list[Figure]:
        """Return the table's lines."""
        at, scene, mark, link = f"at {self.scene.name}", self.scene, self.watermark, self.link
        offset, skew = "alignment, p95", "skew over 30 min, p95"
        held = _held(mark.offset_ms, mark.offset_bound_ms)
        skew_held = _held(mark.skew_ppm, mark.skew_bound_ppm)
        bound_ms = float(np.median(mark.offset_bound_ms))
        bare_ms = _p95(self.arrivals.offset_ms)
        agree = _share([verdict == AGREES for verdict in self.verdicts])
        noticed = _share([verdict == DISAGREES for verdict in self.verdicts_wrong_link])
        return [
            at_most(f"watermark {at}: {offset}", _p95(mark.offset_ms), "ms", scene.target_ms),
            at_most(f"watermark {at}: {skew}", _p95(mark.skew_ppm), "ppm", scene.target_ppm),
            _holds(f"watermark {at}: bound of offset holds", held, len(self.verdicts)),
            _holds(f"watermark {at}: bound of skew holds", skew_held, len(self.verdicts)),
            Figure(f"watermark {at}: bound of offset, median", bound_ms, "ms"),
            Figure(f"watermark {at}, bare arrivals: {offset}", bare_ms, "ms"),
            at_most(f"watermark {at}: not seen though played", _share(self.refused), "share", 0),
            at_most(f"watermark {at}: seen though at rest", _share(self.from_rest), "share", 0),
            at_most(f"clock link {at}: {offset}", _p95(link.offset_ms), "ms", scene.target_ms),
            at_most(f"clock link {at}: {skew}", _p95(link.skew_ppm), "ppm", scene.target_ppm),
            at_least(f"both {at}: agree where both are right", agree, "share", 0.99),
            at_least(f"both {at}: link wrong by 60 ms noticed", noticed, "share", 1.0),
        ]


def _holds(name: str, share: float, sessions: int) -> Figure:
    """Return the share held; without a target if there are too few sessions to show 95 %."""
    enough = sessions >= ENOUGH_SESSIONS
    return at_least(name, share, "share", LEAST_HELD) if enough else Figure(name, share, "share")


def _share(flags: list[bool]) -> float:
    return sum(flags) / len(flags)


def _verdict(simulated: Session, ends_s: Floats, clock: TargetClock) -> str:
    fits = fitted(simulated, ends_s, watermarks(simulated, clock))
    verdicts = set()
    for edges, result in zip(simulated.edges_s, fits, strict=True):
        t_ns = int(ns(simulated.target_s(edges))[0])
        bound_ms = (clock.bound_ns(BOOT, t_ns) or 0) / 1e6
        verdicts.add(agreement(result, -bound_ms, LIMIT_S * 1e3 + bound_ms)[0])
    return min(verdicts, key=(DISAGREES, CANNOT_TELL, AGREES).index)


def _p95(errors: list[float]) -> float:
    return float(np.quantile(errors, 0.95)) if errors else float("nan")


def _held(errors: list[float], bounds: list[float]) -> float:
    return float(np.mean(np.array(errors) <= np.array(bounds))) if errors else float("nan")


def measure(quick: bool = False) -> list[Figure]:
    """Measure both meters; `quick` for a smoke test."""
    figures = []
    for scene in SCENES:
        print(f"alignment: {scene.name}", file=sys.stderr, flush=True)
        figures += Tally.from_trials(scene, QUICK_TRIALS if quick else TRIALS).figures()
    return figures


def plot(path: Path) -> None:
    """Plot the readings of a watermark, and the load averaged over the fitted window."""
    picture = Picture(figsize=(9, 6), layout="constrained")
    for axes, scene in zip(picture.subplots(len(SCENES), 1), SCENES, strict=True):
        simulated = session(scene, np.random.default_rng(1))
        ends_s = stamps_s(simulated)
        result = fitted(simulated, ends_s, watermarks(simulated))[0]
        edges = simulated.edges_s[0]
        offset_s, window_s = result.offset_ms / 1e3, result.window_s
        at_s = simulated.target_s(edges) + offset_s + (scene.period_s - window_s) / 2
        fine_s = np.linspace(at_s[0] - 3 * scene.period_s, at_s[-1] + 4 * scene.period_s, 4000)
        mean = loaded_s(at_s.reshape(-1, 2), fine_s - window_s, fine_s) / window_s
        near = (ends_s > fine_s[0]) & (ends_s < fine_s[-1])
        low = float(np.quantile(simulated.power_w[near], 0.1))
        axes.plot(fine_s, low + SWING_W * mean, color="#888", label="load, averaged")
        axes.plot(ends_s[near], simulated.power_w[near], ".", color="#06c", label="readings")
        axes.set_title(
            f"{scene.name}: window {window_s:.3f} s, main / side lobe {result.quality:.1f}",
            loc="left",
        )
        axes.set_ylabel("W")
    axes.set_xlabel("s of the controller's clock")
    axes.legend(frameon=False)
    picture.savefig(path, dpi=120)
