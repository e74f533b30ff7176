"""Holds a meter's own energy counter against the integral of its power where both are known."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from analysis.energy.curve import Piece
from analysis.suite.clocks import Floats

# Share of the energy by which counter and power may differ by their limits of error: tolerance of
# our own, since makers seldom state those of a counter.
TOLERANCE = 0.05
_SIGMAS = 3.0
_TELLING = 0.5  # a tolerance beyond this share of the energy would let pass a counter of two loads


@dataclass
class CounterCheck:
    """Sums over all stretches without a gap, from the first known count to the last one, in J.

    Tolerated are `TOLERANCE`, the counter's last digit at both ends of each stretch, and three
    times the scatter of the windows: a plug's power may be a glance, while its counter sees all.
    Steps count for no more than twice the most that the counter moved at once: a single reading far
    above the others must not excuse itself.
    """

    counted_j: float = 0.0
    measured_j: float = 0.0
    _stretches: int = 0
    _scatter_j2: float = 0.0
    _largest_j: float = 0.0  # of a window
    _most_moved_j: float = 0.0  # by the counter from one known count to the next
    _last_j: float = math.nan  # the count that was known last
    _since_j: float = 0.0  # energy of the windows since then
    _in_stretch: bool = False  # whether something since the last gap was compared

    def take(self, piece: Piece, power_w: Floats, counter_j: Floats) -> None:
        """Compare the piece's windows."""
        held, inside = piece.held, slice(piece.begin, piece.end)
        before = max(piece.begin - 1, 0)
        apart = np.ones(piece.end - piece.begin, np.bool_)
        apart[0 if piece.begin else 1 :] = (
            held.start_ns[before + 1 : piece.end] > held.end_ns[before : piece.end - 1]
        ) | (held.epoch[before + 1 : piece.end] != held.epoch[before : piece.end - 1])
        energy_j = power_w[inside] * piece.width_s[inside]
        total_j, stretch = np.cumsum(energy_j), np.cumsum(apart)
        known = np.flatnonzero(np.isfinite(counter_j[inside]))
        count_j = np.concatenate([[self._last_j], counter_j[inside][known]])
        reached_j = np.concatenate([[-self._since_j], total_j[known]])
        number = np.concatenate([[0], stretch[known]])
        same = (np.diff(number) == 0) & np.isfinite(count_j[:-1])
        moved_j = np.diff(count_j)[same]
        self.counted_j += float(moved_j.sum())
        self._most_moved_j = max(self._most_moved_j, float(np.max(moved_j, initial=0.0)))
        self.measured_j += float(np.diff(reached_j)[same].sum())
        compared = np.unique(number[1:][same])
        self._stretches += len(compared) - (0 in compared and self._in_stretch)
        self._in_stretch = stretch[-1] in compared or (stretch[-1] == 0 and self._in_stretch)
        steps_j = np.diff(energy_j)[~apart[1:]]
        if self._most_moved_j:
            steps_j = steps_j.clip(-2 * self._most_moved_j, 2 * self._most_moved_j)
        self._scatter_j2 += float(steps_j @ steps_j) / 2
        self._largest_j = max(self._largest_j, float(np.max(np.abs(energy_j))))
        if len(known) and number[-1] == stretch[-1]:
            self._last_j, self._since_j = float(count_j[-1]), float(total_j[-1] - reached_j[-1])
        elif stretch[-1]:
            self._last_j, self._since_j = math.nan, 0.0
        else:
            self._since_j += float(total_j[-1])

    def _tolerance_j(self, quantum_j: float) -> float:
        noise_j = _SIGMAS * math.sqrt(self._scatter_j2)
        return TOLERANCE * abs(self.measured_j) + self._stretches * quantum_j + noise_j

    def agrees(self, quantum_j: float) -> bool:
        """Whether the counter was seen to be that of this power; `quantum_j` is its last digit."""
        tolerance_j = self._tolerance_j(quantum_j)
        telling = tolerance_j < _TELLING * abs(self.measured_j)
        return telling and abs(self.counted_j - self.measured_j) <= tolerance_j

    def contradicts(self, quantum_j: float) -> bool:
        """Whether it cannot be, even if it moves a window late at one end of each stretch."""
        late_j = self._stretches * min(self._largest_j, self._most_moved_j)
        return abs(self.counted_j - self.measured_j) > self._tolerance_j(quantum_j) + late_j
