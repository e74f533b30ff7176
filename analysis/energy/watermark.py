"""When a meter saw the load watermark: offset, skew and averaging window by least squares.

Base, drift and swing are linear and projected out (variable projection: Golub and Pereyra 1973,
with the Jacobian of Kaufman 1975); the offset at each watermark and the window's length are fitted.
An offset is positive where the meter's windows seem to lie later than the clock link says. It is
that of their middles, where windows of the length that the meter tells end at the times given.

The 95 % bound of an offset is Student's t times the larger one of two standard errors (equal noise
in all readings; noise as found in each: HC3, MacKinnon and White 1985). Where the residuals show
more than noise that a rectangular window and sharp edges do not explain, it is added in full: half
of what the fitted window differs from the told one, half of the time by which rising and falling
edges are parted, and the share of a reading that comes from the window before, times the window. A
delay that is the same for every reading is a part of the offset: no fit can tell it from one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import t as student

from analysis.energy.watermark_model import (
    Columns,
    Model,
    NotSeenError,
    Readings,
    Watermark,
    columns_of,
    model_of,
    part_of,
    search,
)
from analysis.suite.align import Floats

MIN_QUALITY = 3.0  # main lobe / side lobe, below which another offset fits about as well
MIN_SWING_SIGMAS = 6.0
WORST_CONDITION = 1e8
SEARCH_S, SEARCH_CHIPS = 2.0, 4.0


@dataclass(frozen=True)
class Fit:
    """What the watermarks of one session tell of one channel; None where they tell nothing.

    `offset_ms` and `bound_ms` (95 %) are for each watermark's `middle_ns`. `problem` says why there
    are no figures, and is empty where there are. `quality` is the worst watermark's main lobe over
    its highest side lobe; `window_told_s` what the meter says of its windows.
    """

    problem: str
    middle_ns: tuple[int, ...] = ()
    offset_ms: tuple[float, ...] = ()
    bound_ms: tuple[float, ...] = ()
    skew_ppm: float | None = None
    skew_bound_ppm: float | None = None
    window_s: float | None = None
    window_bound_s: float | None = None
    window_told_s: float | None = None
    swing_w: float | None = None
    quality: float | None = None
    readings: int = 0

    def at_ms(self, t_ns: int) -> float:
        """Offset at a time of the controller's clock: the straight line through the watermarks."""
        if not self.offset_ms:
            raise ValueError(self.problem)
        return self.offset_ms[0] + (self.skew_ppm or 0.0) * (t_ns - self.middle_ns[0]) * 1e-12


class _Solved(NamedTuple):
    """Where the residuals are least; `every` are the derivatives in all parameters."""

    offsets_s: Floats
    window_s: float
    swings_w: Floats
    every: Floats
    parting: Floats
    before: Floats
    left_w: Floats


def reach_s(mark: Watermark) -> float:
    """How far to both sides the offset of a watermark is looked for, in s."""
    return max(SEARCH_S, SEARCH_CHIPS * mark.chip_s)


def fit(readings: Readings, marks: Sequence[Watermark]) -> Fit:
    """Fit one or two watermarks of one session; offsets are looked for within `reach_s`."""
    if not 1 <= len(marks) <= 2:
        raise ValueError(f"a session has one or two watermarks, not {len(marks)}")
    marks = sorted(marks, key=lambda mark: mark.middle_ns)
    quality = None
    try:
        parts, rough, qualities = [], [], []
        for mark in marks:
            offset_s, _ = search(part_of(readings, mark, 0.0), reach_s(mark))
            # What came before the rest and after it is not known: look where the pattern is.
            part = part_of(readings, mark, offset_s)
            offset_s, height = search(part, reach_s(mark))
            parts.append(part)
            rough.append(offset_s)
            qualities.append(height)
        quality = min(qualities)
        if quality < MIN_QUALITY:
            raise NotSeenError(
                f"another offset fits about as well (main lobe / side lobe {quality:.1f}, at least "
                f"{MIN_QUALITY:g} is needed)"
            )
        model = model_of(parts, [mark.middle_ns for mark in marks])
        return replace(_judged(model, _solve(model, rough), marks), quality=quality)
    except NotSeenError as error:
        return Fit(f"no watermark seen: {error}", quality=quality)


def _solve(model: Model, rough_s: Sequence[float]) -> _Solved:
    """Offsets and window together, from two guesses of the window."""
    count = len(rough_s)

    def at(x: Floats) -> tuple[Columns, Floats, Floats]:
        columns = columns_of(model, x[:count], float(x[count]))
        solution = np.linalg.lstsq(columns.linear, model.power_w, rcond=None)[0]
        factors = solution.astype(np.float64)
        return columns, factors, model.power_w - columns.linear @ factors

    def residual(x: Floats) -> Floats:
        return -at(x)[2]

    def jacobian(x: Floats) -> Floats:
        columns, factors, _ = at(x)
        basis = np.linalg.qr(columns.linear)[0]
        bent = _bent(model, columns, factors)
        projected: Floats = bent - basis @ (basis.T @ bent)
        return projected

    room_s = max(model.told_s, model.parts[0].chip_s)
    low = [*(rough - room_s for rough in rough_s), 0.02 * model.told_s]
    high = [*(rough + room_s for rough in rough_s), 5.0 * room_s]
    tries = [
        least_squares(
            residual,
            [*rough_s, scale * model.told_s],
            jac=jacobian,
            bounds=(low, high),
            x_scale=model.told_s,
        )
        for scale in (0.9, 1.6)
    ]
    x = min(tries, key=lambda one: float(one.cost)).x
    columns, factors, left_w = at(x)
    every = np.column_stack([columns.linear, _bent(model, columns, factors)])
    swing_w = _each(model, factors[2::3])
    return _Solved(
        offsets_s=x[:count],
        window_s=float(x[count]),
        swings_w=factors[2::3],
        every=every,
        parting=columns.parting * swing_w,
        before=columns.before * swing_w,
        left_w=left_w,
    )


def _bent(model: Model, columns: Columns, factors: Floats) -> Floats:
    """Derivatives in the offsets and the window, in W per s."""
    swing_w = _each(model, factors[2::3])
    return np.column_stack([columns.shift, columns.widen]) * swing_w[:, None]


def _each(model: Model, of_parts: Floats) -> Floats:
    return np.repeat(of_parts, [len(part.end_s) for part in model.parts])


def _judged(model: Model, solved: _Solved, marks: Sequence[Watermark]) -> Fit:
    """The solution with its bounds. Raises NotSeenError where there is none."""
    count = len(marks)
    first = 3 * count  # place of the first offset among the parameters
    variance = covariance(solved.every, solved.left_w)
    free = len(solved.left_w) - solved.every.shape[1]
    if variance is None or free < 3:
        raise NotSeenError("the readings cannot tell the offset from the window's length")
    sigma = np.sqrt(np.diag(variance))
    if np.any(solved.swings_w < MIN_SWING_SIGMAS * sigma[2:first:3]):
        raise NotSeenError(
            f"the power rises by {float(solved.swings_w.min()):.3g} W under load, which is not "
            "clear of the noise"
        )
    times = float(student.ppf(0.975, free))
    window_bound_s = times * float(sigma[-1])
    wrong_s = abs(solved.window_s - model.told_s)
    blind_s = 0.5 * wrong_s if wrong_s > window_bound_s else 0.0
    blind_s += 0.5 * _beyond_noise(solved, solved.parting, times)
    blind_s += solved.window_s * _beyond_noise(solved, solved.before, times)
    bounds_s = [
        times * float(sigma[first + k]) + blind_s + mark.edge_bound_s
        for k, mark in enumerate(marks)
    ]
    found = Fit(
        problem="",
        middle_ns=tuple(mark.middle_ns for mark in marks),
        offset_ms=tuple(float(offset_s) * 1e3 for offset_s in solved.offsets_s),
        bound_ms=tuple(bound_s * 1e3 for bound_s in bounds_s),
        window_s=solved.window_s,
        window_bound_s=window_bound_s,
        window_told_s=model.told_s,
        swing_w=float(solved.swings_w.mean()),
        readings=len(solved.left_w),
    )
    if count == 1:
        return found
    # What a rectangular window cannot tell is the same at both ends.
    a, b = first, first + 1
    both_s = times * float(np.sqrt(variance[a, a] + variance[b, b] - 2 * variance[a, b]))
    apart_s = (marks[1].middle_ns - marks[0].middle_ns) / 1e9
    return replace(
        found,
        skew_ppm=float(solved.offsets_s[1] - solved.offsets_s[0]) / apart_s * 1e6,
        skew_bound_ppm=(both_s + sum(mark.edge_bound_s for mark in marks)) / apart_s * 1e6,
    )


def covariance(every: Floats, left_w: Floats) -> Floats | None:
    """Of all parameters, each with the larger one of two variances; None where they are not told
    apart."""
    scale = np.linalg.norm(every, axis=0)
    if np.any(scale == 0) or np.linalg.cond(every / scale) > WORST_CONDITION:
        return None
    scaled = every / scale
    inverse = np.linalg.inv(scaled.T @ scaled)
    free = max(len(left_w) - every.shape[1], 1)
    equal = inverse * float(left_w @ left_w) / free
    leverage = np.einsum("ij,jk,ik->i", scaled, inverse, scaled)
    weighted = scaled * (left_w / np.maximum(1 - leverage, 0.05))[:, None]
    found = inverse @ (weighted.T @ weighted) @ inverse
    # The correlations of the one kept, so that the result is still a covariance.
    ratio = np.diag(found) / np.maximum(np.diag(equal), np.finfo(np.float64).tiny)
    grow = np.sqrt(np.maximum(ratio, 1.0))
    both: Floats = equal * np.outer(grow, grow) / np.outer(scale, scale)
    return both


def _beyond_noise(solved: _Solved, column: Floats, times: float) -> float:
    """How much of one more column is in what is left over; 0 where noise explains it."""
    every = np.column_stack([solved.every, column])
    variance = covariance(every, solved.left_w)
    if variance is None:
        return 0.0
    part = abs(float(np.linalg.lstsq(every, solved.left_w, rcond=None)[0][-1]))
    return part if part > times * float(np.sqrt(variance[-1, -1])) else 0.0
