"""The long-run mean of blocks that a slow random drift may tie together.

Student's interval of joules takes blocks for independent. Where each resembles the last one, it is
that of these blocks alone; what the same machine takes on another night lies within a wider one.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from analysis.stats.stats import LEVEL, Floats

LEAST = 5  # fewer blocks tell next to nothing of how they hang together
# Correlations of a block with the next one that are thought possible, all alike beforehand. Beyond
# the last no suite is long enough to tell a drift from its own mean.
CORRELATIONS = np.linspace(0.0, 0.97, 25)
_HALVINGS = 50


def long_run(values: Floats) -> tuple[Floats, Floats]:
    """95 % limits of the long-run mean of blocks in the order of time (last axis).

    First-order autoregression of unknown correlation: Student's interval for each correlation,
    mixed by how well it explains the blocks (G. E. P. Box and G. C. Tiao, Bayesian Inference in
    Statistical Analysis, for a mean of known covariance up to scale). Raises ValueError for fewer
    than `LEAST` blocks.
    """
    n = values.shape[-1]
    if n < LEAST:
        raise ValueError(f"a long-run mean takes {LEAST} blocks")
    inverses, masses, logs = _models(n)
    # Models along the first axis.
    weighted = np.einsum("mij,...j->m...i", inverses, values)
    along = masses[(...,) + (None,) * (values.ndim - 1)]
    means = np.sum(weighted, axis=-1) / along
    left = values - means[..., None]
    squares = np.einsum("m...i,mij,m...j->m...", left, inverses, left)
    scale = np.sqrt(np.maximum(squares, np.finfo(float).tiny) / (n - 1) / along)
    fit = logs[(...,) + (None,) * (values.ndim - 1)] - (n - 1) * np.log(scale * np.sqrt(along))
    weights = np.exp(fit - np.max(fit, axis=0))
    weights = weights / np.sum(weights, axis=0)
    return _quantile(means, scale, weights, n, LEVEL / 2), _quantile(
        means, scale, weights, n, 1 - LEVEL / 2
    )


@lru_cache
def _models(n: int) -> tuple[Floats, Floats, Floats]:
    """By correlation: the inverse of the blocks' correlations, the sum of its elements, and the
    logarithm of what both give the likelihood."""
    apart = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    of_blocks = CORRELATIONS[:, None, None] ** apart
    inverses = np.linalg.inv(of_blocks)
    masses = np.sum(inverses, axis=(1, 2))
    logs = -(np.linalg.slogdet(of_blocks)[1] + np.log(masses)) / 2
    return np.asarray(inverses), masses, np.asarray(logs, dtype=float)


def _quantile(means: Floats, scale: Floats, weights: Floats, n: int, share: float) -> Floats:
    """Of the mixture of Student's distributions."""
    reach = float(special.stdtrit(n - 1, 1 - LEVEL / 1000)) * np.max(scale, axis=0)
    low, high = np.min(means, axis=0) - reach, np.max(means, axis=0) + reach
    for _ in range(_HALVINGS):
        mid = (low + high) / 2
        below = np.sum(weights * special.stdtr(n - 1, (mid - means) / scale), axis=0) < share
        low, high = np.where(below, mid, low), np.where(below, high, mid)
    return np.asarray((low + high) / 2)


def long_run_half_width(values: Floats) -> float | None:
    """Half of that interval of one series; None for too few blocks."""
    if len(values) < LEAST:
        return None
    low, high = long_run(values)
    return float(high - low) / 2 if math.isfinite(float(high - low)) else None
