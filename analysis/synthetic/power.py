"""Power that is known at every instant, and the clocks by which it is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
COMPONENTS = ("system", "drive", "package-0", "dram")


class Power:
    """Piecewise constant power of the components in W; its integral is the truth."""

    def __init__(self, names: Sequence[str] = COMPONENTS) -> None:
        self.names = tuple(names)
        self._t_s: list[float] = [0.0]
        self._energy_j: list[list[float]] = [[0.0] * len(names)]
        self._known: tuple[Floats, Floats] | None = None

    @property
    def end_s(self) -> float:
        """Where the last stretch ends."""
        return self._t_s[-1]

    def add(self, seconds: float, watts: Sequence[float]) -> tuple[float, float]:
        """A stretch of constant power, by component; returns its begin and end."""
        begin = self.end_s
        self._t_s.append(begin + seconds)
        last = self._energy_j[-1]
        self._energy_j.append([e + w * seconds for e, w in zip(last, watts, strict=True)])
        self._known = None
        return begin, self.end_s

    def at(self, name: str, t_s: float) -> float:
        """Joules of a component since the beginning."""
        return float(self.all_at(name, np.array([t_s]))[0])

    def all_at(self, name: str, t_s: Floats) -> Floats:
        """The same at many instants."""
        if self._known is None:
            self._known = np.array(self._t_s), np.array(self._energy_j)
        times, energies = self._known
        return np.interp(t_s, times, energies[:, self.names.index(name)])


@dataclass(frozen=True)
class Clocks:
    """How the target's and the meter's clocks stand to the controller's, whose seconds are ours."""

    target_offset_ns: int = 398_000_000
    target_skew: float = 12e-6
    device_skew: float = -25e-6

    def target_ns(self, controller_s: float) -> int:
        """The target's clock at an instant of the controller's."""
        return round(controller_s * 1e9 * (1 + self.target_skew)) + self.target_offset_ns
