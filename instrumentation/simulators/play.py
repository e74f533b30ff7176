"""Plays a simulated meter on a pseudo-terminal in real time, with faults if wanted."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from instrumentation.simulators.faults import Faults
from instrumentation.simulators.port import SimulatedPort
from instrumentation.simulators.registry import Simulator

UNPLUGGED_S = 1.0
_PIECE_S = 0.004  # a faster meter's readings are sent this much at a time
_LOOK_S = 0.1


class Player:
    """One meter at one link. `run` returns when `stopped()` says so; `close` unplugs it.

    `watts` is the power through each channel; `make` makes the meter as it is when it was switched
    on.
    """

    def __init__(
        self,
        make: Callable[[], Simulator],
        link: Path,
        watts: Sequence[float],
        faults: Faults = Faults(),  # noqa: B008 - frozen
        seed: int = 0,
    ) -> None:
        self._meter = faults.meter(make, seed)
        if len(watts) != len(self._meter.channels):
            raise ValueError(
                f"This meter has {len(self._meter.channels)} channels "
                f"({', '.join(self._meter.channels)}): give as many watts."
            )
        self._watts = np.asarray(watts, np.float64)
        self._wire = faults.wire(seed)
        self._unplug = faults.unplug
        self._random = random.Random(seed)
        self._period_s = self._meter.period_s / (1 + faults.skew * 1e-6)  # in true seconds
        self._together = max(1, round(_PIECE_S / self._period_s))
        self._link = link
        self._port = SimulatedPort(link)
        self._done = 0
        self._back_s: float | None = None  # when it will be plugged in again
        self.unplugged = 0

    @property
    def hit(self) -> int:
        """Pieces that did not leave as they were made, and faults of the meter itself."""
        return self._wire.hit + len(self._meter.struck) + self.unplugged

    def run(self, stopped: Callable[[], bool]) -> None:
        """Play."""
        start_s = time.monotonic()
        while not stopped():
            due_s = start_s + (self._done + self._together) * self._period_s
            wait_s = due_s - time.monotonic()
            if wait_s <= 0:
                self._advance()
                continue
            self._port.wait(min(wait_s, _LOOK_S))
            if asked := self._port.receive():
                self._send(self._meter.receive(asked))

    def _advance(self) -> None:
        periods = np.arange(self._done + 1, self._done + self._together + 1)
        self._done += self._together
        # By its own clock: a meter averages what it samples, so its clock's error changes no watts.
        own_s = periods * self._meter.period_s
        self._send(self._meter.advance(np.outer(own_s, self._watts)))
        if self._back_s is not None:
            self._plug_in(self._back_s)
        elif self._unplug and self._random.random() < self._unplug:
            self._pull()

    def _send(self, data: bytes) -> None:
        if arrived := self._wire.carry(data):
            self._port.send(arrived)

    def _pull(self) -> None:
        """Away for a while. Where it will be back is made now, while the old number is taken."""
        self.unplugged += 1
        back = SimulatedPort(self._link.with_name(f".{self._link.name}.unplugged"))
        self._port.close()
        self._port = back
        self._back_s = time.monotonic() + UNPLUGGED_S

    def _plug_in(self, back_s: float) -> None:
        if time.monotonic() >= back_s:
            self._port.rename(self._link)
            self._back_s = None

    def close(self) -> None:
        """Unplug it for good."""
        self._port.close()
