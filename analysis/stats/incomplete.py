"""Two configurations compared within blocks of which some lack runs.

Each workload's logarithms of joules are effects of blocks plus effects of configurations plus
scatter: a run whose partner is void is placed by the other configurations of its block. Where
nothing is missing the result is that of pairs, to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.stats.comparison import Comparison, LogRatio, compared, of_mean
from analysis.stats.stats import Floats, exp

ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class _Workload:
    """What one workload shows of the contrast, by block.

    `weights` (blocks × configurations) make it from the logarithms; `scores` (blocks) are its
    shares of the error, `freedom` (blocks × blocks) their covariances if all scatter were alike.
    """

    log_ratio: float
    weights: Floats
    scores: Floats
    freedom: Floats
    by_block: Floats


def in_blocks(logs: Floats, margin: float, any_look: bool = False) -> Comparison | None:
    """Compare the second configuration with the first, by workloads × blocks × configurations.

    `logs` are NaN where there is no run. None where a workload has no block to compare. The mean
    over workloads of the least-squares contrasts; the standard error is that of the blocks as
    clusters, unbiased where all scatter alike and consistent where it does not, with
    Satterthwaite's degrees of freedom (CR2: R. M. Bell and D. F. McCaffrey, Survey Methodology 28,
    2002; J. E. Pustejovsky and E. Tipton, Journal of Business & Economic Statistics 36, 2018).
    """
    present = np.isfinite(logs)
    pairs = np.all(present[..., :2], axis=(0, 2))
    if np.array_equal(np.any(present[..., :2], axis=(0, 2)), pairs):
        ratios = np.mean(logs[:, pairs, 1] - logs[:, pairs, 0], axis=0)
        return compared(ratios, margin, any_look) if len(ratios) else None
    parts = [_workload(values) for values in logs]
    workloads = [part for part in parts if part is not None]
    if not workloads or len(workloads) < len(parts):
        return None
    ratio = np.asarray(np.mean([part.log_ratio for part in workloads]))
    telling = np.any([np.any(part.weights != 0, axis=1) for part in workloads], axis=0)
    n = int(np.sum(telling))
    by_block = np.mean([part.by_block for part in workloads], axis=0)[telling]
    # Where a block's values alone make part of the result, nothing tells its error.
    least = 1 - ROUNDING**0.5
    if any(np.trace(part.freedom) < least * np.sum(part.weights**2) for part in workloads):
        return Comparison(n, exp(ratio), margin)
    covariance = np.sum([part.freedom for part in workloads], axis=0)
    variance = float(np.sum(np.sum([part.scores for part in workloads], axis=0) ** 2))
    df = np.trace(covariance) ** 2 / np.sum(covariance**2)
    mean = LogRatio(ratio, np.asarray(np.sqrt(variance) / len(workloads)), np.asarray(df), any_look)
    return of_mean(mean, n, margin, by_block)


def _workload(logs: Floats) -> _Workload | None:
    """Of one workload: blocks × configurations; None where no block joins the two."""
    present = np.isfinite(logs)
    values = np.where(present, logs, 0.0)
    counts = np.maximum(present.sum(axis=1), 1)
    indicators = present[:, :, None] * np.eye(present.shape[1])
    within = indicators - present[:, :, None] * present[:, None, :] / counts[:, None, None]
    inverse = np.linalg.pinv(np.sum(within, axis=0), rcond=ROUNDING, hermitian=True)
    contrast = np.zeros(present.shape[1])
    contrast[:2] = -1.0, 1.0
    effects = inverse @ np.einsum("bij,bj->i", within, values)
    solved = inverse @ contrast
    if np.max(np.abs(np.sum(within, axis=0) @ solved - contrast)) > ROUNDING**0.5:
        return None
    weights = within @ solved
    # The inverse root of positive semidefinite matrices, over what they do not annihilate.
    lambdas, vectors = np.linalg.eigh(within - within @ inverse @ within)
    kept = lambdas > ROUNDING
    scale = np.where(kept, 1 / np.sqrt(np.where(kept, lambdas, 1.0)), 0.0)
    root = (vectors * scale[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    adjusted = np.einsum("bij,bj->bi", root, weights)
    left = np.einsum("bij,bj->bi", within, values - effects)
    freedom = np.diag(np.sum(adjusted**2, axis=1)) - adjusted @ inverse @ adjusted.T
    # What is missing as its block and configuration lead to expect.
    blocks = np.sum(np.where(present, values - effects, 0.0), axis=1) / counts
    filled = np.where(present, values, blocks[:, None] + effects)
    return _Workload(
        float(contrast @ effects),
        np.where(np.abs(weights) > ROUNDING, weights, 0.0),
        np.sum(adjusted * left, axis=1),
        freedom,
        filled[:, 1] - filled[:, 0],
    )
