"""What a meter would read of the load watermark, and its derivatives; search for its place.

The model of a reading is base + drift + swing × the mean of the load over its window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from analysis.suite.align import Floats, Ints

MIN_READINGS = 12  # in a watermark: fewer leave nothing to judge the fit by
MIN_SHARE = 0.6  # of the time of a watermark that readings must cover
MAX_READINGS = 4000  # of a watermark; neighbours of a faster meter are put together
GRID_PARTS = 8  # steps of the search in a chip, then in a window
FINEST_STEPS = 200  # of the search around the peak


class NotSeenError(Exception):
    """There is no watermark in the readings; the message is a clause that says why."""


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
    """The readings of a watermark that lies `offset_s` late. Raises NotSeenError."""
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
    whole = np.abs(ends[:, -1] - ends[:, 0] - (count - 1) * told_s) < 0.5 * told_s
    return ends[whole, -1], powers[whole].mean(axis=1), count * told_s


def search(part: Part, search_s: float) -> tuple[float, float]:
    """The offset in s at which the load goes best with the readings, and the peak's quality.

    Quality is the height of the main lobe over that of the highest side lobe of the correlation
    coefficient. Raises NotSeenError.
    """
    rest = np.column_stack([np.ones(len(part.end_s)), part.end_s])
    basis: Floats = np.linalg.qr(rest)[0]
    seen = part.power_w - basis @ (basis.T @ part.power_w)
    seen_size = float(np.linalg.norm(seen))
    if seen_size <= 1e-9 * float(np.linalg.norm(part.power_w)):
        raise NotSeenError("the readings never change")

    def match(offset_s: float) -> float:
        mean = means(part, offset_s, part.told_s)[0]
        mean = mean - basis @ (basis.T @ mean)
        size = float(np.linalg.norm(mean))
        return float(mean @ seen) / (size * seen_size) if size > 1e-9 * len(mean) else 0.0

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
    """The derivatives at these offsets and this length of the window."""
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
