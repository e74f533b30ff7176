"""Energy up to each of many edges, in one pass over the windows of a meter's channel.

E(t) is the energy and C(t) the time covered up to t. Each edge has one value of both, so the
energies of adjoining stretches add up exactly to their total, whatever is assumed at an edge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
from scipy import special

from analysis.energy.curve import (
    FILL,
    LASTING_S,
    Curve,
    Edge,
    Edges,
    Piece,
    appended,
    counter_steps,
    from_window,
    lasting,
    level_part,
    level_w,
    plateau,
    power_bounds,
    stepped,
)
from analysis.energy.plausibility import TOLERANCE, CounterCheck
from analysis.energy.response import SLOW_WINDOWS, Decay, settling_s
from analysis.energy.uncertainty import Resolution
from analysis.energy.windows import Windows
from analysis.suite.clocks import Floats, Ints

NEAR = 64  # windows examined on each side of an edge
LATE_SIGMAS, CHANCE = 2.0, 0.01  # of the two tests whether load and readings agree at the edges
MANY = 20  # whole windows from which on their steps give the variance
REACHES = 2 ** np.arange(1, 7)  # windows on each side of an edge whose range of power is taken


def integrate(
    windows: Iterable[Windows],
    edges: Sequence[Edge],
    resolutions: Mapping[str, Resolution],
    bound_ns: float = 0.0,
    late_s: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, Curve]:
    """Return the curve of each channel in `resolutions`; `edges` in order of time, at least two.

    `bound_ns` is the greatest delay of the windows (`analysis.energy.windows.Timing`); `late_s` the
    mean delay of the readings of channels that are not as declared.
    """
    at = Edges(edges, bound_ns)
    channels = {name: _Channel(at, resolution) for name, resolution in resolutions.items()}
    held: Windows | None = None
    begin = 0
    for chunk in windows:
        held = chunk if held is None else appended(held, chunk)
        end = max(begin, len(held.end_ns) - NEAR)
        piece = Piece.cut(held, begin, end)
        for name, channel in channels.items():
            channel.take(piece, name)
        keep = max(0, end - NEAR)
        held, begin = from_window(held, keep), end - keep
    for name, channel in channels.items():
        if held is not None:
            channel.take(Piece.cut(held, begin, len(held.end_ns)), name)
        channel.finish(held, name)
    return {name: channel.curve(late_s.get(name)) for name, channel in channels.items()}


class _Channel:
    """Sums of one channel while its windows pass by.

    The total and each edge are sums of two floats, so that a difference of two edges late in a long
    recording loses no digits.
    """

    def __init__(self, edges: Edges, resolution: Resolution) -> None:
        count = len(edges)
        self._edges, self._resolution = edges, resolution
        self._next = 0  # the first edge not yet reached
        self._high = self._low = self._covered_s = 0.0
        self._e_high, self._e_low = np.zeros(count), np.zeros(count)
        self._c_s, self._split_j, self._slope_w = np.zeros((3, count))
        self._swings_w = np.zeros((len(REACHES), count))  # steps of the power around each edge
        self._cut_s, self._rest_w = np.full((2, count), np.nan)  # the window that each edge cuts
        self._decays: list[Decay] = []
        self._responses: list[tuple[float, float, float]] = []  # J, W, standard uncertainty in J
        self._window = -1 - np.arange(count)
        self._filled_j, self._filled_j2, self._sum_w, self._squares_w2 = np.zeros((4, count - 1))
        self._filled_s2, self._counted_j2, self._steps_w2 = np.zeros((3, count - 1))
        self._count = np.zeros(count - 1, np.int64)
        self._plateau, self._counter, self._open, self._void = np.zeros((4, count - 1), bool)
        self._check = CounterCheck()
        self._countable: list[_Filled] = []  # gaps that the meter's own counter may fill
        self._reference_w = self._rest_squares_w2 = 0.0
        self._rest_freedom = 0
        self._passed = 0  # windows dropped from the front so far
        self._last_end: int | None = None

    def take(self, piece: Piece, name: str) -> None:
        """Integrate the piece's windows of this channel."""
        held, begin, end = piece.held, piece.begin, piece.end
        if end <= begin:
            return
        power = held.power_w[name]
        if self._last_end is None:
            self._reference_w = float(power[begin])
            first = int(held.start_ns[0])
            bounds = np.array([min(first, int(self._edges.t_ns[0]))]), np.array([first])
            self._fill(held, name, np.array([-1]), bounds)
        last = int(np.searchsorted(self._edges.t_ns, held.end_ns[end - 1], side="left"))
        chosen = np.arange(self._next, last)
        if len(chosen):
            self._reach(piece, power, chosen)
        self._describe(piece, power)
        if name in held.energy_j:
            self._check.take(piece, power, held.energy_j[name])
        if len(piece.gaps):
            bounds = held.end_ns[piece.gaps], held.start_ns[piece.gaps + 1]
            self._fill(held, name, piece.gaps, bounds)
        self._next = last
        energy_j, covered_s = piece.between(power, begin, end)
        # Knuth's two-sum: the rounding error of the high part is added to the low one.
        high = self._high + energy_j
        part = high - self._high
        self._low += (self._high - (high - part)) + (energy_j - part)
        self._high = high
        self._covered_s += covered_s
        self._passed += end - begin
        self._last_end = int(held.end_ns[end - 1])

    def finish(self, held: Windows | None, name: str) -> None:
        """Set the edges after the last window, and fill gaps."""
        remaining = slice(self._next, None)
        self._e_high[remaining], self._e_low[remaining] = self._high, self._low
        self._c_s[remaining] = self._covered_s
        if held is None or self._last_end is None:
            self._void[:] = True
            return
        end, far = self._last_end, int(self._edges.t_ns[-1])
        if far > end:
            ends = np.array([end]), np.array([far])
            self._fill(held, name, np.array([len(held.end_ns) - 1]), ends)
        # Whether the counter agrees with the power is known after all windows.
        agrees = self._check.agrees(self._resolution.counter_quantum_j)
        for gaps in self._countable:
            if not agrees:
                self._by_plateau(gaps)
                continue
            self._open[gaps.between[~gaps.within]] = True
            better = gaps.within & (self._resolution.counter_u_j < gaps.u_j)
            self._by_plateau(gaps.chosen(~better))
            counted = gaps.chosen(better)
            np.add.at(self._filled_j, counted.between, counted.counted_j)
            np.add.at(self._counted_j2, counted.between, self._resolution.counter_u_j**2)
            self._counter[counted.between] = True

    def curve(self, late_s: float | None) -> Curve:
        """Return the curve; `late_s` is the mean delay of readings that are not as declared."""
        tolerance_s = LASTING_S + float(np.median(self._edges.bound_ns)) * 1e-9
        cut_s = self._cut_s[self._cut_s > 0]
        width_s = float(np.median(cut_s)) if len(cut_s) else 0.0
        settled_s = settling_s(self._decays, width_s, tolerance_s)
        edge_s = max(settled_s, late_s or 0.0)
        reach = int(np.searchsorted(REACHES[:-1], 1 + 2 * edge_s / max(width_s, 1e-9)))
        late_j = self._swings_w[reach] * edge_s / math.sqrt(3)
        response_j = self._swings_w[0] * (self._edges.rest != 0) * _response_s(self._responses)
        measured_j = np.diff(self._e_high) + np.diff(self._e_low)
        # Filled gaps: by their neighbours, and by all steps of the power. The scatter of few
        # windows is scaled to their 95 % interval by Student's t; that of two is their range.
        few = np.maximum(np.minimum(self._count, 2 * FILL) - 1, 2)
        near_j2 = self._filled_j2 * (special.stdtrit(few, 0.975) / 1.959964) ** 2
        # Half the mean square of a step is the variance of a window, given its neighbours.
        variance = self._steps_w2 / np.maximum(self._count - 1, 1) / 2 * (1 + 1 / (2 * FILL))
        usual_j2 = np.maximum(self._filled_j2, variance * self._filled_s2)
        filled_j2 = np.where(self._count < MANY, near_j2, usual_j2) + self._counted_j2
        return Curve(
            t_ns=self._edges.t_ns,
            split_j=np.hypot(self._split_j, np.maximum(response_j, late_j)),
            declared_split_j=np.hypot(self._split_j, response_j),
            window=self._window,
            slope_w=self._slope_w,
            rest_w=self._rest_w,
            energy_j=measured_j + self._filled_j,
            covered_s=np.diff(self._c_s),
            filled_j=np.sqrt(filled_j2),
            count=self._count,
            sum_w=self._sum_w,
            squares_w2=self._squares_w2,
            steps_w2=self._steps_w2,
            by_plateau=self._plateau,
            by_counter=self._counter,
            gap_open=self._open,
            counter_contradicted=self._check.contradicts(self._resolution.counter_quantum_j),
            gaps_checked=bool(self._countable)
            and self._check.agrees(self._resolution.counter_quantum_j),
            void=self._void,
            rest_squares_w2=self._rest_squares_w2,
            rest_freedom=self._rest_freedom,
            window_s=width_s + 2 * edge_s,
            slow=late_s is not None or settled_s > SLOW_WINDOWS * width_s + tolerance_s,
        )

    def _reach(self, piece: Piece, power: Floats, chosen: Ints) -> None:
        """Set E, C and their uncertainty at the edges that these windows reach."""
        held = piece.held
        t = self._edges.t_ns[chosen]
        i = np.searchsorted(held.end_ns, t, side="right")
        part_s = np.maximum(t - held.start_ns[i], 0) * 1e-9
        steps = [piece.between(power, int(a), int(b)) for a, b in pairwise([piece.begin, *i])]
        energy_j, covered_s = np.cumsum(np.array(steps).T, axis=1)
        energy_j += power[i] * part_s
        covered_s += part_s
        moved_j, split_j = stepped(held, power, self._edges.t_ns, i, part_s)
        self._split_j[chosen] = split_j
        energy_j += moved_j
        self._slope_w[chosen] = power[i]
        self._cut_s[chosen] = piece.width_s[i]
        self._window[chosen] = self._passed + i - piece.begin
        for edge, cut in zip(chosen, i, strict=True):
            for row, reach in enumerate(REACHES):
                self._swings_w[row, edge] = np.ptp(power[max(cut - reach, 0) : cut + reach + 1])
        for k in np.flatnonzero(self._edges.rest[chosen]):
            edge, cut = int(chosen[k]), int(i[k])
            rested = self._rested(piece, power, edge, (cut, float(part_s[k])))
            if rested is None:
                continue
            self._rest_w[edge] = rested.rest_w
            u_j = math.hypot(float(split_j[k]), rested.split_j)
            self._responses.append((rested.more_j - moved_j[k], self._swings_w[0, edge], u_j))
            if rested.level:
                self._slope_w[edge], self._split_j[edge] = rested.rest_w, rested.split_j
                energy_j[k] += rested.more_j - moved_j[k]
                self._window[edge] = -1 - edge
        self._e_high[chosen], self._e_low[chosen] = self._high, self._low + energy_j
        self._c_s[chosen] = self._covered_s + covered_s

    def _rested(
        self, piece: Piece, power: Floats, edge: int, place: tuple[int, float]
    ) -> _Rested | None:
        """Measure the rest next to an edge at `place` (number of the window, s into it).

        Its power is that of whole windows that are in the rest even if displaced by the bound.
        """
        held = piece.held
        t, bound = int(self._edges.t_ns[edge]), float(self._edges.bound_ns[edge])
        reach = int(self._edges.rest_ns[edge]) - bound
        side = int(self._edges.rest[edge])
        near, far = (t - bound, t - reach) if side < 0 else (t + reach, t + bound)
        # Integers, as a float would convert the whole array in each search.
        from_ = int(np.searchsorted(held.start_ns, math.ceil(far), side="left"))
        to = int(np.searchsorted(held.end_ns, math.floor(near), side="right"))
        if side < 0:
            from_ = max(from_, to - NEAR)
        else:
            to = min(to, from_ + NEAR)
        cut, part_s = place
        if side > 0 and cut > 0:
            lasting_ns = t + bound + LASTING_S * 1e9
            clear = int(np.searchsorted(held.start_ns, math.ceil(lasting_ns), side="left"))
            fall = Decay.measure(float(power[cut - 1]), power[clear:to], piece.width_s[clear:to])
            self._decays += [fall] if fall else []
        if to - from_ < 2:
            return None
        first, last = level_part(power[from_:to][::side], self._resolution.quantum_w)
        if last - first < 2:
            return None
        level = slice(to - last, to - first) if side < 0 else slice(from_ + first, from_ + last)
        at = level.stop if side < 0 else level.start  # where the sum to the edge begins
        summed_j, summed_s = piece.between(power, at, cut)
        rest_s = summed_s + part_s
        rest_w, scatter_w2 = level_w(power[level][::side])
        width_s = float(np.mean(piece.width_s[level]))
        split_j = self._resolution.rest_uncertainty_j(
            scatter_w2, last - first, width_s, abs(rest_s)
        )
        more_j = rest_w * rest_s - (summed_j + float(power[cut]) * part_s)
        if side > 0:  # work does not begin before its mark, but may last beyond it
            late_j, late_s = piece.between(power, cut + 1, at)
            lasting_j = abs(late_j - rest_w * late_s) / math.sqrt(3)
            width_s = float(piece.width_s[cut])
            near_w = power[max(cut - 1, 0) : cut + 1]
            split_j = math.hypot(split_j, lasting_j, lasting(near_w, width_s, part_s, rest_w))
        if not first:
            self._rest_squares_w2 += float(np.var(power[level])) * (last - first)
            self._rest_freedom += last - first - 1
        return _Rested(more_j, rest_w, split_j, not first)

    def _describe(self, piece: Piece, power: Floats) -> None:
        """Count, sum, squares and squared steps of the whole windows of each stretch."""
        held, begin, end = piece.held, piece.begin, piece.end
        t = self._edges.t_ns
        first = max(int(np.searchsorted(t, held.start_ns[begin], side="right")) - 1, 0)
        last = min(int(np.searchsorted(t, held.end_ns[end - 1], side="left")), len(t) - 1)
        if last <= first:
            return
        starts = np.searchsorted(held.start_ns, t[first:last], side="left")
        ends = np.searchsorted(held.end_ns, t[first + 1 : last + 1], side="right")
        for k, start, to in zip(range(first, last), starts, ends.clip(begin, end), strict=True):
            from_ = max(int(start), begin)
            if to <= from_:
                continue
            above = power[from_:to] - self._reference_w
            # The first window of a stretch has no step.
            steps = np.diff(power[max(from_ - 1, int(start)) : to])
            self._count[k] += to - from_
            self._sum_w[k] += above.sum()
            self._squares_w2[k] += (above * above).sum()
            self._steps_w2[k] += (steps * steps).sum()

    def _fill(self, held: Windows, name: str, after: Ints, bounds: tuple[Ints, Ints]) -> None:
        """Fill gaps, each behind window `after` (−1: before the first), stretch by stretch."""
        t = self._edges.t_ns
        begin, end = bounds
        first = np.searchsorted(t, begin, side="right") - 1
        pieces = np.searchsorted(t, end, side="left") - first
        gap = np.repeat(np.arange(len(after)), np.maximum(pieces, 0))
        if len(gap) == 0:
            return
        number = np.arange(len(gap)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        between = first[gap] + number
        inner = (between >= 0) & (between < len(t) - 1)
        gap, between = gap[inner], between[inner]
        seconds = (np.minimum(end[gap], t[between + 1]) - np.maximum(begin[gap], t[between])) * 1e-9
        mean_w, u_w = plateau(held, held.power_w[name], after[gap], t[between], t[between + 1])
        fillable = np.isfinite(mean_w)
        self._void[between[~fillable]] = True
        plain = _Filled(between, mean_w * seconds, u_w * seconds, seconds)
        counted = np.zeros(len(gap), bool)
        if name in held.energy_j:
            counted_j = counter_steps(held, name, after[gap], pieces[gap] == 1)
            least_w, most_w = power_bounds(held.power_w[name], after[gap])
            # Two last digits, a count that is a window late, and the usual error of counters.
            error_j = 2 * self._resolution.counter_quantum_j + TOLERANCE * np.abs(plain.plateau_j)
            error_j += np.abs(most_w) * (held.end_ns - held.start_ns)[after[gap]] * 1e-9
            lowest_j, highest_j = least_w * seconds - error_j, most_w * seconds + error_j
            within = (counted_j >= lowest_j) & (counted_j <= highest_j)
            counted = fillable & np.isfinite(counted_j)
            gaps = replace(plain, counted_j=counted_j, within=within)
            self._countable.append(gaps.chosen(counted))
        self._by_plateau(plain.chosen(fillable & ~counted))

    def _by_plateau(self, gaps: _Filled) -> None:
        np.add.at(self._filled_j, gaps.between, gaps.plateau_j)
        np.add.at(self._filled_j2, gaps.between, gaps.u_j**2)
        np.add.at(self._filled_s2, gaps.between, gaps.seconds**2)
        self._plateau[gaps.between] = True


@dataclass(frozen=True, eq=False)
class _Filled:
    """Gaps: their stretches, lengths, energy by windows with its uncertainty, and by the counter.

    `counted_j` is NaN if the counter has no value, `within` whether it is within the bounds that
    the power on both sides sets.
    """

    between: Ints
    plateau_j: Floats
    u_j: Floats
    seconds: Floats
    counted_j: Floats = field(default_factory=lambda: np.empty(0))
    within: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))

    def chosen(self, which: npt.NDArray[np.bool_]) -> _Filled:
        """Return the selected gaps."""
        return _Filled(
            self.between[which],
            self.plateau_j[which],
            self.u_j[which],
            self.seconds[which],
            self.counted_j[which] if len(self.counted_j) else self.counted_j,
            self.within[which] if len(self.within) else self.within,
        )


@dataclass(frozen=True)
class _Rested:
    """The correction to an edge's share by the power of the rest next to it.

    `split_j` is its uncertainty; `level` is whether the rest was level from the edge on.
    """

    more_j: float
    rest_w: float
    split_j: float
    level: bool


def _response_s(responses: Sequence[tuple[float, float, float]]) -> float:
    """Return the time in s between load and readings at an edge.

    `responses` are differences in J between the energy that a rest gives an edge and that by the
    neighbouring windows, with the step of the power in W and the uncertainty in J. If they are more
    than chance, either the load does not step at its mark (their spread), or the meter responds
    late (their mean).
    """
    steps = [response for response in responses if response[1] > 0 and response[2] > 0]
    if not steps:
        return 0.0
    difference_j, swing_w, u_j = np.array(steps).T
    weight = float(((swing_w / u_j) ** 2).sum())
    late_s = abs(float((difference_j * swing_w / u_j**2).sum())) / weight
    chance_s = LATE_SIGMAS / math.sqrt(weight)
    response_s = late_s + chance_s if late_s > chance_s else 0.0
    if float(((difference_j / u_j) ** 2).sum()) > float(special.chdtri(len(steps), CHANCE)):
        spread = float((difference_j**2).sum()) / float((swing_w**2).sum())
        response_s = max(response_s, math.sqrt(spread))
    return response_s
