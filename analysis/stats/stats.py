"""Means and ratios of means with their intervals, with the block as the unit of replication."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy  # its parts are loaded when they are used

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


def critical(df: Floats, level: float | Floats) -> Floats:
    """Return how many standard errors an interval reaches that misses with probability `level`."""
    return np.asarray(scipy.special.stdtrit(df, 1 - level / 2))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values (Scandinavian Journal of Statistics 6, 1979).

    The k-th smallest of m is multiplied by m − k + 1, is never below the one before it and never
    above 1. SciPy has no such function.
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(np.argsort(p_values)):
        largest = max(largest, min(1.0, p_values[place] * (len(p_values) - rank)))
        adjusted[place] = largest
    return adjusted


def exp(log: float | Floats) -> float:
    """Return a ratio from its logarithm, clipped to the range of floats."""
    return math.exp(max(-LARGEST_LOG, min(LARGEST_LOG, float(log))))
