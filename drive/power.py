"""The drive's measurement of its power, as controllers of NVM Express 2.3 report it.

A declared model, not a measured disk: power at rest and joules per byte, from the drive's counters.
"""

from __future__ import annotations

import math
import struct
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .stats import Stats

INTERVAL_S = 1.0  # that the power in the health log is the mean of
_SAMPLES = 10  # in an interval
# Operational Lifetime Energy Consumed (Wh, rounded up) and Interval Power Measurement: 16 bits
# times the scale of the next two, here 1 for 100 µW and 2 for 10 mW.
_FIELDS = struct.Struct("<QI")


class PowerError(ValueError):
    """The coefficients do not describe a disk; one sentence for people."""


@dataclass(frozen=True)
class Coefficients:
    """Power at rest, and joules for each byte read or written."""

    idle_w: float = 0.0
    j_per_byte_read: float = 0.0
    j_per_byte_written: float = 0.0


def parse(parameters: Mapping[str, Any]) -> Coefficients:
    """Build coefficients from names and numbers; raises PowerError."""
    names = {field.name for field in fields(Coefficients)}
    for name, value in parameters.items():
        if name not in names:
            raise PowerError(f"there is no coefficient {name}: choose from {', '.join(names)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e3:
            raise PowerError(f"{name} is {value!r}, which is not a number from 0 to 1000")
    return Coefficients(**{name: float(value) for name, value in parameters.items()})


class PowerMeter:
    """Energy since the start, sampled ten times in an interval until `close`."""

    def __init__(self, stats: Stats, coefficients: Coefficients) -> None:
        self._stats, self._coefficients = stats, coefficients
        self._before, self._start_s = stats.snapshot(), time.monotonic()
        self._energies = deque([(self._start_s, 0.0)], maxlen=_SAMPLES + 1)
        self._closed = threading.Event()
        threading.Thread(target=self._sample, daemon=True).start()

    def _energy(self) -> tuple[float, float]:
        """Return the time, and the joules until then."""
        counts, now_s, rates = self._stats.snapshot(), time.monotonic(), self._coefficients
        read, written = (counts[n] - self._before[n] for n in ("bytes_read", "bytes_written"))
        moved_j = rates.j_per_byte_read * read + rates.j_per_byte_written * written
        return now_s, rates.idle_w * (now_s - self._start_s) + moved_j

    def _sample(self) -> None:
        while not self._closed.wait(INTERVAL_S / _SAMPLES):
            self._energies.append(self._energy())

    def log_fields(self) -> bytes:
        """Return bytes 232 to 243 of the health log: lifetime energy, power of an interval."""
        (first_s, first_j), (last_s, last_j) = self._energies[0], self._energies[-1]
        power_w = (last_j - first_j) / (last_s - first_s) if last_s > first_s else 0.0
        scale, value = (1, round(power_w * 1e4)) if power_w < 6.5 else (2, round(power_w * 1e2))
        return _FIELDS.pack(math.ceil(last_j / 3600), min(value, 0xFFFF) | scale << 16)

    def close(self) -> None:
        """End the sampling."""
        self._closed.set()
