"""How often a meter's readings change, and by how much at least: some are held on purpose.

A plug that is asked more often than it measures repeats its values at a steady rate. Others show
a new value only where the power has moved by some watts: no change is smaller, many little larger.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.suite.clocks import Floats

HELD_FLAG = "readings-held"
FEW_HOLDS, FEW_CHANGES = 8, 20  # fewer repetitions or changes tell nothing
FINE = 10  # last digits from which on a least change is none of rounding
# Changes of different size between the least and twice that; chance leaves n there once in 2ⁿ.
CROWDED = 12


@dataclass(frozen=True)
class Updates:
    """Readings for each new value (1: none is held), and the least change of a held value in W."""

    readings: float = 1.0
    step_w: float = 0.0

    @classmethod
    def seen_in(cls, power_w: Floats, quantum_w: float) -> Updates:
        """Find updates from consecutive readings of one channel and their last digit."""
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
