"""Delay of a meter's readings behind the load, from how they fall at the beginning of a rest.

A mean over k declared windows, or a low-pass filter, still shows load in windows entirely within
the rest. Their energy in excess of the rest's level, divided by the step of the power, is the delay
of the readings, except for the part in the cut window.

Other meters are read more often than they measure, so that they repeat values at a steady rate, or
show a new value only after the power has changed by some watts: no change is smaller, and many are
little larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.suite.clocks import Floats

SLOW_FLAG = "slower-than-declared"
LEAST_WINDOWS = 3  # of a rest: fewer cannot show both a fall and a level
SIGMAS = 2.0  # of the mean fall, below which it is chance
CLEAR = 3.0  # standard deviations of the rests by which the power has to step at their beginnings
LEAST_RESTS = 3  # rests from which on their scatter is estimated
PREFIXES = 2 ** np.arange(7)  # numbers of windows over which the fall is summed
# Share of the step that the first window of the rest has to show. A machine that cools shows some
# hundredths as well, but most of them in the second window, too.
FIRST_SHARE, ABRUPT_SHARE = 0.12, 0.03
SLOW_WINDOWS = 0.3  # delay in windows from which on a meter is slower than declared


@dataclass(frozen=True)
class Decay:
    """The fall of the readings behind one edge, relative to the rest's level.

    `excess_j` is that of the first windows without load, for each number in PREFIXES, `first_w` and
    `second_w` that of the first two, `swing_w` that of the window before the edge.
    """

    excess_j: Floats
    first_w: float
    second_w: float
    swing_w: float
    scatter_w2: float

    @classmethod
    def measure(cls, before_w: float, rest_w: Floats, width_s: Floats) -> Decay | None:
        """Measure the fall from `before_w` in the windows of a rest; None if they are too few."""
        if len(rest_w) < LEAST_WINDOWS:
            return None
        late_w = rest_w[-max(len(rest_w) // 3, 2) :]
        level_w = float(np.median(late_w))
        above_w = rest_w - level_w
        ends = np.minimum(PREFIXES, len(rest_w)) - 1
        excess_j = np.cumsum(above_w * width_s)[ends]
        first_w, second_w = above_w[:2].tolist()
        scatter_w2 = float(np.var(late_w, ddof=1))
        return cls(excess_j, first_w, second_w, before_w - level_w, scatter_w2)


def settling_s(decays: Sequence[Decay], width_s: float, tolerance_s: float) -> float:
    """Return the mean delay of the readings in s; 0 if chance or cooling explains the falls.

    The cut window is part of the delay, and so are the windows within `tolerance_s`, in which load
    may last beyond its mark and windows may be displaced.
    """
    if len(decays) < LEAST_RESTS:
        return 0.0
    first_w, second_w, swing_w, scatter_w2 = (
        np.array([getattr(decay, name) for decay in decays])
        for name in ("first_w", "second_w", "swing_w", "scatter_w2")
    )
    squares_w2 = float(swing_w @ swing_w)
    if squares_w2 <= CLEAR**2 * float(scatter_w2.sum()):
        return 0.0
    first, second = (float(w @ swing_w) / squares_w2 for w in (first_w, second_w))
    if first <= FIRST_SHARE and first <= max(ABRUPT_SHARE, 2 * second):
        return 0.0
    excess_j = np.array([decay.excess_j for decay in decays])
    shown_s = swing_w @ excess_j / squares_w2
    residual_j = excess_j - np.outer(swing_w, shown_s)
    chance_s = np.sqrt((residual_j**2).sum(axis=0) / max(len(decays) - 1, 1) / squares_w2)
    longest_s = float(shown_s.max(where=shown_s > SIGMAS * chance_s, initial=0.0))
    return longest_s + width_s / 2 + tolerance_s if longest_s > 0 else 0.0


HELD_FLAG = "readings-held"
FEW_HOLDS, FEW_CHANGES = 8, 20  # fewer repetitions or changes are no evidence
FINE = 10  # last digits from which on a least change is not due to rounding
# Changes of different size between the least and twice that; n by chance once in 2ⁿ.
CROWDED = 12


@dataclass(frozen=True)
class Updates:
    """Number of readings per new value (1: none repeated), and the least change in W."""

    readings: float = 1.0
    step_w: float = 0.0

    @classmethod
    def seen_in(cls, power_w: Floats, quantum_w: float) -> Updates:
        """Detect updates in consecutive readings of one channel with this last digit."""
        change_w = np.abs(np.diff(power_w))
        moved = np.flatnonzero(change_w)
        holds = int(np.count_nonzero(np.diff(moved) > 1))
        if holds < FEW_HOLDS or len(moved) < FEW_CHANGES:
            return cls()
        interval = np.diff(moved)
        shortest, usual = np.quantile(interval, (0.05, 0.5), method="lower")
        if shortest > 1 and usual <= 2 * shortest:
            return cls(float(shortest))
        size_w = change_w[moved]
        step_w = float(size_w.min())
        crowd = np.unique(np.round(size_w[size_w < 2 * step_w], 9))
        if step_w > FINE * quantum_w and len(crowd) >= CROWDED:
            return cls(step_w=step_w)
        return cls()

    @property
    def held(self) -> bool:
        """Whether readings repeat older ones."""
        return self != Updates()
