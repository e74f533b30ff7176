"""Simulator of the Microchip MCP39F511N; its protocol is described in `meters.mcp39f511n`."""

from __future__ import annotations

import struct
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from contract.strict_json import Document

_MEMORY_BYTES = 0x100
_MAX_READ_BYTES = 32
_POWER_FACTOR_1 = 0x7FFF
# Variation of the mains voltage around its nominal value, in the meter's steps of 0.1 V.
_WOBBLE = (0, 1, 3, 2, -1)


class Mcp39f511nSimulator:
    """Two sockets at `line_hz` and about `line_v`, windows of 2^`exponent` cycles.

    `power_range` is the shift of the power registers: a step is 10 mW at 19, 1.25 mW at 16. With
    `still` the outputs do not change, as in a meter that hangs.
    """

    kind: ClassVar[str] = "mcp39f511n"
    channels = ("1", "2")
    full_scale_w = 1800.0

    def __init__(
        self, exponent: int = 4, line_hz: float = 50.0, line_v: float = 230.0, power_range: int = 16
    ) -> None:
        self.still = False
        self._line_hz = line_hz
        self._line_dv = round(line_v * 10)
        self._memory = bytearray(_MEMORY_BYTES)
        self._address = 0
        self._received = b""
        self._seen_j = np.zeros(2)
        self._windows = 0
        struct.pack_into("<HH", self._memory, 0x02, 0x0003, 0x1510)  # status, version
        struct.pack_into("<H", self._memory, 0xA8, exponent)
        struct.pack_into("<I", self._memory, 0xAE, power_range << 16 | 12 << 8 | 18)
        struct.pack_into("<I", self._memory, 0xBE, power_range << 16 | 12 << 8)
        self._store((0.0, 0.0))

    @property
    def exponent(self) -> int:
        """Windows are 2^exponent line cycles long."""
        return int.from_bytes(self._memory[0xA8:0xAA], "little")

    @property
    def settings(self) -> Document:
        return {"window_cycles": 1 << self.exponent, "line_hz": self._line_hz}

    @property
    def period_s(self) -> float:
        return (1 << self.exponent) / self._line_hz

    @property
    def resolution_w(self) -> float:
        """One step of the power registers."""
        return 0.01 / float(1 << (19 - self._memory[0xB0]))

    def advance(self, energy_j: NDArray[np.float64]) -> bytes:
        """Update the outputs; return no bytes, for this meter only answers."""
        for joules in energy_j:
            watts = (joules - self._seen_j) / self.period_s
            self._seen_j = joules
            if not self.still:
                self._store(watts.tolist())
        return b""

    def _store(self, watts: tuple[float, float] | list[float]) -> None:
        """Store the outputs of one window."""
        self._windows += 1
        decivolts = self._line_dv + _WOBBLE[self._windows % len(_WOBBLE)]
        struct.pack_into("<HH", self._memory, 0x06, decivolts, round(self._line_hz * 1000))
        struct.pack_into("<hh", self._memory, 0x0A, _POWER_FACTOR_1, _POWER_FACTOR_1)
        for channel, power_w in enumerate(watts):
            current_dma = round(power_w / (decivolts / 10) * 10_000)
            struct.pack_into("<I", self._memory, 0x0E + 4 * channel, current_dma)
            raw = round(power_w / self.resolution_w)
            struct.pack_into("<I", self._memory, 0x16 + 4 * channel, max(0, raw))

    def receive(self, data: bytes) -> bytes:
        self._received += data
        answers = b""
        while (start := self._received.find(b"\xa5")) >= 0:
            self._received = self._received[start:]
            if len(self._received) < 2 or len(self._received) < self._received[1]:
                return answers
            length = max(self._received[1], 1)
            frame, self._received = self._received[:length], self._received[length:]
            sound = len(frame) >= 4 and frame[-1] == _sum(frame[:-1])
            answers += self._execute(frame[2:-1]) if sound else b"\x51"
        self._received = b""
        return answers

    @property
    def _size_from_address(self) -> int:
        """Bytes of memory from the address on."""
        return _MEMORY_BYTES - self._address

    def _execute(self, commands: bytes) -> bytes:
        """Execute commands in order up to the first read; return the answer."""
        at = 0
        while at < len(commands):
            match commands[at], commands[at + 1 : at + 3]:
                case 0x41, bytes(address) if len(address) == 2:
                    self._address = address[0] << 8 | address[1]
                    at += 3
                case 0x4E, bytes(count) if count and count[0] <= min(
                    _MAX_READ_BYTES, self._size_from_address
                ):
                    answer = struct.pack("BB", 0x06, count[0] + 3)
                    answer += bytes(self._memory[self._address : self._address + count[0]])
                    return answer + struct.pack("B", _sum(answer))
                case 0x4D, bytes(count) if count and len(commands) - at - 2 == count[0]:
                    if count[0] > self._size_from_address:
                        return b"\x15"
                    self._memory[self._address : self._address + count[0]] = commands[at + 2 :]
                    return b"\x06"
                case _:
                    return b"\x15"
        return b"\x06"


def _sum(data: bytes) -> int:
    return sum(data) % 256
