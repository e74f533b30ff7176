"""What a meter would read of the load watermark, and its derivatives; search for its place.

The model of a reading is base + drift + swing × the mean of the load over its window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import special

from analysis.suite.clocks import Floats, Ints

MIN_READINGS = 12  # in a watermark: fewer leave nothing to judge the fit by
MIN_SHARE = 0.6  # of the time of a watermark that readings must cover
MAX_READINGS = 4000  # of a watermark; neighbours of a faster meter are put together
GRID_PARTS = 8  # steps of the search in a chip, then in a window
FINEST_STEPS = 200  # of the search around the peak


class NotSeenError(Exception):
    """There is no watermark in the readings; the message is a clause with the reason."""


@dataclass(frozen=True, eq=False)
class Readings:
    """One channel, in order of time: ends of the windows on the controller's clock, mean powers."""

    end_ns: Ints
    width_s: Floats
    power_w: Floats


@dataclass(frozen=True)
class Watermark:
    """Edges of the load on the controller's clock, as far as the clock link knows it.

    At `t_ns` the load becomes `high` (1 or 0). `pad_s` of rest lie before and after; the edges may
    each be wrong by `edge_bound_s`.
    """

    t_ns: tuple[int, ...]
    high: tuple[int, ...]
    chip_s: float
    pad_s: float
    edge_bound_s: float = 0.0

    @property
    def middle_ns(self) -> int:
        """The time that an offset of the whole watermark is for."""
        return (self.t_ns[0] + self.t_ns[-1]) // 2


class Part(NamedTuple):
    """One watermark and the readings around it; times in s from its middle."""

    end_s: Floats
    power_w: Floats
    edges_s: Floats
    levels: Floats
    told_s: float
    chip_s: float


class Model(NamedTuple):
    """Readings and edges of all parts; `shares` spread the parts' offsets over the readings."""

    parts: tuple[Part, ...]
    shares: tuple[Floats, ...]
    power_w: Floats
    told_s: float


class Columns(NamedTuple):
    """Derivatives of the readings in the parameters, of all but `linear` for a swing of 1 W."""

    linear: Floats  # base in W, drift in W/s and swing in W of each part
    shift: Floats  # per s of each part's offset
    widen: Floats  # per s of the window
    parting: Floats  # per s between rising edges that come late and falling ones that come soon
    before: Floats  # per share of a reading that comes from the window before


def load_of(edges_s: Floats, levels: Floats, t_s: Floats) -> tuple[Floats, Floats]:
    """Load (0 or 1) at times, and its integral up to them, in s."""
    steps = np.diff(levels, prepend=0.0)
    place = np.searchsorted(edges_s, t_s, side="right")
    level = np.concatenate([[0.0], np.cumsum(steps)])[place]
    moment = np.concatenate([[0.0], np.cumsum(steps * edges_s)])[place]
    return level, level * t_s - moment


def part_of(readings: Readings, mark: Watermark, offset_s: float) -> Part:
    """Return the readings of a watermark that lies `offset_s` late. Raises NotSeenError."""
    begin_ns = mark.t_ns[0] + round((offset_s - mark.pad_s) * 1e9)
    end_ns = mark.t_ns[-1] + round((offset_s + mark.pad_s) * 1e9)
    first, last = np.searchsorted(readings.end_ns, [begin_ns, end_ns])
    end_s = (readings.end_ns[first:last] - mark.middle_ns) / 1e9
    width_s, power_w = readings.width_s[first:last], readings.power_w[first:last]
    good = np.isfinite(power_w) & np.isfinite(width_s) & (width_s > 0)
    end_s, width_s, power_w = end_s[good], width_s[good], power_w[good]
    if len(end_s) < MIN_READINGS:
        raise NotSeenError(f"there are {len(end_s)} readings of the time it was played")
    share = float(width_s.sum()) / ((end_ns - begin_ns) / 1e9)
    if share < MIN_SHARE:
        raise NotSeenError(f"readings cover {share:.0%} of the time it was played")
    end_s, power_w, told_s = _put_together(end_s, width_s, power_w)
    edges_s = (np.array(mark.t_ns, np.int64) - mark.middle_ns) / 1e9
    return Part(end_s, power_w, edges_s, np.array(mark.high, np.float64), told_s, mark.chip_s)


def _put_together(end_s: Floats, width_s: Floats, power_w: Floats) -> tuple[Floats, Floats, float]:
    """Means over neighbours where there are more than the fit needs; gaps are never bridged."""
    told_s = float(np.median(width_s))
    count = len(end_s) // MAX_READINGS + 1
    if count == 1:
        return end_s, power_w, told_s
    rows = len(end_s) // count
    ends, powers = (a[: rows * count].reshape(rows, count) for a in (end_s, power_w))
    contiguous = np.abs(ends[:, -1] - ends[:, 0] - (count - 1) * told_s) < 0.5 * told_s
    return ends[contiguous, -1], powers[contiguous].mean(axis=1), count * told_s


def search(part: Part, search_s: float) -> tuple[float, float]:
    """Return the offset in s at which the load goes best with the readings, and the peak's quality.

    Quality is the height of the main lobe over that of the highest side lobe of the correlation
    coefficient. Raises NotSeenError.
    """
    rest = np.column_stack([np.ones(len(part.end_s)), part.end_s])
    basis: Floats = np.linalg.qr(rest)[0]
    changes_w = part.power_w - basis @ (basis.T @ part.power_w)
    seen_size = float(np.linalg.norm(changes_w))
    if seen_size <= 1e-9 * float(np.linalg.norm(part.power_w)):
        raise NotSeenError("the readings never change")

    def match(offset_s: float) -> float:
        mean = means(part, offset_s, part.told_s)[0]
        mean = mean - basis @ (basis.T @ mean)
        size = float(np.linalg.norm(mean))
        return float(mean @ changes_w) / (size * seen_size) if size > 1e-9 * len(mean) else 0.0

    step_s = part.chip_s / GRID_PARTS
    grid = np.arange(-search_s, search_s + step_s, step_s)
    coarse = np.array([match(offset_s) for offset_s in grid.tolist()])
    peak = int(np.argmax(np.abs(coarse)))
    if peak in (0, len(grid) - 1):
        raise NotSeenError(f"nothing like it lies within {search_s:g} s of where the clocks put it")
    count = min(int(2 * step_s / part.told_s * GRID_PARTS) + 3, FINEST_STEPS)
    near = np.linspace(grid[peak - 1], grid[peak + 1], count)
    fine = np.array([match(offset_s) for offset_s in near.tolist()])
    best = int(np.argmax(np.abs(fine)))
    aside = np.abs(coarse[np.abs(grid - near[best]) >= part.chip_s + part.told_s / 2])
    quality = float(abs(fine[best]) / aside.max()) if len(aside) and aside.any() else 0.0
    if fine[best] < 0 and quality >= 2:
        raise NotSeenError("the power falls where the load rises")
    return float(near[best]), quality


def means(part: Part, offset_s: Floats | float, window_s: float) -> tuple[Floats, Floats, Floats]:
    """Mean load over each window, and the load at its end and at its start."""
    end_s = part.end_s - offset_s
    at_end, until_end = load_of(part.edges_s, part.levels, end_s)
    at_start, until_start = load_of(part.edges_s, part.levels, end_s - window_s)
    return (until_end - until_start) / window_s, at_end, at_start


def model_of(parts: Sequence[Part], middles_ns: Sequence[int]) -> Model:
    """One or two parts; between two, the offset is a straight line of time."""
    shares = [np.ones((len(part.end_s), 1)) for part in parts]
    if len(parts) == 2:
        apart_s = (middles_ns[1] - middles_ns[0]) / 1e9
        for k, part in enumerate(parts):
            late = part.end_s / apart_s + k
            shares[k] = np.column_stack([1 - late, late])
    power_w = np.concatenate([part.power_w for part in parts])
    told_s = float(np.mean([part.told_s for part in parts]))
    return Model(tuple(parts), tuple(shares), power_w, told_s)


def columns_of(model: Model, offsets_s: Floats, window_s: float) -> Columns:
    """Return the derivatives at these offsets and this length of the window."""
    total = len(model.power_w)
    linear = np.zeros((total, 3 * len(model.parts)))
    shift = np.zeros((total, len(model.parts)))
    widen, parting, before = np.zeros(total), np.zeros(total), np.zeros(total)
    row = 0
    for k, (part, share) in enumerate(zip(model.parts, model.shares, strict=True)):
        rows = slice(row, row + len(part.end_s))
        row = rows.stop
        # The offset is that of a window's middle: its end is as uncertain as the window's length.
        offset_s = share @ offsets_s - (window_s - part.told_s) / 2
        mean, at_end, at_start = means(part, offset_s, window_s)
        linear[rows, 3 * k : 3 * k + 3] = np.column_stack([np.ones_like(mean), part.end_s, mean])
        shift[rows] = ((at_start - at_end) / window_s)[:, None] * share
        widen[rows] = ((at_start + at_end) / 2 - mean) / window_s
        ends = np.searchsorted(part.edges_s, part.end_s - offset_s)
        starts = np.searchsorted(part.edges_s, part.end_s - offset_s - window_s)
        parting[rows] = -(ends - starts) / (2 * window_s)
        before[rows] = means(part, offset_s + window_s, window_s)[0] - mean
    return Columns(linear, shift, widen, parting, before)


MIN_QUALITY = 3.0  # main lobe / side lobe, below which another offset fits about as well
MIN_SWING_SIGMAS = 6.0
WORST_CONDITION = 1e8
WINDOW_SHARE = 0.1  # of the declared window, by which a fitted one may differ
SEARCH_S, SEARCH_CHIPS = 2.0, 4.0


@dataclass(frozen=True)
class Fit:
    """What the watermarks of one session show of one channel; None where they show nothing.

    `offset_ms` and `bound_ms` (95 %) are for each watermark's `middle_ns`. `problem` is why there
    are no figures, and is empty where there are. `quality` is the worst watermark's main lobe over
    its highest side lobe; `window_told_s` the meter's declared windows,
    `window_bound_s` the 95 % bound of the fitted one; `before_s` is the part of a reading that
    comes from before its window.
    """

    problem: str
    middle_ns: tuple[int, ...] = ()
    offset_ms: tuple[float, ...] = ()
    bound_ms: tuple[float, ...] = ()
    skew_ppm: float | None = None
    skew_bound_ppm: float | None = None
    window_s: float | None = None
    window_told_s: float | None = None
    window_bound_s: float | None = None
    before_s: float = 0.0
    swing_w: float | None = None
    quality: float | None = None
    readings: int = 0

    @property
    def delay_s(self) -> float | None:
        """How late readings follow the load in the mean, besides a window as declared, in s.

        None where the window is as declared, or not known.
        """
        if self.window_s is None or self.window_told_s is None or self.window_bound_s is None:
            return None
        longer_s = self.window_s - self.window_told_s
        if abs(longer_s) <= self.window_bound_s + WINDOW_SHARE * self.window_told_s:
            return None
        return max(longer_s / 2 + self.before_s, 0.0)


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

    from scipy.optimize import least_squares  # slow to import, and seldom needed

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
    x = min(tries, key=lambda solution: float(solution.cost)).x
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
    """Return derivatives in the offsets and the window, in W per s."""
    swing_w = _each(model, factors[2::3])
    return np.column_stack([columns.shift, columns.widen]) * swing_w[:, None]


def _each(model: Model, of_parts: Floats) -> Floats:
    return np.repeat(of_parts, [len(part.end_s) for part in model.parts])


def _judged(model: Model, solved: _Solved, marks: Sequence[Watermark]) -> Fit:
    """Return the solution with its bounds. Raises NotSeenError where there is none."""
    count = len(marks)
    first = 3 * count  # place of the first offset among the parameters
    variance = covariance(solved.every, solved.left_w)
    free = len(solved.left_w) - solved.every.shape[1]
    if variance is None or free < 3:
        raise NotSeenError("the readings cannot separate the offset from the window's length")
    sigma = np.sqrt(np.diag(variance))
    if np.any(solved.swings_w < MIN_SWING_SIGMAS * sigma[2:first:3]):
        raise NotSeenError(
            f"the power rises by {float(solved.swings_w.min()):.3g} W under load, which is not "
            "clear of the noise"
        )
    times = float(special.stdtrit(free, 0.975))
    window_bound_s = times * float(sigma[-1])
    wrong_s = abs(solved.window_s - model.told_s)
    blind_s = 0.5 * wrong_s if wrong_s > window_bound_s else 0.0
    blind_s += 0.5 * _beyond_noise(solved, solved.parting, times)
    before_s = solved.window_s * _beyond_noise(solved, solved.before, times)
    blind_s += before_s
    bounds_s = [
        times * float(sigma[first + k]) + blind_s + mark.edge_bound_s
        for k, mark in enumerate(marks)
    ]
    fitted = Fit(
        problem="",
        middle_ns=tuple(mark.middle_ns for mark in marks),
        offset_ms=tuple(float(offset_s) * 1e3 for offset_s in solved.offsets_s),
        bound_ms=tuple(bound_s * 1e3 for bound_s in bounds_s),
        window_s=solved.window_s,
        window_told_s=model.told_s,
        window_bound_s=window_bound_s,
        before_s=before_s,
        swing_w=float(solved.swings_w.mean()),
        readings=len(solved.left_w),
    )
    if count == 1:
        return fitted
    # What a rectangular window cannot tell is the same at both ends.
    a, b = first, first + 1
    both_s = times * float(np.sqrt(variance[a, a] + variance[b, b] - 2 * variance[a, b]))
    apart_s = (marks[1].middle_ns - marks[0].middle_ns) / 1e9
    return replace(
        fitted,
        skew_ppm=float(solved.offsets_s[1] - solved.offsets_s[0]) / apart_s * 1e6,
        skew_bound_ppm=(both_s + sum(mark.edge_bound_s for mark in marks)) / apart_s * 1e6,
    )


def covariance(every: Floats, left_w: Floats) -> Floats | None:
    """Of all parameters, each with the larger one of two variances.

    None where they cannot be separated.
    """
    scale = np.linalg.norm(every, axis=0)
    if np.any(scale == 0) or np.linalg.cond(every / scale) > WORST_CONDITION:
        return None
    scaled = every / scale
    inverse = np.linalg.inv(scaled.T @ scaled)
    free = max(len(left_w) - every.shape[1], 1)
    equal = inverse * float(left_w @ left_w) / free
    leverage = np.einsum("ij,jk,ik->i", scaled, inverse, scaled)
    weighted = scaled * (left_w / np.maximum(1 - leverage, 0.05))[:, None]
    robust = inverse @ (weighted.T @ weighted) @ inverse
    # The correlations of the one kept, so that the result is still a covariance.
    ratio = np.diag(robust) / np.maximum(np.diag(equal), np.finfo(np.float64).tiny)
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
