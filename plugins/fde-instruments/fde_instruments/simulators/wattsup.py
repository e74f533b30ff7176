"""Simulator of a Watts Up? meter; its packets are described in `meters.wattsup`."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from contract.strict_json import Document

_NAMES = (
    *("W", "V", "A", "WH", "Cost", "WH/Mo", "Cost/Mo"),
    *("Wmax", "Vmax", "Amax", "Wmin", "Vmin", "Amin"),
    *("PF", "DC", "PC", "Hz", "VA"),
)
_HERTZ = 60
_DOLLARS_PER_KWH = 0.08
_HOURS_PER_MONTH = 720
# Model (2 is an ES), memory, hardware and firmware with their minor numbers, stamp, checksum.
_VERSION = (2, 20_000, 7, 11, 1, 0, 20_070_905, 4_711)


def encode_packet(command: str, values: Sequence[object]) -> bytes:
    """Return the packet `#C,-,n,a1,…,an;` and a line end."""
    texts = ["_" if value is None else str(value) for value in values]
    return f"#{command},-,{len(texts)},{','.join(texts)};\r\n".encode("ascii")


def banner() -> bytes:
    """Return the packet of a meter that is switched on, and of one asked for its version."""
    return encode_packet("v", _VERSION)


class WattsUpSimulator:
    """A simulated meter that sends a record each second while it logs; does no I/O.

    `fields` is 18, or 16 as in older firmware; `logged` are the names of the readings to log, all
    by default.
    """

    kind: ClassVar[str] = "wattsup"
    channels = ("0",)
    full_scale_w = 1800.0
    resolution_w = 0.0501
    period_s = 1.0
    settings: ClassVar[Document] = {}

    def __init__(self, fields: int = 18, logged: Sequence[str] = _NAMES) -> None:
        self.names = _NAMES[:fields]
        self.logged = frozenset(logged)
        self.logging = False
        self._command = b""
        self._energy_j = 0.0
        self._clear()

    def _clear(self) -> None:
        self._cleared_j = self._energy_j
        self._seconds = 0
        self._largest = [0, 0, 0]
        self._smallest = [1 << 30] * 3

    def switch_off_and_on(self) -> bytes:
        """Reset settings and counters; return the packet with its version."""
        self.logging = False
        self._command = b""
        self._clear()
        return banner()

    def advance(self, energy_j: NDArray[np.float64]) -> bytes:
        return b"".join(self._second(float(joules)) for joules in energy_j[:, 0])

    def receive(self, data: bytes) -> bytes:
        *commands, self._command = (self._command + data).split(b";")
        return b"".join(self._answer(command.strip()) for command in commands)

    def _answer(self, command: bytes) -> bytes:
        match command.split(b","):
            case [b"#V", b"R", *_]:
                return banner()
            case [b"#H", b"R", *_]:
                return encode_packet("h", self.names)
            case [b"#R", b"W", *_]:
                self._clear()
            case [b"#L", b"W", b"3", b"E", _, b"1"]:
                self.logging = True
            case [b"#L", b"W" | b"R", b"0"]:
                self.logging = False
        return b""

    def _second(self, energy_j: float) -> bytes:
        power_w = energy_j - self._energy_j
        self._energy_j = energy_j
        self._seconds += 1
        if not self.logging:
            return b""
        readings = dict(zip(_NAMES, self._readings(power_w), strict=True))
        values = [readings[name] if name in self.logged else None for name in self.names]
        return encode_packet("d", values)

    def _readings(self, power_w: float) -> list[int]:
        """Return all readings in counts, in the order of the names."""
        load = power_w / self.full_scale_w
        volts = 121.0 - 2.5 * load
        power_factor = 0.9 + 0.07 * min(1.0, load)
        apparent_va = power_w / power_factor
        present = [round(power_w * 10), round(volts * 10), round(apparent_va / volts * 1000)]
        self._largest = list(map(max, self._largest, present))
        self._smallest = list(map(min, self._smallest, present))
        used_wh = (self._energy_j - self._cleared_j) / 3600
        month_wh = used_wh / self._seconds * 3600 * _HOURS_PER_MONTH
        return [
            *present,
            floor(used_wh * 10),
            floor(used_wh * _DOLLARS_PER_KWH),
            floor(month_wh),
            floor(floor(month_wh) * _DOLLARS_PER_KWH),
            *self._largest,
            *self._smallest,
            round(power_factor * 100),
            0,
            0,
            _HERTZ * 10,
            round(apparent_va * 10),
        ]
