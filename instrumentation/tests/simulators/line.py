"""Simulator of a small board that prints the power of two rails as lines for `meters.line`."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from contract.strict_json import Document

_PATTERN = (
    r"t=(?P<t_ms>\d{10}) a=(?P<power_mw_a>\d{6})mW b=(?P<power_mw_b>\d{6})mW "
    r"(?P<energy_j_a>\d{7}\.\d\d)J (?P<energy_j_b>\d{7}\.\d\d)J"
)
_MOST_MW = 999_999


class LineSimulator:
    """A simulated meter that sends a line each period after `run`; does no I/O."""

    kind: ClassVar[str] = "line"
    channels = ("a", "b")
    full_scale_w = _MOST_MW / 1000
    resolution_w = 0.00051

    def __init__(self, period_ms: int = 100, t_ms: int = 0) -> None:
        self.period_ms = period_ms
        self.t_ms = t_ms
        self.running = False
        self._received = b""
        self._before_j = [0.0, 0.0]

    @property
    def settings(self) -> Document:
        return {
            "pattern": _PATTERN,
            "period_s": self.period_s,
            "relative_limit": 0.005,
            "absolute_limit_w": 0.001,
            "accuracy_source": "the simulated board's own description",
            "start": "run\n",
            "stop": "halt\n",
        }

    @property
    def period_s(self) -> float:
        return self.period_ms / 1000

    def advance(self, energy_j: NDArray[np.float64]) -> bytes:
        return b"".join(self._line(joules) for joules in energy_j.tolist())

    def receive(self, data: bytes) -> bytes:
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self.running = {b"run": True, b"halt": False}.get(line, self.running)
        return b""

    def _line(self, energy_j: list[float]) -> bytes:
        self.t_ms = (self.t_ms + self.period_ms) % (1 << 32)
        milliwatts = [
            min(_MOST_MW, round((now_j - before_j) / self.period_ms * 1e6))
            for now_j, before_j in zip(energy_j, self._before_j, strict=True)
        ]
        self._before_j = energy_j
        if not self.running:
            return b""
        a_mw, b_mw = milliwatts
        a_j, b_j = energy_j
        text = f"t={self.t_ms:010d} a={a_mw:06d}mW b={b_mw:06d}mW {a_j:010.2f}J {b_j:010.2f}J"
        return text.encode("ascii") + b"\r\n"
