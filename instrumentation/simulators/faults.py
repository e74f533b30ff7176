"""Faults on the wire, on request and repeatable: bytes lost, doubled and changed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass
class FaultyWire:
    """Passes bytes on with faults; each chance is per piece that is passed.

    `drop` loses one byte, `double` sends one twice, `corrupt` changes one, `lose` swallows the
    piece. `hit` counts the pieces that did not arrive as they were sent.
    """

    seed: int
    drop: float = 0.0
    double: float = 0.0
    corrupt: float = 0.0
    lose: float = 0.0
    hit: int = 0
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def carry(self, piece: bytes) -> bytes:
        """What arrives of one piece."""
        arrived = piece
        if arrived and self._random.random() < self.drop:
            at = self._random.randrange(len(arrived))
            arrived = arrived[:at] + arrived[at + 1 :]
        if arrived and self._random.random() < self.double:
            at = self._random.randrange(len(arrived))
            arrived = arrived[:at] + arrived[at : at + 1] + arrived[at:]
        if arrived and self._random.random() < self.corrupt:
            at = self._random.randrange(len(arrived))
            changed = arrived[at] ^ self._random.randrange(1, 256)
            arrived = arrived[:at] + bytes([changed]) + arrived[at + 1 :]
        if self._random.random() < self.lose:
            arrived = b""
        self.hit += arrived != piece
        return arrived
