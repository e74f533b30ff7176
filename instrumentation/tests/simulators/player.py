"""Play a simulated meter in real time at a pseudo-terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from instrumentation.simulators.play import SimulatedPort
from instrumentation.tests.simulators.registry import Simulator

_PIECE_S = 0.004  # a faster meter's readings are sent this much at a time
_LOOK_S = 0.1


class Player:
    """A meter played at one link. `run` returns once `stopped()` is true; `close` unplugs it.

    `watts` is the power through each channel of `meter`, which was just switched on.
    """

    def __init__(self, meter: Simulator, link: Path, watts: Sequence[float]) -> None:
        self._meter = meter
        self._watts = np.asarray(watts, np.float64)
        self._together = max(1, round(_PIECE_S / meter.period_s))
        self._port = SimulatedPort(link)

    def run(self, stopped: Callable[[], bool]) -> None:
        start_s, count = time.monotonic(), 0
        while not stopped():
            due_s = start_s + (count + self._together) * self._meter.period_s
            wait_s = due_s - time.monotonic()
            if wait_s <= 0:
                periods = np.arange(count + 1, count + self._together + 1)
                count += self._together
                energy_j = np.outer(periods * self._meter.period_s, self._watts)
                self._send(self._meter.advance(energy_j))
                continue
            self._port.wait(min(wait_s, _LOOK_S))
            if asked := self._port.receive():
                self._send(self._meter.receive(asked))

    def _send(self, data: bytes) -> None:
        if data:
            self._port.send(data)

    def close(self) -> None:
        """Close the port."""
        self._port.close()
