"""When a meter saw the load watermark: offset, skew and averaging window by least squares.

The model of a reading is base + drift + swing × the mean of the load over its window. Base, drift
and swing are linear and are projected out (variable projection: Golub and Pereyra 1973, with the
Jacobian of Kaufman 1975); the offset at each watermark and the window's length are fitted. An
offset is positive where the meter's windows seem to lie later than the clock link says. It is that
of their middles, where windows of the length that the meter tells end at the times given.

The 95 % bound of an offset is the larger one of two standard errors (equal noise in all readings;
noise as found at the edges: HC3, MacKinnon and White 1985) times Student's t, plus what a
rectangular window cannot tell: half of what the fitted window differs from the told one beyond
its own bound, and half of what rising and falling edges lie apart beyond theirs. A delay that is
the same for every reading is a part of the offset: no fit can tell it from one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares
from scipy.stats import t as student

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MIN_QUALITY = 3.0  # main lobe / side lobe, below which another offset fits about as well
MIN_READINGS = 12  # in a watermark: fewer leave nothing to judge the fit by
MIN_SHARE = 0.6  # of the time of a watermark that readings must cover
MIN_SWING_SIGMAS = 6.0
MAX_READINGS = 4000  # of a watermark; neighbours of a faster meter are put together
GRID_PARTS = 8  # steps of the search in the shorter one of window and chip
LEAST_GRID_S = 0.02  # taken for the window of a meter that is faster


@dataclass(frozen=True, eq=False)
class Readings:
    """One channel, in order of time: ends of the windows on the controller's clock, mean powers."""

    end_ns: Ints
    width_s: Floats
    power_w: Floats


@dataclass(frozen=True)
class Watermark:
    """Edges of the load on the controller's clock, as far as the clock link knows it.

    `pad_s` of rest lie before and after; the edges may each be wrong by `edge_bound_s`.
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


@dataclass(frozen=True)
class Fit:
    """What the watermarks of one session tell of one channel; None where they tell nothing.

    `offset_ms` and `bound_ms` are for each watermark's `middle_ns`, bounds of 95 %. `problem` says
    why there are no figures, and is empty where there are. `quality` is the worst watermark's main
    lobe over its highest side lobe. `window_told_s` is what the meter says of its windows.
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


class _Part(NamedTuple):
    """One watermark and the readings around it; times in s from its middle."""

    end_s: Floats
    power_w: Floats
    edges_s: Floats
    levels: Floats
    told_s: float
    chip_s: float


class _Model(NamedTuple):
    """Readings and edges of all parts; `share` spreads the offsets over the readings."""

    parts: tuple[_Part, ...]
    power_w: Floats
    shares: tuple[Floats, ...]
    told_s: float


def fit(readings: Readings, marks: Sequence[Watermark], search_s: float = 2.0) -> Fit:
    """Fit one or two watermarks of one session; offsets are looked for within ± `search_s`."""
    if not 1 <= len(marks) <= 2:
        raise ValueError(f"a session has one or two watermarks, not {len(marks)}")
    marks = sorted(marks, key=lambda mark: mark.middle_ns)
    parts: list[_Part] = []
    rough: list[tuple[float, float]] = []
    for mark in marks:
        part = _part(readings, mark, 0.0)
        coarse = part if isinstance(part, str) else _search(part, search_s)
        if not isinstance(coarse, str):
            # What came before the rest and after it is not known: look where the pattern is.
            part = _part(readings, mark, coarse[0])
            coarse = part if isinstance(part, str) else _search(part, search_s)
        if isinstance(part, str) or isinstance(coarse, str):
            return Fit(str(coarse))
        parts.append(part)
        rough.append(coarse)
    quality = min(quality for _, quality in rough)
    if quality < MIN_QUALITY:
        return Fit(
            f"no watermark seen: another offset fits about as well (main lobe / side lobe "
            f"{quality:.1f}, at least {MIN_QUALITY:g} is needed)",
            quality=quality,
        )
    found = _refine(_model(parts, marks), [offset for offset, _ in rough], marks)
    return replace(found, quality=quality)


def load_of(edges_s: Floats, levels: Floats, t_s: Floats) -> tuple[Floats, Floats]:
    """Load (0 or 1) at times, and its integral up to them, in s."""
    steps = np.diff(levels, prepend=0.0)
    place = np.searchsorted(edges_s, t_s, side="right")
    level = np.concatenate([[0.0], levels])[place]
    until = (
        np.concatenate([[0.0], np.cumsum(steps)]),
        np.concatenate([[0.0], np.cumsum(steps * edges_s)]),
    )
    return level, until[0][place] * t_s - until[1][place]


def _part(readings: Readings, mark: Watermark, offset_s: float) -> _Part | str:
    """The readings of a watermark that lie `offset_s` late, or why there are not enough."""
    begin_ns = mark.t_ns[0] + round((offset_s - mark.pad_s) * 1e9)
    end_ns = mark.t_ns[-1] + round((offset_s + mark.pad_s) * 1e9)
    first, last = np.searchsorted(readings.end_ns, [begin_ns, end_ns])
    end_s = (readings.end_ns[first:last] - mark.middle_ns) / 1e9
    width_s, power_w = readings.width_s[first:last], readings.power_w[first:last]
    good = np.isfinite(power_w) & np.isfinite(width_s) & (width_s > 0)
    end_s, width_s, power_w = end_s[good], width_s[good], power_w[good]
    if len(end_s) < MIN_READINGS:
        return f"no watermark seen: {len(end_s)} readings while it was played"
    told_s = float(np.median(width_s))
    share = float(width_s.sum()) / ((end_ns - begin_ns) / 1e9)
    if share < MIN_SHARE:
        return f"no watermark seen: readings cover {share:.0%} of the time it was played"
    end_s, power_w, told_s = _put_together(end_s, width_s, power_w, told_s)
    edges_s = (np.array(mark.t_ns, np.int64) - mark.middle_ns) / 1e9
    return _Part(end_s, power_w, edges_s, np.array(mark.high, np.float64), told_s, mark.chip_s)


def _put_together(
    end_s: Floats, width_s: Floats, power_w: Floats, told_s: float
) -> tuple[Floats, Floats, float]:
    """Means over neighbours where there are more than the fit needs; gaps are never bridged."""
    count = len(end_s) // MAX_READINGS + 1
    if count == 1:
        return end_s, power_w, told_s
    rows = len(end_s) // count
    ends, powers, widths = (
        a[: rows * count].reshape(rows, count) for a in (end_s, power_w, width_s)
    )
    span = ends[:, -1] - ends[:, 0] + widths[:, 0]
    whole = np.abs(span - count * told_s) < 0.5 * told_s
    return ends[whole, -1], powers[whole].mean(axis=1), count * told_s


def _means(part: _Part, offset_s: Floats | float, window_s: float) -> tuple[Floats, Floats, Floats]:
    """Mean load over each window, and the load at its end and at its start."""
    end_s = part.end_s - offset_s
    at_end, until_end = load_of(part.edges_s, part.levels, end_s)
    at_start, until_start = load_of(part.edges_s, part.levels, end_s - window_s)
    return (until_end - until_start) / window_s, at_end, at_start


def _search(part: _Part, search_s: float) -> tuple[float, float] | str:
    """The offset at which the load goes best with the readings, and the quality of the peak."""
    rest = np.column_stack([np.ones(len(part.end_s)), part.end_s])
    basis, _ = np.linalg.qr(rest)
    seen = part.power_w - basis @ (basis.T @ part.power_w)
    if not np.any(np.abs(seen) > 1e-9 * max(1.0, float(np.abs(part.power_w).max()))):
        return "no watermark seen: the readings never change"
    step_s = max(min(part.told_s, part.chip_s), LEAST_GRID_S) / GRID_PARTS
    grid = np.arange(-search_s, search_s + step_s, step_s)
    match = np.empty(len(grid))
    for i, offset_s in enumerate(grid):
        mean, _, _ = _means(part, float(offset_s), part.told_s)
        mean = mean - basis @ (basis.T @ mean)
        size = float(np.linalg.norm(mean) * np.linalg.norm(seen))
        match[i] = mean @ seen / size if size > 0 else 0.0
    peak = int(np.argmax(np.abs(match)))
    if match[peak] < 0:
        return "no watermark seen: the power falls where the load rises"
    if peak in (0, len(grid) - 1):
        return f"no watermark seen within {search_s:g} s of where the clocks put it"
    aside = np.abs(match[np.abs(grid - grid[peak]) >= part.chip_s + part.told_s / 2])
    return float(grid[peak]), float(match[peak] / aside.max()) if len(aside) else 0.0


def _model(parts: Sequence[_Part], marks: Sequence[Watermark]) -> _Model:
    middles = [(mark.middle_ns - marks[0].middle_ns) / 1e9 for mark in marks]
    shares = []
    for part, middle_s in zip(parts, middles, strict=True):
        if len(parts) == 1:
            shares.append(np.ones((len(part.end_s), 1)))
        else:
            late = (part.end_s + middle_s) / middles[1]
            shares.append(np.column_stack([1 - late, late]))
    power_w = np.concatenate([part.power_w for part in parts])
    return _Model(tuple(parts), power_w, tuple(shares), float(np.mean([p.told_s for p in parts])))


class _Columns(NamedTuple):
    """Derivatives of the readings: linear ones (base, drift, swing of each part), and others."""

    linear: Floats
    shift: Floats  # W per s of each offset, for a swing of 1 W
    widen: Floats  # W per s of the window
    parting: Floats  # W per s by which rising edges come later and falling ones sooner


def _columns(model: _Model, offsets_s: Floats, window_s: float) -> _Columns:
    total = len(model.power_w)
    linear = np.zeros((total, 3 * len(model.parts)))
    shift = np.zeros((total, len(offsets_s)))
    widen, parting = np.zeros(total), np.zeros(total)
    row = 0
    for k, (part, share) in enumerate(zip(model.parts, model.shares, strict=True)):
        rows = slice(row, row + len(part.end_s))
        row = rows.stop
        offset_s = share @ offsets_s
        # The offset is that of a window's middle: its end is as uncertain as the window's length.
        offset_s = offset_s - (window_s - part.told_s) / 2
        mean, at_end, at_start = _means(part, offset_s, window_s)
        linear[rows, 3 * k : 3 * k + 3] = np.column_stack([np.ones_like(mean), part.end_s, mean])
        shift[rows] = (-(at_end - at_start) / window_s)[:, None] * share
        widen[rows] = ((at_start + at_end) / 2 - mean) / window_s
        end_s = part.end_s - offset_s
        inside = np.searchsorted(part.edges_s, end_s) - np.searchsorted(
            part.edges_s, end_s - window_s
        )
        parting[rows] = -inside / window_s
    return _Columns(linear, shift, widen, parting)


def _refine(model: _Model, rough_s: Sequence[float], marks: Sequence[Watermark]) -> Fit:
    """Fit offsets and window together; bounds from what is left over."""
    count = len(rough_s)

    def split(x: Floats) -> tuple[_Columns, Floats, Floats, Floats]:
        columns = _columns(model, x[:count], float(x[count]))
        basis: Floats = np.linalg.qr(columns.linear)[0]
        coefficients: Floats = np.linalg.lstsq(columns.linear, model.power_w, rcond=None)[0]
        left: Floats = model.power_w - columns.linear @ coefficients
        return columns, basis, coefficients, left

    def slopes(columns: _Columns, coefficients: Floats) -> Floats:
        swing = np.concatenate(
            [np.full(len(p.end_s), coefficients[3 * k + 2]) for k, p in enumerate(model.parts)]
        )
        return np.column_stack([columns.shift, columns.widen]) * swing[:, None]

    def residual(x: Floats) -> Floats:
        return -split(x)[3]

    def jacobian(x: Floats) -> Floats:
        columns, basis, coefficients, _ = split(x)
        wild = slopes(columns, coefficients)
        return wild - basis @ (basis.T @ wild)

    reach_s = max(model.told_s, model.parts[0].chip_s)
    low = [*(r - reach_s for r in rough_s), 0.02 * model.told_s]
    high = [*(r + reach_s for r in rough_s), 5.0 * reach_s]
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
    best = min(tries, key=lambda one: float(one.cost))
    columns, _, coefficients, left = split(best.x)
    return _judged(model, best.x, columns, coefficients, slopes(columns, coefficients), left, marks)


def _judged(
    model: _Model,
    x: Floats,
    columns: _Columns,
    coefficients: Floats,
    wild: Floats,
    left: Floats,
    marks: Sequence[Watermark],
) -> Fit:
    """The fit with its bounds, or why it is none."""
    count = len(marks)
    linear = columns.linear.shape[1]
    every = np.column_stack([columns.linear, wild])
    spread = _spread(every, left)
    free = len(left) - every.shape[1]
    if spread is None or free < 3:
        return Fit(
            "no watermark seen: the readings cannot tell the offset from the window's length"
        )
    swings = coefficients[2::3]
    sigma = np.sqrt(np.diag(spread))
    if np.any(swings < MIN_SWING_SIGMAS * sigma[2:linear:3]):
        return Fit(
            f"no watermark seen: the power rises by {float(swings.min()):.3g} W under load, "
            "which is not clear of the noise"
        )
    times = float(student.ppf(0.975, free))
    window_s, window_bound_s = float(x[count]), times * float(sigma[-1])
    swing_of = np.repeat(swings, [len(part.end_s) for part in model.parts])
    blind_s = 0.5 * max(0.0, abs(window_s - model.told_s) - window_bound_s) + 0.5 * _parting(
        every, columns.parting * swing_of, left, times
    )
    bounds_s = [
        times * float(s) + blind_s + mark.edge_bound_s
        for s, mark in zip(sigma[linear : linear + count], marks, strict=True)
    ]
    skew = skew_bound = None
    if count == 2:
        apart_s = (marks[1].middle_ns - marks[0].middle_ns) / 1e9
        a, b = linear, linear + 1
        both_s = times * float(np.sqrt(spread[a, a] + spread[b, b] - 2 * spread[a, b]))
        skew = float(x[1] - x[0]) / apart_s * 1e6
        skew_bound = (both_s + sum(mark.edge_bound_s for mark in marks)) / apart_s * 1e6
    return Fit(
        problem="",
        middle_ns=tuple(mark.middle_ns for mark in marks),
        offset_ms=tuple(float(offset_s) * 1e3 for offset_s in x[:count]),
        bound_ms=tuple(bound_s * 1e3 for bound_s in bounds_s),
        skew_ppm=skew,
        skew_bound_ppm=skew_bound,
        window_s=window_s,
        window_bound_s=window_bound_s,
        window_told_s=model.told_s,
        swing_w=float(swings.mean()),
        readings=len(left),
    )


def _spread(every: Floats, left: Floats) -> Floats | None:
    """Covariance of all parameters: element by element the larger variance of the two estimates."""
    scale = np.linalg.norm(every, axis=0)
    if np.any(scale == 0):
        return None
    scaled = every / scale
    if np.linalg.cond(scaled) > 1e8:
        return None
    inverse = np.linalg.inv(scaled.T @ scaled)
    free = max(len(left) - every.shape[1], 1)
    plain = inverse * float(left @ left) / free
    leverage = np.einsum("ij,jk,ik->i", scaled, inverse, scaled)
    weighted = scaled * (left / np.maximum(1 - leverage, 0.05))[:, None]
    edges = inverse @ (weighted.T @ weighted) @ inverse
    # Correlations of the plain one, so that the result is still a covariance.
    grow = np.sqrt(np.maximum(np.diag(edges) / np.maximum(np.diag(plain), 1e-300), 1.0))
    return np.asarray(plain * np.outer(grow, grow) / np.outer(scale, scale))


def _parting(every: Floats, parting: Floats, left: Floats, times: float) -> float:
    """How far rising and falling edges lie apart in s, beyond what noise explains."""
    wider = np.column_stack([every, parting])
    spread = _spread(wider, left)
    if spread is None:
        return 0.0
    change = np.linalg.lstsq(wider, left, rcond=None)[0]
    return max(0.0, 2 * abs(float(change[-1])) - times * 2 * float(np.sqrt(spread[-1, -1])))
