"""Alignment by the load watermark, and by the clock link, against a truth that is known.

An error of alignment is how far the offset that is found (of the stamps of the windows against the
target's clock) is from the true one, at the watermarks; an error of skew is against the skew that
was put in. For the clock link no watermark is used at all. The sessions are those of
`alignment_scene`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure as Picture

from analysis.energy.watermark import Fit
from analysis.energy.watermarks import AGREES, DISAGREES, agreement
from analysis.suite.clocks import Floats, TargetClock
from validation.bench import Figure, at_least, at_most
from validation.metrology.alignment_scene import (
    BOOT,
    LIMIT_S,
    SCENES,
    Scene,
    Session,
    fitted,
    link,
    loaded_s,
    ns,
    session,
    stamps_s,
    watermarks,
)

WRONG_LINK_S = 0.060
LEAST_HELD = 0.93  # of a bound of 95 %, as for energies
ENOUGH_SESSIONS = 100
TRIALS, QUICK_TRIALS = 400, 6


class Errors(NamedTuple):
    """Errors of one way to align, two (start and end) a session; bounds where it states them."""

    offset_ms: list[float]
    offset_bound_ms: list[float]
    skew_ppm: list[float]
    skew_bound_ppm: list[float]


def _lag_s(found: Session, ends_s: Floats, k: int) -> float:
    """How late the stamps are around a watermark, in true time."""
    near = np.abs(found.end_s - found.edges_s[k].mean()) < 30
    return float(np.mean((ends_s - found.end_s)[near]))


def _note(errors: Errors, found: Session, ends_s: Floats, result: Fit) -> None:
    """Add what a fit against the target's own clock got wrong."""
    for k, edges in enumerate(found.edges_s):
        middle = np.array([(edges[0] + edges[-1]) / 2])
        true_s = _lag_s(found, ends_s, k) - float((found.target_s(middle) - middle)[0])
        errors.offset_ms.append(abs(result.offset_ms[k] - true_s * 1e3))
        errors.offset_bound_ms.append(result.bound_ms[k])
    errors.skew_ppm.append(abs((result.skew_ppm or 0.0) + found.skew * 1e6))
    errors.skew_bound_ppm.append(result.skew_bound_ppm or 0.0)


def _note_link(errors: Errors, found: Session, ends_s: Floats, clock: TargetClock) -> None:
    """Add what stamps and clock link alone get wrong."""
    model = clock.models[BOOT]
    for k, edges in enumerate(found.edges_s):
        target = ns(found.target_s(edges))
        placed = [model.to_controller_ns(int(t)) / 1e9 for t in target]
        error_s = _lag_s(found, ends_s, k) - float(np.mean(placed - edges))
        errors.offset_ms.append(abs(error_s) * 1e3)
    errors.skew_ppm.append(abs(model.skew_ppm - found.skew * 1e6))


@dataclass(frozen=True, eq=False)
class Tally:
    """What the sessions of one meter showed."""

    scene: Scene
    watermark: Errors = field(default_factory=lambda: Errors([], [], [], []))
    arrivals: Errors = field(default_factory=lambda: Errors([], [], [], []))
    link: Errors = field(default_factory=lambda: Errors([], [], [], []))
    verdicts: list[str] = field(default_factory=list)
    verdicts_wrong_link: list[str] = field(default_factory=list)
    refused: list[bool] = field(default_factory=list)
    from_rest: list[bool] = field(default_factory=list)

    @classmethod
    def of(cls, scene: Scene, trials: int) -> Tally:
        """So many sessions, the same ones each time."""
        tally = cls(scene)
        for trial in range(trials):
            tally.add(np.random.default_rng([trial, round(scene.period_s * 1000)]))
        return tally

    def add(self, generator: np.random.Generator) -> None:
        """One session, its like with a wrong clock link, and one whose target rested."""
        found = session(self.scene, generator)
        clock, wrong = link(found, generator), link(found, generator, WRONG_LINK_S)
        ends_s = stamps_s(found)
        for errors, stamps in ((self.watermark, ends_s), (self.arrivals, found.arrival_s)):
            result = fitted(found, stamps, watermarks(found))
            self.refused.append(bool(result.problem))
            if not result.problem:
                _note(errors, found, stamps, result)
        _note_link(self.link, found, ends_s, clock)
        self.verdicts.append(_verdict(found, ends_s, clock))
        self.verdicts_wrong_link.append(_verdict(found, ends_s, wrong))
        idle = session(self.scene, generator, swing_w=0.0)
        self.from_rest.append(not fitted(idle, idle.arrival_s, watermarks(idle)).problem)

    def figures(self) -> list[Figure]:
        """The table's lines."""
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
    """A few sessions tell no share of 95 %, so it has no target then."""
    enough = sessions >= ENOUGH_SESSIONS
    return at_least(name, share, "share", LEAST_HELD) if enough else Figure(name, share, "share")


def _share(flags: list[bool]) -> float:
    return sum(flags) / len(flags)


def _verdict(found: Session, ends_s: Floats, clock: TargetClock) -> str:
    marks = watermarks(found, clock)
    allowed = []
    for edges in found.edges_s:
        t_ns = int(ns(found.target_s(edges))[0])
        bound_ms = (clock.bound_ns(BOOT, t_ns) or 0) / 1e6
        allowed.append((-bound_ms, LIMIT_S * 1e3 + bound_ms))
    return agreement(fitted(found, ends_s, marks), allowed)[0]


def _p95(errors: list[float]) -> float:
    return float(np.quantile(errors, 0.95)) if errors else float("nan")


def _held(errors: list[float], bounds: list[float]) -> float:
    return float(np.mean(np.array(errors) <= np.array(bounds))) if errors else float("nan")


def measure(quick: bool = False) -> list[Figure]:
    """Both meters; `quick` for a smoke test."""
    figures = []
    for scene in SCENES:
        print(f"alignment: {scene.name}", file=sys.stderr, flush=True)
        figures += Tally.of(scene, QUICK_TRIALS if quick else TRIALS).figures()
    return figures


def plot(path: Path) -> None:
    """The readings of a watermark, and the load averaged over the fitted window."""
    picture = Picture(figsize=(9, 6), layout="constrained")
    for axes, scene in zip(picture.subplots(len(SCENES), 1), SCENES, strict=True):
        found = session(scene, np.random.default_rng(1))
        ends_s = stamps_s(found)
        result = fitted(found, ends_s, watermarks(found))
        edges = found.edges_s[0]
        offset_s = result.offset_ms[0] / 1e3
        window_s = result.window_s or scene.period_s
        at_s = found.target_s(edges) + offset_s + (scene.period_s - window_s) / 2
        fine_s = np.linspace(at_s[0] - 3 * scene.period_s, at_s[-1] + 4 * scene.period_s, 4000)
        mean = loaded_s(at_s.reshape(-1, 2), fine_s - window_s, fine_s) / window_s
        near = (ends_s > fine_s[0]) & (ends_s < fine_s[-1])
        low = float(np.quantile(found.power_w[near], 0.1))
        axes.plot(fine_s, low + (result.swing_w or 0) * mean, color="#888", label="load, averaged")
        axes.plot(ends_s[near], found.power_w[near], ".", color="#06c", label="readings")
        axes.set_title(
            f"{scene.name}: window {window_s:.3f} s, main / side lobe {result.quality:.1f}",
            loc="left",
        )
        axes.set_ylabel("W")
    axes.set_xlabel("s of the controller's clock")
    axes.legend(frameon=False)
    picture.savefig(path, dpi=120)
