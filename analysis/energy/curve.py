"""Energy at edges and between them, from a channel's windows, cut ones and gaps included."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from analysis.energy.windows import Windows
from analysis.suite.clocks import Floats, Ints


@dataclass(frozen=True, eq=False)
class Piece:
    """Windows `begin` to `end` − 1 of `held`; the windows around them serve as neighbours.

    `gaps` are the numbers of the windows that are followed by a gap.
    """

    held: Windows
    begin: int
    end: int
    width_s: Floats
    gaps: Ints

    @classmethod
    def cut(cls, held: Windows, begin: int, end: int) -> Piece:
        """Cut a piece out of `held`, with the widths and gaps that all channels share."""
        width_s = np.asarray((held.end_ns - held.start_ns) * 1e-9, np.float64)
        first = max(begin - 1, 0)
        apart = held.start_ns[first + 1 : end] > held.end_ns[first : max(end - 1, first)]
        return cls(held, begin, end, width_s, first + np.flatnonzero(apart))

    def between(self, power: Floats, a: int, b: int) -> tuple[float, float]:
        """Return energy and time of the windows from a to b − 1, negative if b < a."""
        if b < a:
            energy_j, covered_s = self.between(power, b, a)
            return -energy_j, -covered_s
        inside = slice(a, b)
        # Not a product of vectors: BLAS would distribute so small a sum to threads.
        energy_j = (power[inside] * self.width_s[inside]).sum()
        return float(energy_j), float(self.width_s[inside].sum())


def appended(a: Windows, b: Windows) -> Windows:
    """Append the windows of b to those of a."""
    return Windows(
        np.concatenate([a.start_ns, b.start_ns]),
        np.concatenate([a.end_ns, b.end_ns]),
        np.concatenate([a.epoch, b.epoch]),
        {name: np.concatenate([a.power_w[name], b.power_w[name]]) for name in a.power_w},
        {name: np.concatenate([a.energy_j[name], b.energy_j[name]]) for name in a.energy_j},
    )


def from_window(held: Windows, keep: int) -> Windows:
    """Return the windows from number `keep` on."""
    return Windows(
        held.start_ns[keep:],
        held.end_ns[keep:],
        held.epoch[keep:],
        {name: values[keep:] for name, values in held.power_w.items()},
        {name: values[keep:] for name, values in held.energy_j.items()},
    )


LASTING_S = 0.03  # assumed time that a process takes to end after its mark
SLOPED, SLOPE_SIGMAS = 6, 3.0  # windows of a rest from which on a slope counts, and its sigmas
OUTLYING = 5  # standard deviations beyond which a window is not scatter
FILL = 3  # whole windows on each side of a gap that give the power in it


def stepped(
    held: Windows, power: Floats, edges_ns: Ints, cut: Ints, part_s: Floats
) -> tuple[Floats, Floats]:
    """Return the correction to a cut window's proportional share, and its uncertainty, in J.

    The edge is `part_s` into the window. Marks are where the load steps. With the power p₁ in the
    windows before and p₂ after, a window of length T cut at the share x has (p₁ − p₂) T x (1 − x)
    more energy before the edge than its share of the mean. Two parts are uncertain: the residual of
    its mean beyond that step, as the load may step next to the mark, which is on one side with
    probability x, else on the other; and the scatter s of the neighbours, as a bridge of noise:
    s T √(x (1 − x)). If a neighbour is cut as well or missing, or the window has other edges, as in
    a rest shorter than a window, the part between the edge and the one whole neighbour has that
    neighbour's power; without any whole neighbour the share is not corrected. The whole step and
    the correction are uncertain then.
    """
    width_s = np.asarray((held.end_ns[cut] - held.start_ns[cut]) * 1e-9)
    share = part_s / np.where(width_s > 0, width_s, 1.0)
    lever = share * (1 - share)
    uncut = np.ones(len(power) + 4, np.bool_)  # with two missing windows beyond either end
    uncut[[0, 1, -2, -1]] = False
    near_edges = edges_ns[(edges_ns > held.start_ns[0]) & (edges_ns < held.end_ns[-1])]
    reached = np.searchsorted(held.end_ns, near_edges, side="right")
    uncut[reached[held.start_ns[reached] < near_edges] + 2] = False
    index = np.clip(cut[:, None] + np.array([-2, -1, 1, 2]), 0, len(power) - 1)
    near = power[index]
    first, second, third, fourth = (uncut[cut + k] for k in (0, 1, 3, 4))
    joined = held.start_ns[1:] == held.end_ns[:-1]
    joined = np.concatenate([[False], joined, [False]])
    second &= joined[cut]
    third &= joined[cut + 1]
    before = np.where(first, (near[:, 0] + near[:, 1]) / 2, near[:, 1])
    after = np.where(fourth, (near[:, 2] + near[:, 3]) / 2, near[:, 2])
    mean = power[cut]
    one_step, beyond_w = _beyond_share(cut, share, mean, (second, before), (third, after))
    moved_j = beyond_w * width_s
    scatter = np.where(first, (near[:, 1] - near[:, 0]) ** 2, 0.0)
    scatter += np.where(fourth, (near[:, 3] - near[:, 2]) ** 2, 0.0)
    scatter /= 2 * np.maximum(first.astype(int) + fourth, 1)
    noise = scatter * width_s**2 * lever * (1 + lever)
    left_w = mean - share * before - (1 - share) * after
    aside = (left_w * width_s) ** 2 * lever
    span_w = np.ptp(np.concatenate([near, power[cut, None]], axis=1), axis=1)
    unknown_j = np.hypot(span_w * width_s * lever, moved_j) / np.sqrt(3)
    return moved_j, np.where(one_step, np.sqrt(noise + aside), unknown_j)


Neighbour = tuple[npt.NDArray[np.bool_], Floats]  # whether it is whole, and its power


def _beyond_share(
    cut: Ints, share: Floats, mean: Floats, ahead: Neighbour, behind: Neighbour
) -> tuple[npt.NDArray[np.bool_], Floats]:
    """Return whether a window has a single step, and its excess power before the edge.

    The excess is in W of the whole window, beyond `share` of the window's mean. The part before the
    window's first edge has the power of the window ahead, the part after its last edge that of the
    window behind; the middle part has one power, from 0 to twice the mean.
    """
    (whole_ahead, before), (whole_behind, after) = ahead, behind
    from_ = np.where(whole_ahead, share[np.searchsorted(cut, cut, side="left")], 0.0)
    to = np.where(whole_behind, share[np.searchsorted(cut, cut, side="right") - 1], 1.0)
    middle_share = mean - before * from_ - after * (1 - to)
    middle = middle_share / np.where(to > from_, to - from_, 1.0)
    likely = (to > from_) & (middle * mean >= 0) & (np.abs(middle) <= np.abs(2 * mean))
    one_step = whole_ahead & whole_behind & ~likely
    middle = np.where(likely, middle, np.where(middle * mean < 0, 0.0, 2 * mean))
    to_edge = np.where(
        whole_behind, before * from_ + middle * (share - from_), mean - middle * (1 - share)
    )
    step = (before - after) * share * (1 - share)
    return one_step, np.where(one_step, step, to_edge - mean * share)


def level_part(power_w: Floats, quantum_w: float) -> tuple[int, int]:
    """Return the range (first, end) of a rest's n windows that are at its level.

    Windows count from the edge on; up to three at the front and one at the back are left out. If
    the first differs from those behind it, the load changed next to its mark, or the meter still
    showed it. The last may include the load after the rest. Fewer than four windows are all
    returned, and (n, n) means that there is no level.
    """
    count = len(power_w)
    if count < 4:
        return 0, count
    middle_w, scatter_w = float(np.mean(power_w[1:])), float(np.std(power_w[1:], ddof=1))
    many = count >= 8  # enough for a scatter that loads at either end do not affect
    if many:
        middle_w = float(np.median(power_w))
        scatter_w = 1.4826 * float(np.median(np.abs(power_w - middle_w)))
    level = np.abs(power_w - middle_w) <= OUTLYING * max(scatter_w, quantum_w)
    near = int(np.argmax(level))
    if near > 3 or not level[near]:
        return count, count
    return near, count - bool(many and not level[-1])


def level_w(power_w: Floats) -> tuple[float, float]:
    """Return a rest's power at its edge, and the variance of one window about it.

    `power_w` is that of the windows from the edge on. The result is their mean, or their straight
    line's value at the edge if they change by more than chance, as while the machine cools.
    """
    count = len(power_w)
    mean_w, scatter_w2 = float(np.mean(power_w)), float(np.var(power_w, ddof=1))
    if count < SLOPED:
        return mean_w, scatter_w2
    place = np.arange(count) - (count - 1) / 2
    squares = float(place @ place)
    slope_w = float(place @ power_w) / squares
    left_w2 = (scatter_w2 * (count - 1) - slope_w**2 * squares) / (count - 2)
    if slope_w**2 * squares <= SLOPE_SIGMAS**2 * max(left_w2, 0.0):
        return mean_w, scatter_w2
    return mean_w - slope_w * count / 2, left_w2 * (1 + count**2 / 4 / squares * count)


def lasting(power_w: Floats, width_s: float, part_s: float, rest_w: float) -> float:
    """Return the uncertainty in J of a phase's share of a window cut where a rest begins.

    The cut is `part_s` into the window; `power_w` is that of the window before and of this one. The
    excess over the rest's power may be load that lasts beyond the mark: a rectangle from none to
    all of it, but no longer than `LASTING_S`, as a longer load shows in the rest's windows.
    """
    swing_w = float(power_w[0]) - rest_w
    more_j = (float(power_w[-1]) - rest_w) * width_s - swing_w * part_s
    most_j = abs(swing_w) * min(width_s - part_s, LASTING_S)
    return min(max(more_j * math.copysign(1.0, swing_w), 0.0), most_j) / math.sqrt(6)


def plateau(
    held: Windows, power: Floats, after: Ints, begin_ns: Ints, end_ns: Ints
) -> tuple[Floats, Floats]:
    """Return the mean power in each gap behind window `after` by its neighbours, and its error.

    Neighbours are in the gap's stretch from `begin_ns` to `end_ns`: whole windows if there are any,
    else cut ones; NaN if the stretch has none. The error is that of one more value (s √(1 + 1/n)),
    and at least that of a rectangle over the neighbours' range.
    """
    begin, end = begin_ns[:, None], end_ns[:, None]
    index = after[:, None] + np.arange(1 - FILL, FILL + 1)
    exists = (index >= 0) & (index < len(power))
    index = index.clip(0, len(power) - 1)
    inside = exists & (held.start_ns[index] >= begin) & (held.end_ns[index] <= end)
    cut = exists & (held.start_ns[index] < end) & (held.end_ns[index] > begin)
    use = np.where(inside.any(axis=1, keepdims=True), inside, cut)
    near_w = np.where(use, power[index], 0.0)
    count = use.sum(axis=1)
    safe = np.maximum(count, 1)
    mean = near_w.sum(axis=1) / safe
    squares = np.where(use, (power[index] - mean[:, None]) ** 2, 0.0).sum(axis=1)
    deviation = np.sqrt(squares / np.maximum(safe - 1, 1) * (1 + 1 / safe))
    # With fewer than three, take the range of all near windows, whatever their stretch.
    wide = np.where(count[:, None] < 3, exists, use)
    highest = np.where(wide, power[index], -np.inf).max(axis=1)
    lowest = np.where(wide, power[index], np.inf).min(axis=1)
    spread_w = np.maximum(deviation, (highest - lowest) / np.sqrt(12))
    return np.where(count > 0, mean, np.nan), np.where(count > 0, spread_w, 0.0)


def counter_steps(held: Windows, name: str, after: Ints, alone: npt.NDArray[np.bool_]) -> Floats:
    """Return the energy of gaps by the meter's counter, NaN if it has no value there."""
    counter, power = held.energy_j[name], held.power_w[name]
    filled_j = np.full(len(after), np.nan)
    ok = alone & (after >= 0) & (after < len(counter) - 1)
    i = after[ok]
    j = i + 1
    step = counter[j] - counter[i]
    gap_j = step - power[j] * (held.end_ns[j] - held.start_ns[j]) * 1e-9
    sound = (held.epoch[i] == held.epoch[j]) & (gap_j >= 0)
    filled_j[ok] = np.where(sound, gap_j, np.nan)
    return filled_j


def power_bounds(power: Floats, after: Ints) -> tuple[Floats, Floats]:
    """Return the least and the greatest power in each gap behind window `after`.

    They are those of up to `FILL` windows on each side, extended by the larger of the two sides'
    own ranges, because a few readings do not show the extremes of their scatter.
    """
    reach = np.arange(FILL)
    index = np.stack([after[:, None] - reach, after[:, None] + 1 + reach])
    exists = (index >= 0) & (index < len(power))
    near_w = power[index.clip(0, len(power) - 1)]
    lowest = np.where(exists, near_w, np.inf).min(axis=2)
    highest = np.where(exists, near_w, -np.inf).max(axis=2)
    range_w = np.maximum(highest - lowest, 0.0).max(axis=0)
    return lowest.min(axis=0) - range_w, highest.max(axis=0) + range_w


@dataclass(frozen=True)
class Edge:
    """An instant, and the side of it on which the machine rests, for `rest_ns`.

    `bound_ns` bounds the error of the instant relative to the windows, meter's timing excluded.
    """

    t_ns: int
    rest: Literal["before", "after"] | None = None
    rest_ns: int = 0
    bound_ns: int = 0


@dataclass(frozen=True, eq=False)
class Curve:
    """One channel at n edges and in the n − 1 stretches between them.

    At the edges: `split_j` is the standard uncertainty in J from cutting a window (edges with equal
    `window` numbers share the error), `declared_split_j` the same for a meter as declared,
    `slope_w` the power by which a displaced edge changes the energy, `rest_w` that of a rest next
    to it, NaN without one. Between them: `energy_j` with filled gaps, `covered_s`, `filled_j`
    (standard uncertainty of the filled part), the `count` of whole windows with the sums `sum_w`
    and `squares_w2` of their power less a common constant, and `steps_w2` of its squared steps;
    `by_plateau` and `by_counter` mark filled gaps, `gap_open` those for which the meter's counter
    and the power on both sides contradict each other, `void` stretches without any value.
    `rest_squares_w2` and `rest_freedom` are the sum of squares of rests about their means, and its
    degrees of freedom. `counter_contradicted`: the meter's counter does not match its power.
    `gaps_checked`: it matches, and gaps hold what it counted.
    `window_s` is the time over which a reading is the mean, as far as known; `slow` if it is longer
    than declared.
    """

    t_ns: Ints
    split_j: Floats
    declared_split_j: Floats
    window: Ints
    slope_w: Floats
    rest_w: Floats
    energy_j: Floats
    covered_s: Floats
    filled_j: Floats
    count: Ints
    sum_w: Floats
    squares_w2: Floats
    steps_w2: Floats
    by_plateau: npt.NDArray[np.bool_]
    by_counter: npt.NDArray[np.bool_]
    gap_open: npt.NDArray[np.bool_]
    void: npt.NDArray[np.bool_]
    rest_squares_w2: float = 0.0
    rest_freedom: int = 0
    counter_contradicted: bool = False
    gaps_checked: bool = False
    window_s: float = 0.0
    slow: bool = False


class Edges:
    """The edges as arrays."""

    def __init__(self, edges: Sequence[Edge], bound_ns: float) -> None:
        self.t_ns = np.array([edge.t_ns for edge in edges], np.int64)
        self.rest = np.array([_SIDES[edge.rest] for edge in edges], np.int64)
        self.rest_ns = np.array([edge.rest_ns for edge in edges], np.int64)
        self.bound_ns = np.array([edge.bound_ns + bound_ns for edge in edges])

    def __len__(self) -> int:
        return len(self.t_ns)


_SIDES = {None: 0, "before": -1, "after": 1}
