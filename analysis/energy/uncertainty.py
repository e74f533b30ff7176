"""Uncertainty of an energy: its statistical part, limits of error, and their interval.

Terms are named and combined as in the Guide to the Expression of Uncertainty in Measurement (JCGM
100); distributions are propagated as in its Supplement 1 (JCGM 101), in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy  # its parts are loaded when they are used

from analysis.suite.clocks import Floats
from instrumentation.accuracy import ErrorTerm

if TYPE_CHECKING:
    from analysis.energy.windows import Windows  # needs Polars, which `fde measure` does not

# Consecutive readings whose variance is taken, and the share of its mean below which a twentieth of
# such variances are (χ² with one degree of freedom less). A short recording has shorter ones.
_QUIET, _QUIET_IN_FEW, _FEW_READINGS = (8, 0.310), (4, 0.117), 400
EXAMINED = 50_000  # first readings of a channel, from which its resolution is derived


@dataclass(frozen=True)
class Resolution:
    """Resolution of a channel: last digit and noise of its power, last digit of its counter.

    `noise_w` is the standard deviation of a reading in addition to its rounding.
    """

    quantum_w: float = 0.0
    noise_w: float = 0.0
    counter_quantum_j: float = 0.0

    @classmethod
    def seen_in(cls, windows: Windows, channel: str) -> Resolution:
        """Estimate the resolution from the smallest step and from the scatter in quiet stretches.

        The power itself scatters too, so even the quietest stretch may show more than the noise.
        """
        power = windows.power_w[channel][:EXAMINED]
        counter = windows.energy_j.get(channel, np.empty(0))[:EXAMINED]
        quantum_w = last_digit(power)
        return cls(quantum_w, _noise_w(power, quantum_w), last_digit(counter[np.isfinite(counter)]))

    def with_rests(self, squares_w2: float, freedom: int) -> Resolution:
        """Limit the noise to that during rests: the upper 95 % limit of their variance (χ²).

        A recording of almost only work has no other quiet stretches.
        """
        if freedom < 1:
            return self
        variance = squares_w2 / float(scipy.special.chdtri(freedom, 0.95)) - self.quantum_w**2 / 12
        least_w = max(self.quantum_w / 4, math.sqrt(max(0.0, variance)))
        return replace(self, noise_w=min(self.noise_w, least_w))

    @property
    def counter_u_j(self) -> float:
        """Standard uncertainty of a difference of two readings of the counter."""
        return self.counter_quantum_j / math.sqrt(6)

    def rest_uncertainty_j(
        self, variance_w2: float, count: int, width_s: float, rest_s: float
    ) -> float:
        """Return the uncertainty of the energy of `rest_s` by the power of windows next to it.

        `variance_w2` is the variance of these `count` whole windows. The parts are the uncertainty
        of their mean over that time, and the scatter of the power in so short a time.
        """
        variance_w2 = max(0.0, variance_w2)  # rounding errors of equal readings may be negative
        moves = max(0.0, variance_w2 - self.quantum_w**2 / 12)
        rounding = self.quantum_w**2 / 12 * correlation(variance_w2, self.quantum_w)
        mean = variance_w2 / count + rounding
        return math.sqrt(mean * rest_s**2 + moves * width_s * rest_s)


def last_digit(values: Floats) -> float:
    """Return the step of which all values are multiples; 0 if they have more than nine decimals.

    It is the greatest common divisor of the differences in the smallest decimal unit that fits them
    all; about ten different values are enough.
    """
    scale = max(1.0, float(np.max(np.abs(values), initial=0.0)))
    for decimals in range(10):
        units = values * 10.0**decimals
        rounded = np.rint(units)
        # Sums of decimal fractions differ in some last bits.
        if np.max(np.abs(units - rounded), initial=0.0) < 1e-15 * scale * 10.0**decimals + 1e-7:
            return (
                float(np.gcd.reduce(np.diff(np.unique(rounded)).astype(np.int64))) / 10.0**decimals
            )
    return 0.0


def _noise_w(power: Floats, quantum_w: float) -> float:
    """Return a reading's standard deviation, without rounding, in the quietest stretches.

    The lowest twentieth of the variances of consecutive readings is at a known share of their mean
    if all are as quiet (χ²); if fewer are, the estimate is too large. Noise below a quarter of the
    last digit vanishes in the rounding and is taken as that.
    """
    size, share = _QUIET if len(power) >= _FEW_READINGS else _QUIET_IN_FEW
    if len(power) < size:
        return quantum_w / 4
    groups = np.lib.stride_tricks.sliding_window_view(power, size)
    low = float(np.quantile(np.var(groups, axis=1, ddof=1), 0.05, method="lower")) / share
    return max(quantum_w / 4, math.sqrt(max(0.0, low - quantum_w**2 / 12)))


def correlation(variance_w2: float, quantum_w: float) -> float:
    """Return the correlation of two readings' rounding errors if their power has this variance.

    A steady power is rounded the same way each time, so its rounding does not average out. The
    rounding error is a saw-tooth of the power; its first harmonic between two values that differ by
    a normal deviate of variance 2σ² has the correlation exp(−4π² σ²/q²).
    """
    if quantum_w <= 0:
        return 0.0
    return math.exp(-4 * math.pi**2 * variance_w2 / quantum_w**2)


def reading_variance_j2(
    count: float, width_s: float, variance_w2: float, resolution: Resolution
) -> float:
    """Return the variance of the energy of `count` windows from rounding and noise of readings."""
    r = correlation(variance_w2, resolution.quantum_w)
    rounding = resolution.quantum_w**2 / 12 * (count * (1 - r) + count**2 * r)
    return width_s**2 * (rounding + resolution.noise_w**2 * count)


@dataclass(frozen=True)
class TypeB:
    """Half widths of the rectangular terms from an instrument's limits of error, in J."""

    limits_j: tuple[float, ...]

    @classmethod
    def from_terms(
        cls, terms: Iterable[ErrorTerm], energy_j: float, duration_s: float
    ) -> TypeB | None:
        """Scale an instrument's stated terms to this energy; None if no term is stated.

        Each has one sign for a whole run, so it does not average out.
        """
        scales = {"1": abs(energy_j), "W": duration_s}
        limits = tuple(
            term.limit * scales[term.unit]
            for term in terms
            if term.limit is not None and term.unit in scales
        )
        return cls(limits) if limits else None

    @property
    def standard_j(self) -> float:
        """Standard uncertainty: each limit / √3 (GUM 4.3.7), root sum of squares."""
        return math.hypot(*self.limits_j) / math.sqrt(3)

    def parts_j(self, statistical_j: float) -> tuple[float, float]:
        """Return the half width of the rectangle and the deviation of the normal part.

        They are arguments of `half_width`. The widest limit is the rectangle; the others count as
        normal.
        """
        widest, *others = sorted(self.limits_j, reverse=True)
        return widest, math.hypot(statistical_j, *(limit / math.sqrt(3) for limit in others))


def half_width(limit: Floats, sigma: Floats, level: float = 0.95) -> Floats:
    """Return the k with P(|U + N| ≤ k) = level, U rectangular in ± limit, N normal (0, σ).

    With G(x) = x Φ(x/σ) + σ φ(x/σ), an antiderivative of Φ(x/σ), that probability is
    (G(k + a) − G(k − a))/a − 1. It rises with k, so that 60 bisections find it. If both parts are
    0, k is 0; if one is infinite, so is k.
    """
    a, s = np.maximum(limit, 0.0), np.maximum(sigma, 0.0)
    scale = np.maximum(a, s)
    solvable = (scale > 0) & np.isfinite(scale)
    safe = np.where(solvable, scale, 1.0)
    # A part below a millionth of the other has no effect, and 0 would divide by zero.
    a, s = (np.maximum(np.where(solvable, part / safe, 0.0), 1e-6) for part in (a, s))
    low, high = np.zeros_like(a), a + 8 * s
    for _ in range(60):
        k = (low + high) / 2
        inside = (_integral(k + a, s) - _integral(k - a, s)) / a - 1 >= level
        high, low = np.where(inside, k, high), np.where(inside, low, k)
    return np.asarray(np.where(solvable, high * safe, scale))


def _integral(x: Floats, s: Floats) -> Floats:
    """Integrate Φ(t/s) over t up to x."""
    z = x / s
    density = np.exp(-np.minimum(z * z / 2, 700.0)) / math.sqrt(2 * math.pi)
    return np.asarray(x * scipy.special.ndtr(z) + s * density)
