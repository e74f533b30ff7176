"""Ranges of a simulated power meter of Yokogawa, and numbers with as many digits as they show."""

from __future__ import annotations

import math

VOLTAGES = (15.0, 30.0, 60.0, 150.0, 300.0, 600.0)
CURRENTS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)


def nr3(value: float, full_scale: float) -> str:
    """Five digits, the exponent a multiple of three, both as `full_scale` needs them."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INF"
    exponent = 3 * math.floor(math.log10(full_scale) / 3 + 1e-9)
    before = math.floor(math.log10(full_scale / 10.0**exponent) + 1e-9) + 1
    return (
        f"{value / 10.0**exponent:.{5 - before}f}E{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    )


def step(full_scale: float) -> float:
    """The last of the five digits."""
    return float(10.0 ** (math.floor(math.log10(full_scale) + 1e-9) - 4))


class Range:
    """Voltage or current range: fixed, or following the input as the meter does it."""

    def __init__(self, ranges: tuple[float, ...], now: float, auto: bool) -> None:
        self.ranges = ranges
        self.now = now
        self.auto = auto

    def follow(self, rms: float, peak: float) -> None:
        """One update with this input: up beyond 130 % or a peak of 300 %, down below 30 %."""
        if not self.auto:
            return
        at = self.ranges.index(self.now)
        if (rms > 1.3 * self.now or peak > 3 * self.now) and at + 1 < len(self.ranges):
            self.now = self.ranges[at + 1]
        while at and rms <= 0.3 * self.now and rms <= 1.25 * self.ranges[at - 1]:
            if peak > 3 * self.ranges[at - 1]:
                break
            at -= 1
            self.now = self.ranges[at]

    def is_over(self, rms: float) -> bool:
        """Beyond 140 % there is no reading."""
        return rms > 1.4 * self.now

    def is_peak_over(self, peak: float) -> bool:
        """Peaks beyond 300 % are cut off."""
        return peak > 3 * self.now
