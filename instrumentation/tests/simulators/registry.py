"""Simulators by kind of meter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from contract.extensions import Group
from contract.strict_json import Document
from instrumentation.simulators.smartpower3 import SmartPower3Simulator


class Simulator(Protocol):
    """A simulated meter, which turns energies into bytes and does no I/O.

    Made without arguments it has its usual settings. `channels` are its own names of them,
    `settings` those of such a meter in the inventory, `full_scale_w` the most that it can show of
    one channel, `resolution_w` how far a reading may be off by rounding on the wire.
    """

    @property
    def channels(self) -> Sequence[str]: ...

    @property
    def full_scale_w(self) -> float: ...

    @property
    def resolution_w(self) -> float: ...

    @property
    def settings(self) -> Document: ...

    @property
    def period_s(self) -> float:
        """Time between two of its readings."""

    def advance(self, energy_j: NDArray[np.float64]) -> bytes:
        """Return the bytes that it sends without a request during n periods.

        `energy_j` [n, channels] is the true energy that has gone through each channel since it was
        switched on, at the end of each period, in J.
        """

    def receive(self, data: bytes) -> bytes:
        """Return the answer to bytes from the host."""


_GROUP = Group("simulated meter", "fde.simulators", "instrumentation.tests.simulators", "kind")


def kinds() -> tuple[str, ...]:
    """Return all kinds, those of installed packages too."""
    return (SmartPower3Simulator.kind, *_GROUP.names())


def load(kind: str) -> type[Simulator]:
    """Return the simulator of a kind; the lab's is part of the product."""
    return SmartPower3Simulator if kind == SmartPower3Simulator.kind else _GROUP.load(kind)
