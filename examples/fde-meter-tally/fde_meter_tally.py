"""A made-up meter, and its simulator. Unasked, it sends ten lines a second, such as

    #0000001000 012345mW 0000012.34J

its own time in ms, the mean power since the line before, and the energy since it was switched on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from instrumentation.meters import line

PERIOD_MS = 100
MOST_MW = 999_999


@dataclass(frozen=True)
class Settings(line.Settings):
    """Nothing is left to the inventory."""

    pattern: str = r"#(?P<t_ms>\d{10}) (?P<power_mw>\d{6})mW (?P<energy_j>\d{7}\.\d\d)J"
    period_s: float = PERIOD_MS / 1000
    relative_limit: float | None = 0.005
    absolute_limit_w: float | None = 0.001
    accuracy_source: str = "this example's own description"


class TallyMeter(line.LineMeter):
    """Driver: lines, a clock and a counter are read as `line` reads them."""

    kind: ClassVar[str] = "tally"
    name: ClassVar[str] = "Tally (example)"
    own_channels: ClassVar[tuple[str, ...]] = ("0",)
    Settings: ClassVar[type[Any]] = Settings


class TallySimulator:
    """The meter's side of the wire; see `instrumentation.tests.simulators.registry.Simulator`."""

    kind: ClassVar[str] = "tally"
    channels = ("0",)
    full_scale_w = MOST_MW / 1000
    resolution_w = 0.00051
    period_s = PERIOD_MS / 1000
    settings: ClassVar[Mapping[str, Any]] = {}

    def __init__(self) -> None:
        self.t_ms = 0
        self._before_j = 0.0

    def advance(self, energy_j: NDArray[np.float64]) -> bytes:
        return b"".join(self._line(float(joules)) for joules in energy_j[:, 0])

    def receive(self, data: bytes) -> bytes:
        del data
        return b""

    def _line(self, energy_j: float) -> bytes:
        self.t_ms = (self.t_ms + PERIOD_MS) % (1 << 32)
        power_mw = min(MOST_MW, round((energy_j - self._before_j) / PERIOD_MS * 1e6))
        self._before_j = energy_j
        return f"#{self.t_ms:010d} {power_mw:06d}mW {energy_j:010.2f}J\n".encode("ascii")
