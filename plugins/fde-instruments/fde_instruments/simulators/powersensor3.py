"""Simulator of the PowerSensor3.

Its bytes are described in `meters.powersensor3_frames` and `powersensor3_talk`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from contract.strict_json import Document

_SENSORS = 8
_STEP_V = 3.3 / 1023
_FIRMWARE = b"F411-1.5.0\r\n"
_RECORD = struct.Struct("<16s16sff?")
# Current sensors as in the maker's guide; the gains for 5 V and 3.3 V are chosen.
_VREF_V, _V_PER_A, _LIMIT_A = 1.636, 0.12, 10.0
_RAILS = ((b"12V", 12.0, 0.091), (b"12V aux", 12.0, 0.091), (b"5V", 5.0, 0.25), (b"3V3", 3.3, 0.35))


def _float32(value: float) -> float:
    return float(np.float32(value))


def eeprom(is_on: Sequence[bool] = (True,) * 4) -> list[bytes]:
    """Return the 8 records of 41 bytes, with pairs switched on or off."""
    records = []
    for (name, _, gain), on in zip(_RAILS, is_on, strict=True):
        records.append(_RECORD.pack(b"MLX10", name, _VREF_V, _V_PER_A, on))
        records.append(_RECORD.pack(b"voltage", name, 0.0, gain, on))
    return records


class PowerSensor3Simulator:
    """A simulated meter that sends a frame of 18 bytes each period once started; does no I/O.

    The rails have constant voltages; the rounding error of the current's 10 bits is carried into
    the next frame, which noise does on the real one. `t_us` is its time when it was switched on. It
    does not reset when the host is slow to read its configuration.
    """

    kind: ClassVar[str] = "powersensor3"
    channels = ("0", "1", "2", "3")
    full_scale_w = 3.3 * _LIMIT_A

    def __init__(self, frames_hz: int = 20_000, t_us: int = 0) -> None:
        self._frames_hz = frames_hz
        self._t_us = t_us
        self.eeprom = eeprom()
        self._sent = 0
        self._markers = 0
        self._streaming = False
        self._reading = 0  # records of the configuration that are still to come, and the D
        self._last = b""
        gains = np.array([_float32(gain) for _, _, gain in _RAILS])
        self._voltage_level = np.rint(np.array([volt for _, volt, _ in _RAILS]) * gains / _STEP_V)
        self._volt = self._voltage_level * _STEP_V / gains
        self._energy_j = np.zeros(4)
        self._carry = np.zeros(4)  # what rounding left over, in levels

    @property
    def settings(self) -> Document:
        return {"frames_hz": self._frames_hz}

    @property
    def period_s(self) -> float:
        return 1 / self._frames_hz

    @property
    def resolution_w(self) -> float:
        """One level, spread over a record of 1 ms."""
        return float(self._volt.max()) * _STEP_V / _V_PER_A / max(1, self._frames_hz // 1000)

    def advance(self, energy_j: NDArray[np.float64]) -> bytes:
        power_w = np.diff(energy_j, axis=0, prepend=self._energy_j[None]) * self._frames_hz
        self._energy_j = np.asarray(energy_j[-1], np.float64)
        ideal = (power_w / self._volt * _float32(_V_PER_A) + _float32(_VREF_V)) / _STEP_V
        target = self._carry + np.cumsum(np.clip(ideal, 0, 1023), axis=0)
        current = np.diff(np.rint(target), axis=0, prepend=0.0)
        self._carry = target[-1] - np.rint(target[-1])
        return self._frames(np.clip(current, 0, 1023).astype(np.uint16))

    def _frames(self, current: NDArray[np.uint16]) -> bytes:
        count = len(current)
        numbers = self._sent + 1 + np.arange(count)
        self._sent += count
        words = np.empty((count, 1 + _SENSORS), np.uint16)
        t_us = self._t_us + numbers * 1_000_000 // self._frames_hz
        words[:, 0] = _spread(t_us % 1024) | 0xF040
        words[:, 1::2] = _spread(current)
        words[:, 2::2] = _spread(self._voltage_level.astype(np.uint16))
        words[:, 1:] |= (0x8000 | np.arange(_SENSORS) << 12).astype(np.uint16)
        if self._streaming and self._markers:
            marked = min(self._markers, count)
            words[:marked, 1] |= 0x40
            self._markers -= marked
        sent = words.astype(">u2").tobytes()
        self._last = sent[-2 * (1 + _SENSORS) :]
        return sent if self._streaming and not self._reading else b""

    def receive(self, data: bytes) -> bytes:
        """Return the answers to commands, of which it reads one byte at a time."""
        return b"".join(self._answer(data[n : n + 1]) for n in range(len(data)))

    def _answer(self, command: bytes) -> bytes:
        if self._reading:
            self._reading -= 1
            return self.eeprom[_SENSORS - self._reading] if self._reading else b"D"
        if command == b"R":
            self._reading = _SENSORS
            return self.eeprom[0]
        if command == b"M":
            self._markers += 1
        if command == b"S":
            self._streaming = True
        if command in b"TX":
            late = self._last if self._streaming else b""  # the frame it was about to send
            self._streaming = False
            return (b"\xff\x3f\xff\x3f" if command == b"X" else b"") + late
        return {b"V": _FIRMWARE, b"I": self._last}.get(command, b"")


def _spread(level: NDArray[Any]) -> NDArray[np.uint16]:
    """Return ten bits as the upper four and lower six of a word's two bytes."""
    return (((level & 0x3C0) << 2) | (level & 0x3F)).astype(np.uint16)
