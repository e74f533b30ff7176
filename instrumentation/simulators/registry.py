"""Simulators by the kind of meter that they play."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from instrumentation.choose import load_class

_PLACES = {
    "smartpower3": "instrumentation.simulators.smartpower3:SmartPower3Simulator",
}


class Simulator(Protocol):
    """A meter's stream, from energies since switching on. Made without arguments."""

    interval_ms: int
    channels: Sequence[str]

    def line(self, energy_j: Sequence[float]) -> bytes:
        """The next record on the wire, given the energy of each of `channels` so far, in J."""


def load(kind: str) -> type[Simulator]:
    """The simulator of a kind of meter. Raises UnknownNameError."""
    return load_class("simulated meter", kind, _PLACES)
