"""Find where all powers of a channel change by one factor at once, as by a hidden change of range.

What is compared is what is repeated: phases of one kind, and rests. A machine that takes some watts
more has the larger factor at rest, one that works harder has it under load alone; the same factor
in both is the meter's, or that of what supplies the machine.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from analysis.suite.clocks import Floats, Ints

STEP_FLAG = "readings-stepped"
LEAST = 12  # powers in which a step is looked for
LEAST_STEP = 0.03  # of the power
CLEAR2 = 25.0  # variances by which its sum of squares is less than that of a trend, or of watts
MOST_APART = 0.25  # of the step, by which it may differ between these
ABRUPT, NEAR = 0.8, 3  # share of the step that lies between so many powers before and after it


class Power(NamedTuple):
    """A mean power in W at `t_ns`; `kind` is the same for what is repeated."""

    t_ns: int
    kind: Hashable
    power_w: float


def is_stepped(powers: Sequence[Power]) -> bool:
    """Whether all powers, whatever their kind, change by one factor at some time."""
    ordered = sorted(
        (p for p in powers if p.power_w > 0 and math.isfinite(p.power_w)), key=lambda p: p.t_ns
    )
    numbers: dict[Hashable, int] = {}
    kinds = np.array([numbers.setdefault(p.kind, len(numbers)) for p in ordered], np.int64)
    logs = np.log([p.power_w for p in ordered])
    count = len(ordered)
    pieces = (  # the whole, halves and quarters, for a range may change back
        slice(start, start + size)
        for size in (count, count // 2, count // 4)
        if size >= LEAST
        for start in range(0, count - size + 1, size // 2)
    )
    return any(_steps(logs[piece], kinds[piece]) for piece in pieces)


def _steps(logs: Floats, kinds: Ints) -> bool:
    """Whether there is such a step in logarithms of powers, in order of time."""
    _, kinds, counts = np.unique(kinds, return_inverse=True, return_counts=True)
    free = len(logs) - len(counts) - 3
    if free < 3:
        return False
    # By the last power before a step: the sums of squares, and of products with what is after it.
    size, earlier = counts[kinds], np.empty(len(logs))
    order = np.argsort(kinds, kind="stable")
    earlier[order] = np.arange(len(logs)) - np.repeat(np.cumsum(counts) - counts, counts)
    squares = np.maximum(np.cumsum((size - 2 * earlier - 1) / size)[:-1], 0.5)
    products = -np.cumsum(_centred(logs, kinds))[:-1]
    at = int(np.argmax(products**2 / squares))
    after = (np.arange(len(logs)) > at).astype(np.float64)
    # In the middle of one of the two beside it there may be the step.
    clear = np.delete(np.arange(len(logs)), [at, at + 1])
    logs, kinds, after = logs[clear], kinds[clear], after[clear]
    step, left = _fit(logs, after, kinds)
    scatter2 = left / free + 1e-12
    if abs(step) < LEAST_STEP:
        return False
    levels = logs - step * after
    levels -= _centred(levels, kinds)
    trend, watts = np.arange(len(logs), dtype=np.float64), after * np.exp(-levels)
    others = [_fit(logs, other, kinds)[1] for other in (trend, watts)]
    if min(others) - left < CLEAR2 * scatter2:
        return False
    before, behind = (logs - levels)[:at][-NEAR:], (logs - levels)[at:][:NEAR]
    if not len(before) or not len(behind) or (behind.mean() - before.mean()) / step < ABRUPT:
        return False
    lowest, highest = np.quantile([levels.min(), levels.max()], [0.25, 0.75])
    sides = levels < lowest, levels > highest
    ends = [_fit(logs[side], after[side], kinds[side])[0] for side in sides]
    return all(abs(end / step - 1) < MOST_APART for end in ends)


def _centred(values: Floats, kinds: Ints) -> Floats:
    """Return values less the mean of their kind."""
    means = np.bincount(kinds, values) / np.maximum(np.bincount(kinds), 1)
    return np.asarray(values - means[kinds])


def _fit(logs: Floats, regressor: Floats, kinds: Ints) -> tuple[float, float]:
    """Return the slope of `logs` on a regressor within kinds, and the sum of squares left."""
    y, x = _centred(logs, kinds), _centred(regressor, kinds)
    slope = float(x @ y) / max(float(x @ x), 1e-12)
    return slope, float(np.sum((y - slope * x) ** 2))
