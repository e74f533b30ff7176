"""Means and ratios of means with their intervals, with the block as the unit of replication."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from contract.estimates import Estimate

Floats = npt.NDArray[np.float64]

LEVEL = 0.05
LARGEST_LOG = 700.0  # exp of more is no number


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of block values with Student's 95 % interval. Raises ValueError if empty."""
    n = len(values)
    if n == 0:
        raise ValueError("no values to estimate from")
    mean = float(np.mean(values))
    if n < 2:
        return Estimate(mean, n=n)
    error = float(np.std(values, ddof=1)) / math.sqrt(n)
    half = error * float(critical(np.asarray(n - 1.0), LEVEL))
    return Estimate(mean, mean - half, mean + half, n)


def critical(df: Floats, level: float) -> Floats:
    """Return the half width, in standard errors, of an interval that misses with p = `level`."""
    return np.asarray(special.stdtrit(df, 1 - level / 2))


def exp(log: float | Floats) -> float:
    """Return a ratio from its logarithm, clipped to the range of floats."""
    return math.exp(max(-LARGEST_LOG, min(LARGEST_LOG, float(log))))
