"""Several comparisons asked at once: no more than 5 % for one false verdict among them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from analysis.stats.stats import Comparison, Floats


def holm(p_values: Floats) -> Floats:
    """Holm's adjusted p-values along the last axis (Scandinavian Journal of Statistics 6, 1979).

    The k-th smallest of m is multiplied by m − k + 1, is never below the one before it and never
    above 1. SciPy has no such function.
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, axis=-1)
    factors = np.arange(p.shape[-1], 0, -1)
    raised = np.maximum.accumulate(np.take_along_axis(p, order, axis=-1) * factors, axis=-1)
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, np.minimum(raised, 1.0), axis=-1)
    return adjusted


def judged(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons as one family, in the same order, with both tests' p-values adjusted.

    One without an interval (n < 2) was never tested: it stays as it is and counts for nothing.
    """
    tested = [c for c in comparisons if c.p_value is not None and c.p_equivalence is not None]
    different = iter(holm(np.array([c.p_value for c in tested], dtype=float)))
    equivalent = iter(holm(np.array([c.p_equivalence for c in tested], dtype=float)))
    return [
        c
        if c.p_value is None or c.p_equivalence is None
        else replace(c, p_holm=float(next(different)), p_equivalence_holm=float(next(equivalent)))
        for c in comparisons
    ]
