"""Simulator of the ODROID SmartPower3; the line is described in `meters.smartpower3`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from contract.strict_json import Document

_INPUT_MV = 15_000
_OUTPUT_MV = 12_000
_MAX_MW = 99_999
_MAX_MA = 9_999


def encode_line(
    t_ms: int,
    power_mw: Sequence[int],
    *,
    input_mw: int | None = None,
    voltage_mv: Sequence[int] = (_OUTPUT_MV, _OUTPUT_MV),
    input_mv: int = _INPUT_MV,
    on: Sequence[bool] = (True, True),
) -> bytes:
    """Return the 81-byte line for the power of the two outputs, in mW.

    `input_mw` is their sum by default. Power is limited to five digits. The voltage is changed a
    little if necessary, so that the power is its product with the current.
    """
    groups = [
        f"{t_ms % (1 << 32):010d}",
        _group(sum(power_mw) if input_mw is None else input_mw, input_mv),
    ]
    groups.append("0")  # 1 where the supply is below 6 V
    for mw, mv, is_on in zip(power_mw, voltage_mv, on, strict=True):
        groups += [_group(mw, mv), "1" if is_on else "0", "00"]
    checked = (",".join(groups) + ",").encode("ascii")
    return checked + f"{-sum(checked) % 0x100:02x},{reduce(xor, checked):02x}\r\n".encode("ascii")


def _group(power_mw: int, voltage_mv: int) -> str:
    power_mw = min(power_mw, _MAX_MW)
    current_ma = round(power_mw * 1000 / voltage_mv) if voltage_mv else 0
    if power_mw and voltage_mv:
        current_ma = min(max(1, current_ma), _MAX_MA)
        if not power_mw <= voltage_mv * current_ma / 1000 < power_mw + 1:
            voltage_mv = power_mw * 1000 // current_ma  # its fraction is not printed
    return f"{voltage_mv:05d},{current_ma:04d},{power_mw:05d}"


@dataclass
class Output:
    """Mean powers over each interval from cumulative energy.

    The rounding error of 1 mW of a line is carried into the next, so that no energy is lost.
    """

    _sent_j: float = 0.0

    def mean_mw(self, energy_j: float, interval_ms: int) -> int:
        """Return the power to send for the interval that ends with a total of `energy_j`."""
        power_mw = max(0, min(_MAX_MW, round((energy_j - self._sent_j) / interval_ms * 1e6)))
        self._sent_j += power_mw * interval_ms * 1e-6
        return power_mw


class SmartPower3Simulator:
    """A simulated meter that turns energies into a line for each interval; does no I/O.

    `interval_ms` is the meter's interval; `t_ms` its time when it was switched on.
    """

    kind: ClassVar[str] = "smartpower3"
    channels = ("0", "1")
    full_scale_w = _MAX_MW / 1000
    resolution_w = 0.001

    def __init__(self, interval_ms: int = 10, t_ms: int = 0) -> None:
        self.interval_ms = interval_ms
        self.t_ms = t_ms
        self._outputs = (Output(), Output())

    @property
    def settings(self) -> Document:
        return {"interval_ms": self.interval_ms}

    @property
    def period_s(self) -> float:
        return self.interval_ms / 1000

    def advance(self, energy_j: NDArray[np.float64]) -> bytes:
        return b"".join(self._line(joules) for joules in energy_j.tolist())

    def receive(self, data: bytes) -> bytes:  # noqa: ARG002 - it ignores its input
        """Return no answer: the meter takes no commands on its log line."""
        return b""

    def _line(self, energy_j: Sequence[float]) -> bytes:
        self.t_ms += self.interval_ms
        power_mw = [
            output.mean_mw(joules, self.interval_ms)
            for output, joules in zip(self._outputs, energy_j, strict=True)
        ]
        return encode_line(self.t_ms, power_mw)
