"""Faults of wires and meters, on request and repeatable by a seed.

On the wire, each by its chance for a piece that is passed: `drop` loses one byte, `double` sends
one twice, `corrupt` changes one, `checksum` changes the last one before the line's end, `lose`
swallows the piece, `overrun` swallows up to some hundred bytes wherever records begin, `stall`
holds pieces back and lets them go at once, `banner` puts a greeting in between or in the middle.

In the meter, by their chance for a period: `step` lets its clock jump ahead, `restart` starts it
again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contract.strict_json import Document
from instrumentation.tests.simulators.registry import Simulator

WIRE_FAULTS = ("drop", "double", "corrupt", "checksum", "lose", "overrun", "stall", "banner")
BANNER = b"\r\nMeter ready, firmware 1.0\r\n"
OVERRUN_BYTES = (8, 400)
STALLED_PIECES = (2, 8)
STEP_PERIODS = (2, 50)
_LINE_END = b"\r\n"


@dataclass(frozen=True)
class WireFaults:
    """Chances of a wire's faults, per piece that is passed."""

    drop: float = 0.0
    double: float = 0.0
    corrupt: float = 0.0
    checksum: float = 0.0
    lose: float = 0.0
    overrun: float = 0.0
    stall: float = 0.0
    banner: float = 0.0


class FaultyWire:
    """A wire that passes bytes on with faults. `hit` counts the pieces that were changed."""

    def __init__(self, seed: int, faults: WireFaults = WireFaults()) -> None:
        self.hit = 0
        self.faults = faults
        self._random = random.Random(seed)
        self._to_swallow = self._to_hold = 0
        self._held = b""

    def carry(self, piece: bytes) -> bytes:
        """Return the bytes of one piece that arrive."""
        arrived = self._bent(piece)
        if self._random.random() < self.faults.lose:
            arrived = b""
        arrived = self._swallowed(arrived)
        if self._strikes(self.faults.banner):
            at = self._random.choice((0, self._random.randrange(len(arrived) + 1)))
            arrived = arrived[:at] + BANNER + arrived[at:]
        arrived = self._delayed(arrived)
        self.hit += arrived != piece
        return arrived

    def _strikes(self, chance: float) -> bool:
        """Draw only for an enabled fault, so that a further kind leaves the others alike."""
        return chance > 0 and self._random.random() < chance

    def _bent(self, piece: bytes) -> bytes:
        """Return the piece with one byte lost, doubled or changed."""
        arrived, faults = piece, self.faults
        if arrived and self._random.random() < faults.drop:
            at = self._random.randrange(len(arrived))
            arrived = arrived[:at] + arrived[at + 1 :]
        if arrived and self._random.random() < faults.double:
            at = self._random.randrange(len(arrived))
            arrived = arrived[:at] + arrived[at : at + 1] + arrived[at:]
        if arrived and self._random.random() < faults.corrupt:
            arrived = self._changed(arrived, self._random.randrange(len(arrived)))
        if (end := len(arrived.rstrip(_LINE_END))) and self._strikes(faults.checksum):
            arrived = self._changed(arrived, end - 1)
        return arrived

    def _changed(self, piece: bytes, at: int) -> bytes:
        changed = piece[at] ^ self._random.randrange(1, 256)
        return piece[:at] + bytes([changed]) + piece[at + 1 :]

    def _swallowed(self, piece: bytes) -> bytes:
        """Return the piece without the bytes that overran the buffer."""
        at = 0
        if piece and not self._to_swallow and self._strikes(self.faults.overrun):
            self._to_swallow = self._random.randint(*OVERRUN_BYTES)
            at = self._random.randrange(len(piece))
        lost = min(self._to_swallow, len(piece) - at)
        self._to_swallow -= lost
        return piece[:at] + piece[at + lost :]

    def _delayed(self, piece: bytes) -> bytes:
        """Hold pieces back while the wire is stalled; return all afterwards."""
        if not self._to_hold and self._strikes(self.faults.stall):
            self._to_hold = self._random.randint(*STALLED_PIECES)
        if self._to_hold:
            self._to_hold -= 1
            self._held += piece
            return b""
        held, self._held = self._held, b""
        return held + piece


class FaultyMeter:
    """A simulator whose meter's own clock steps or restarts; see `Simulator`.

    `make` makes the meter that was just switched on. `struck` are the times of the faults, in
    periods.
    """

    def __init__(
        self,
        make: Callable[[], Simulator],
        seed: int = 0,
        *,
        step: float = 0.0,
        restart: float = 0.0,
    ) -> None:
        self._make = make
        self._meter = make()
        self.channels: Sequence[str] = self._meter.channels
        self.full_scale_w = self._meter.full_scale_w
        self.resolution_w = self._meter.resolution_w
        self._random = random.Random(seed)
        self._step = step
        self._restart = restart
        self._periods = 0
        self._energy_j: NDArray[np.float64] = np.zeros(len(self._meter.channels))
        self._switched_on_j = self._energy_j
        self.struck: list[int] = []

    @property
    def settings(self) -> Document:
        return self._meter.settings

    @property
    def period_s(self) -> float:
        return self._meter.period_s

    def advance(self, energy_j: NDArray[np.float64]) -> bytes:
        self._strike()
        self._periods += len(energy_j)
        if len(energy_j):
            self._energy_j = np.asarray(energy_j[-1], np.float64)
        return self._meter.advance(energy_j - self._switched_on_j)

    def receive(self, data: bytes) -> bytes:
        return self._meter.receive(data)

    def _strike(self) -> None:
        if self._step and self._random.random() < self._step:
            self.struck.append(self._periods)
            periods = self._random.randint(*STEP_PERIODS)
            still = np.tile(self._energy_j - self._switched_on_j, (periods, 1))
            self._meter.advance(still)  # its clock continues, and nobody hears it
        if self._restart and self._random.random() < self._restart:
            self.struck.append(self._periods)
            self._meter = self._make()
            self._switched_on_j = self._energy_j
