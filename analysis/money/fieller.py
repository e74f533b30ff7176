"""Interval of a ratio of two means that are known from the same blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from analysis.stats.span import Span


def ratio(
    numerator: Sequence[float], denominator: Sequence[float], confidence: float = 0.95
) -> Span:
    """Ratio of the means of paired block values, numerator[i] and denominator[i] of one block.

    Fieller's theorem (E. C. Fieller, Some Problems in Interval Estimation, Journal of the Royal
    Statistical Society B 16, 1954): θ belongs to the set if mean(numerator − θ·denominator) does
    not differ from 0 by Student's t with n − 1 degrees of freedom, a quadratic inequality in θ. For
    normal values it covers exactly, whatever their correlation.

    Where the denominator's own interval holds 0 that set has no bounds (it is the whole line, or
    all of it but a gap): then both limits are None. So they are for fewer than two blocks.
    Raises ValueError for unequal or no values, or where the denominator's mean is 0.
    """
    if len(numerator) != len(denominator):
        raise ValueError("paired values must come in equal numbers")
    if not numerator:
        raise ValueError("no values to make a ratio of")
    n = len(numerator)
    y, x = float(np.mean(numerator)), float(np.mean(denominator))
    if x == 0:
        raise ValueError("a ratio to a mean of 0 is not defined")
    if n < 2:
        return Span(y / x, None, None)
    t2 = float(stats.t.ppf(0.5 + confidence / 2, n - 1)) ** 2
    yy, xy, xx = (
        float(np.cov(a, b, ddof=1)[0, 1]) * t2 / n
        for a, b in ((numerator, numerator), (numerator, denominator), (denominator, denominator))
    )
    # x² − xx is positive just where the denominator's interval does not hold 0.
    square, half = x * x - xx, x * y - xy
    if square <= 0:
        return Span(y / x, None, None)
    root = math.sqrt(max(0.0, half * half - square * (y * y - yy)))
    return Span(y / x, (half - root) / square, (half + root) / square)
