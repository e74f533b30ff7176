"""Windows in memory: a piece of a channel's course, with what lies around it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.energy.windows import Windows
from analysis.suite.align import Floats, Ints


@dataclass(frozen=True, eq=False)
class Piece:
    """Windows begin…end − 1 of `held`, and those around them, which are only looked at.

    `gaps` are the numbers of the windows behind which there is a gap.
    """

    held: Windows
    begin: int
    end: int
    width_s: Floats
    gaps: Ints

    @classmethod
    def of(cls, held: Windows, begin: int, end: int) -> Piece:
        """With what all channels have in common."""
        width_s = np.asarray((held.end_ns - held.start_ns) * 1e-9, np.float64)
        first = max(begin - 1, 0)
        apart = held.start_ns[first + 1 : end] > held.end_ns[first : max(end - 1, first)]
        return cls(held, begin, end, width_s, first + np.flatnonzero(apart))

    def between(self, power: Floats, a: int, b: int) -> tuple[float, float]:
        """Energy and time of the windows from a to b − 1; less than nothing where b < a."""
        if b < a:
            energy_j, covered_s = self.between(power, b, a)
            return -energy_j, -covered_s
        inside = slice(a, b)
        # Not a product of vectors: BLAS would share so small a sum out to threads.
        energy_j = (power[inside] * self.width_s[inside]).sum()
        return float(energy_j), float(self.width_s[inside].sum())


def appended(a: Windows, b: Windows) -> Windows:
    """Windows of b behind those of a."""
    return Windows(
        np.concatenate([a.start_ns, b.start_ns]),
        np.concatenate([a.end_ns, b.end_ns]),
        np.concatenate([a.epoch, b.epoch]),
        {name: np.concatenate([a.power_w[name], b.power_w[name]]) for name in a.power_w},
        {name: np.concatenate([a.energy_j[name], b.energy_j[name]]) for name in a.energy_j},
    )


def from_window(held: Windows, keep: int) -> Windows:
    """Windows from number `keep` on."""
    return Windows(
        held.start_ns[keep:],
        held.end_ns[keep:],
        held.epoch[keep:],
        {name: values[keep:] for name, values in held.power_w.items()},
        {name: values[keep:] for name, values in held.energy_j.items()},
    )
