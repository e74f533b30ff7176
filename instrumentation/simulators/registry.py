"""Simulators by the kind of meter that they play."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from instrumentation.choose import load_class

_PLACES = {
    "mcp39f511n": "instrumentation.simulators.mcp39f511n:Mcp39f511nSimulator",
    "smartpower3": "instrumentation.simulators.smartpower3:SmartPower3Simulator",
    "wattsup": "instrumentation.simulators.wattsup:WattsUpSimulator",
    "powersensor3": "instrumentation.simulators.powersensor3:PowerSensor3Simulator",
    "line": "instrumentation.simulators.line:LineSimulator",
    "wt210": "instrumentation.simulators.wt210:WT210Simulator",
    "wt310": "instrumentation.simulators.wt310:WT310Simulator",
}


class Simulator(Protocol):
    """A meter from the other side of the wire. Takes energies, gives bytes; does no I/O.

    Made without arguments it has its usual settings. `channels` are its own names of them,
    `settings` what the inventory says of a meter like this one, `full_scale_w` the most that it can
    tell of one channel, `resolution_w` how far a reading may be off by rounding on the wire.
    """

    @property
    def channels(self) -> Sequence[str]: ...

    @property
    def full_scale_w(self) -> float: ...

    @property
    def resolution_w(self) -> float: ...

    @property
    def settings(self) -> Mapping[str, Any]: ...

    @property
    def period_s(self) -> float:
        """Time between two of its readings."""

    def advance(self, energy_j: NDArray[np.float64]) -> bytes:
        """What it sends unasked while n periods pass.

        `energy_j` [n, channels] is the true energy that has gone through each channel since it was
        switched on, at the end of each period, in J.
        """

    def receive(self, data: bytes) -> bytes:
        """Its answer to bytes from the host."""


def kinds() -> tuple[str, ...]:
    """All kinds of meters that have a simulator."""
    return tuple(_PLACES)


def load(kind: str) -> type[Simulator]:
    """The simulator of a kind of meter. Raises UnknownNameError."""
    return load_class("simulated meter", kind, _PLACES)
