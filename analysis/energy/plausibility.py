"""Detect implausible readings: stuck, odd, constant, stepped, or in conflict with their counter.

A change of the meter's range shows in repeated phases and rests. A machine that takes some watts
more has the larger factor at rest, one that works harder only under load; the same factor in both
is the meter's, or that of the machine's supply.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from analysis.energy.curve import Piece
from analysis.energy.uncertainty import last_digit
from analysis.energy.windows import Spans, Windows
from analysis.suite.clocks import Floats, Ints
from instrumentation.sources.counter import LONE, LONE_FLAG, LONE_FLOOR_W, LONE_SHARE

STUCK_FLAG = "stuck"
ZERO_FLAG, NEGATIVE_FLAG = "zero-power", "negative-power"
# False alarms per record, if repetitions at one level of power are independent.
ALARMS = 1e-6
LEAST = 4  # equal records from which on they may be stuck
SOME = 16  # records of which one is counted, if all differ
ENOUGH = 50  # records of a level that give its rate of repetition; else all levels give it
# The same for records that are equal before and after work began, if others rarely repeat.
FEW, RARELY = 8, 0.2
LEVELS_PER_OCTAVE, LEVELS = 16, 1024  # of power: repetitions are counted level by level
RISES = 16  # of a value that never fell, as a power does by chance once in 2¹⁶
CONSTANT_NS = 2_000_000_000  # shorter stretches span no run
_DIGITS = 50_000  # records from which the last digit is derived
_LONGEST = 1024  # largest length of runs that is counted separately
_LENGTHS = np.arange(_LONGEST)
_USUAL = 0.999  # share of the runs of a level that are no longer than usual
_LONGER = 2.0  # than usual, at least


@dataclass
class Stuck:
    """Runs of equal records, gathered while the windows pass.

    Records are equal if all channels are; the first channel has the level of power. The probability
    p that a record repeats the one before is taken from records of about the same power: a resting
    machine repeats a coarse reading for minutes, a working one hardly ever a fine reading. The
    share of runs of n is (1 − p) pⁿ⁻¹ of the records. As few records leave p uncertain, it is
    (repetitions + 1) / (records + 2), without the run in question. `begun_ns` are times at which
    work began: a machine whose power was never the same twice at rest does not repeat it then.
    """

    begun_ns: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    _counts: Ints = field(default_factory=lambda: np.zeros((LEVELS, _LONGEST), np.int64))
    _long: list[Ints] = field(default_factory=list)  # level, length, start_ns, end_ns

    def take(self, windows: Windows) -> None:
        """Count the runs of equal records in these windows."""
        powers = list(windows.power_w.values())
        same = np.diff(windows.epoch) == 0
        for power in powers:
            if not same.any():
                break
            same &= power[1:] == power[:-1]
        if not same.any():  # usual for a fast meter, of which some records give the level
            each = SOME if len(powers[0]) > SOME**2 else 1
            some = _level(np.abs(powers[0][::each]))
            self._counts[:, 1] += each * np.bincount(some, minlength=LEVELS)
            return
        first = np.flatnonzero(np.concatenate([[True], ~same]))
        length = np.diff(np.concatenate([first, [len(powers[0])]]))
        level = _level(np.abs(powers[0][first]))
        kind = level * _LONGEST + _clipped(length)
        self._counts += np.bincount(kind, minlength=LEVELS * _LONGEST).reshape(LEVELS, _LONGEST)
        long = np.flatnonzero(length >= LEAST)
        last = first[long] + length[long] - 1
        runs = level[long], length[long], windows.start_ns[first[long]], windows.end_ns[last]
        self._long.append(np.column_stack(runs))

    def stretches(self) -> Spans:
        """Return the stretches of stuck records, on the controller's clock."""
        if not self._long:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        runs = np.concatenate(self._long)
        first, after = (np.searchsorted(self.begun_ns, runs[:, n]) for n in (2, 3))
        at_work = first < after
        others = self._counts.copy()
        np.subtract.at(others, (runs[at_work, 0], _clipped(runs[at_work, 1])), 1)
        keys = np.column_stack([runs[:, :2], at_work])
        kinds, numbers = np.unique(keys, axis=0, return_inverse=True)
        stuck = [
            _is_unusual(length, _near(others, level), FEW, RARELY)
            if begins
            else self._is_stuck(level, length)
            for level, length, begins in kinds.tolist()
        ]
        chosen = runs[np.array(stuck, bool)[numbers.ravel()]]
        return chosen[:, 2], chosen[:, 3]

    def _is_stuck(self, level: int, length: int) -> bool:
        counts, capped = _near(self._counts, level), _clipped(length)
        if int(counts @ _LENGTHS) - capped < ENOUGH:
            counts = self._counts.sum(axis=0)
        counts[capped] -= 1
        return _is_unusual(length, counts, ENOUGH)


@dataclass
class Odd:
    """Windows of one channel with impossible power, gathered while all pass.

    These are 0 W (many plugs show it below some watts, while every running machine takes power),
    less than 0 W, and lone peaks.
    """

    channel: str
    _windows: list[Ints] = field(default_factory=list)  # start_ns, end_ns
    _excess_j: list[Floats] = field(default_factory=list)  # of lone peaks, else 0
    _power_w: list[Floats] = field(default_factory=list)
    _before_w: Floats = field(default_factory=lambda: np.empty(0))
    _before_ns: Ints = field(default_factory=lambda: np.empty((0, 2), np.int64))

    def take(self, windows: Windows) -> None:
        """Judge these windows except the last one, which needs the one that follows it."""
        power_w = np.concatenate([self._before_w, windows.power_w[self.channel]])
        new_ns = np.column_stack((windows.start_ns, windows.end_ns))
        span_ns = np.concatenate([self._before_ns, new_ns])
        self._add(power_w, span_ns, 1 if len(self._before_w) else 0)
        self._before_w, self._before_ns = power_w[-2:], span_ns[-2:]

    def finish(self) -> None:
        """Judge the last window of the recording."""
        self._add(np.append(self._before_w, math.inf), self._before_ns, len(self._before_w) - 1)

    def _add(self, power_w: Floats, span_ns: Ints, first: int) -> None:
        """Add the odd windows from number `first` on, except the last of `power_w`."""
        beside_w = np.full(len(power_w), math.inf)
        beside_w[1:-1] = np.maximum(np.maximum(power_w[:-2], power_w[2:]), LONE_FLOOR_W)
        lone = power_w > LONE * beside_w
        odd = np.flatnonzero((power_w[:-1] <= 0) | lone[:-1])
        odd = odd[odd >= first]
        if len(odd):
            width_s = (span_ns[odd, 1] - span_ns[odd, 0]) * 1e-9
            above_w = np.where(lone[odd], power_w[odd] - np.where(lone, beside_w, 0)[odd], 0.0)
            self._windows.append(span_ns[odd])
            self._excess_j.append(above_w * width_s)
            self._power_w.append(power_w[odd])

    def flags(self, energy_j: float, stretches: Sequence[tuple[int, int]]) -> set[str]:
        """Return the flags of stretches with this energy in total."""
        if not self._windows:
            return set()
        start_ns, end_ns = np.concatenate(self._windows).T
        power_w, excess_j = np.concatenate(self._power_w), np.concatenate(self._excess_j)
        inside = np.zeros(len(power_w), np.bool_)
        for start, end in stretches:
            inside |= (end_ns > start) & (start_ns < end)
        states = {ZERO_FLAG: inside & (power_w == 0), NEGATIVE_FLAG: inside & (power_w < 0)}
        flags = {flag for flag, odd in states.items() if odd.any()}
        if float(excess_j[inside].sum()) > LONE_SHARE * abs(energy_j):
            flags.add(LONE_FLAG)
        return flags


@dataclass
class Constant:
    """Stretches in which one channel had one value within its last digit.

    The digit is at most `stated_w`, the meter's stated step: a coarse meter may show two values
    only, which differ by many digits. Opening the meter again does not interrupt such a stretch.
    """

    channel: str
    stated_w: float = math.inf
    records: int = 0
    _rises: int = 0
    _falls: int = 0
    _digit_w: float | None = None
    _least_w: float = math.inf
    _most_w: float = -math.inf
    _last: tuple[float, float, int, int] | None = None  # least and most power, start and end
    _ended: list[tuple[int, int]] = field(default_factory=list)

    def take(self, windows: Windows) -> None:
        """Follow the channel's value through these windows."""
        power = windows.power_w[self.channel]
        if self._digit_w is None:
            # Sums of decimal fractions differ in some last bits.
            digit_w = min(last_digit(power[:_DIGITS]), self.stated_w)
            self._digit_w = digit_w * (1 + 1e-6) + 1e-9
        self._least_w = min(self._least_w, float(power.min()))
        self._most_w = max(self._most_w, float(power.max()))
        self.records += len(power)
        change_w = np.diff(power)
        self._rises += int(np.count_nonzero(change_w > 0))
        self._falls += int(np.count_nonzero(change_w < 0))
        for level in self._levels(windows, power, self._digit_w):
            self._add(*level, self._digit_w)

    @property
    def is_counter(self) -> bool:
        """Whether the channel's value only rose, at least `RISES` times: it is no power."""
        return self._rises >= RISES and not self._falls

    @property
    def only_w(self) -> float | None:
        """The value of all records if it is the same within the last digit, else None."""
        if self.records < LEAST or self._most_w - self._least_w > (self._digit_w or 0.0):
            return None
        return (self._least_w + self._most_w) / 2

    def stretches(self) -> tuple[tuple[int, int], ...]:
        """Return the stretches of at least `CONSTANT_NS`, in the controller's ns."""
        last = [self._last[2:]] if self._last is not None else []
        spans = [*self._ended, *last]
        return tuple((start, end) for start, end in spans if end - start >= CONSTANT_NS)

    @staticmethod
    def _levels(
        windows: Windows, power: Floats, digit_w: float
    ) -> Iterator[tuple[float, float, int, int]]:
        """Yield constant stretches of the windows: the first, the last, and long ones between.

        The first and the last may continue beyond the windows.
        """
        steady = np.abs(np.diff(power)) <= digit_w
        first = np.flatnonzero(np.concatenate([[True], ~steady]))
        after = np.concatenate([first[1:], [len(power)]])
        lasted = windows.end_ns[after - 1] - windows.start_ns[first] >= CONSTANT_NS
        lasted[[0, -1]] = True
        for start, end in zip(first[lasted], after[lasted], strict=True):
            begin = start
            while begin < end:  # the value may have drifted digit by digit
                low = np.minimum.accumulate(power[begin:end])
                high = np.maximum.accumulate(power[begin:end])
                beyond = np.flatnonzero(high - low > digit_w)
                size = int(beyond[0]) if len(beyond) else end - begin
                span_ns = int(windows.start_ns[begin]), int(windows.end_ns[begin + size - 1])
                yield float(low[size - 1]), float(high[size - 1]), *span_ns
                begin += size

    def _add(self, low_w: float, high_w: float, start_ns: int, end_ns: int, digit_w: float) -> None:
        """Join a stretch to the last one if it continues that."""
        if self._last is not None:
            low, high = min(low_w, self._last[0]), max(high_w, self._last[1])
            if start_ns - self._last[3] < CONSTANT_NS and high - low <= digit_w:
                self._last = low, high, min(start_ns, self._last[2]), max(end_ns, self._last[3])
                return
            self._ended.append(self._last[2:])
        self._last = low_w, high_w, start_ns, end_ns


def _near(counts: Ints, level: int) -> Ints:
    """Return the numbers of runs by length at about this level of power."""
    return np.asarray(counts[max(level - 1, 0) : level + 2].sum(axis=0), np.int64)


def _is_unusual(length: int, counts: Ints, enough: int, most: float = 1.0) -> bool:
    """Return whether a run of this length is no chance where others are as in `counts`.

    They must be of `enough` records, of which a share of at most `most` repeats the one before.
    """
    records, runs = int(counts @ _LENGTHS), int(counts.sum())
    repeats = (records - runs + 1) / (records + 2)
    if records < enough or repeats > most:
        return False
    if math.log1p(-repeats) + (length - 1) * math.log(repeats) > math.log(ALARMS):
        return False
    usual = int(np.searchsorted(np.cumsum(counts), _USUAL * runs))
    return usual < _LONGEST - 1 and length > _LONGER * usual


def _clipped(length: Ints | int) -> Any:
    """Clip run lengths to the largest one that is counted separately."""
    return np.minimum(length, _LONGEST - 1)


def _level(power_w: Floats) -> Ints:
    """Return the numbers of power levels, of which there are sixteen per doubling from 1 µW."""
    octaves = np.log2(np.maximum(power_w, 1e-6) / 1e-6)
    return np.asarray(np.minimum(octaves * LEVELS_PER_OCTAVE, LEVELS - 1), np.int64)


STEP_FLAG = "readings-stepped"
LEAST_POWERS = 12  # powers from which on a step is searched for
LEAST_STEP = 0.03  # of the power
CLEAR2 = 25.0  # variances by which a factor must fit better than a trend, or a change in watts
MOST_APART = 0.25  # of the step, by which low and high powers' steps may differ from it
ABRUPT, BESIDE = 0.8, 3  # share of the step between this many powers before and after it


class Power(NamedTuple):
    """A mean power in W at `t_ns`; repetitions have the same `kind`."""

    t_ns: int
    kind: Hashable
    power_w: float


def is_stepped(powers: Sequence[Power]) -> bool:
    """Return whether powers of all kinds change by one factor at one time."""
    ordered = sorted(
        (p for p in powers if p.power_w > 0 and math.isfinite(p.power_w)), key=lambda p: p.t_ns
    )
    numbers: dict[Hashable, int] = {}
    kinds = np.array([numbers.setdefault(p.kind, len(numbers)) for p in ordered], np.int64)
    logs = np.log([p.power_w for p in ordered])
    count = len(ordered)
    pieces = (  # all, halves and quarters, as a range may change back
        slice(start, start + size)
        for size in (count, count // 2, count // 4)
        if size >= LEAST_POWERS
        for start in range(0, count - size + 1, size // 2)
    )
    return any(_steps(logs[piece], kinds[piece]) for piece in pieces)


def _steps(logs: Floats, kinds: Ints) -> bool:
    """Return whether logarithms of powers, in order of time, have such a step."""
    _, kinds, counts = np.unique(kinds, return_inverse=True, return_counts=True)
    free = len(logs) - len(counts) - 3
    if free < 3:
        return False
    # For a step after each power: sums of squares of its regressor, and of products with the logs.
    size, earlier = counts[kinds], np.empty(len(logs))
    order = np.argsort(kinds, kind="stable")
    earlier[order] = np.arange(len(logs)) - np.repeat(np.cumsum(counts) - counts, counts)
    squares = np.maximum(np.cumsum((size - 2 * earlier - 1) / size)[:-1], 0.5)
    products = -np.cumsum(_centred(logs, kinds))[:-1]
    at = int(np.argmax(products**2 / squares))
    after = (np.arange(len(logs)) > at).astype(np.float64)
    # The step may be within either of the two powers next to it.
    clear = np.delete(np.arange(len(logs)), [at, at + 1])
    logs, kinds, after = logs[clear], kinds[clear], after[clear]
    step, residual = _fit(logs, after, kinds)
    scatter2 = residual / free + 1e-12
    if abs(step) < LEAST_STEP:
        return False
    levels = logs - step * after
    levels -= _centred(levels, kinds)
    trend, watts = np.arange(len(logs), dtype=np.float64), after * np.exp(-levels)
    others = [_fit(logs, other, kinds)[1] for other in (trend, watts)]
    if min(others) - residual < CLEAR2 * scatter2:
        return False
    before, behind = (logs - levels)[:at][-BESIDE:], (logs - levels)[at:][:BESIDE]
    if not len(before) or not len(behind) or (behind.mean() - before.mean()) / step < ABRUPT:
        return False
    lowest, highest = np.quantile([levels.min(), levels.max()], [0.25, 0.75])
    sides = levels < lowest, levels > highest
    ends = [_fit(logs[side], after[side], kinds[side])[0] for side in sides]
    return all(abs(end / step - 1) < MOST_APART for end in ends)


def _centred(values: Floats, kinds: Ints) -> Floats:
    """Subtract from values the mean of their kind."""
    means = np.bincount(kinds, values) / np.maximum(np.bincount(kinds), 1)
    return np.asarray(values - means[kinds])


def _fit(logs: Floats, regressor: Floats, kinds: Ints) -> tuple[float, float]:
    """Return the slope of `logs` on a regressor within kinds, and the residual sum of squares."""
    y, x = _centred(logs, kinds), _centred(regressor, kinds)
    slope = float(x @ y) / max(float(x @ x), 1e-12)
    return slope, float(np.sum((y - slope * x) ** 2))


# Share of the energy by which counter and power may differ; makers seldom state a counter's error.
TOLERANCE = 0.05
_SIGMAS = 3.0
_TELLING = 0.5  # a tolerance above this share of the energy would accept a counter of two loads


@dataclass
class CounterCheck:
    """Sums in J over all stretches without a gap, from the first known count to the last one.

    The tolerance is `TOLERANCE`, the counter's last digit at both ends of each stretch, and three
    times the scatter of the windows: a plug's power may be a spot reading, while its counter is
    complete. Steps are clipped to twice the counter's largest change, so that a single reading far
    above the others does not widen the tolerance.
    """

    counted_j: float = 0.0
    measured_j: float = 0.0
    _stretches: int = 0
    _scatter_j2: float = 0.0
    _largest_j: float = 0.0  # of a window
    _most_moved_j: float = 0.0  # by the counter from one known count to the next
    _last_j: float = math.nan  # the count that was known last
    _since_j: float = 0.0  # energy of the windows since then
    _in_stretch: bool = False  # whether something since the last gap was compared

    def take(self, piece: Piece, power_w: Floats, counter_j: Floats) -> None:
        """Add the piece's windows to the sums."""
        held, inside = piece.held, slice(piece.begin, piece.end)
        before = max(piece.begin - 1, 0)
        apart = np.ones(piece.end - piece.begin, np.bool_)
        apart[0 if piece.begin else 1 :] = (
            held.start_ns[before + 1 : piece.end] > held.end_ns[before : piece.end - 1]
        ) | (held.epoch[before + 1 : piece.end] != held.epoch[before : piece.end - 1])
        energy_j = power_w[inside] * piece.width_s[inside]
        total_j, stretch = np.cumsum(energy_j), np.cumsum(apart)
        read = np.flatnonzero(np.isfinite(counter_j[inside]))
        count_j = np.concatenate([[self._last_j], counter_j[inside][read]])
        reached_j = np.concatenate([[-self._since_j], total_j[read]])
        number = np.concatenate([[0], stretch[read]])
        same = (np.diff(number) == 0) & np.isfinite(count_j[:-1])
        moved_j = np.diff(count_j)[same]
        self.counted_j += float(moved_j.sum())
        self._most_moved_j = max(self._most_moved_j, float(np.max(moved_j, initial=0.0)))
        self.measured_j += float(np.diff(reached_j)[same].sum())
        compared = np.unique(number[1:][same])
        self._stretches += len(compared) - (0 in compared and self._in_stretch)
        self._in_stretch = stretch[-1] in compared or (stretch[-1] == 0 and self._in_stretch)
        steps_j = np.diff(energy_j)[~apart[1:]]
        if self._most_moved_j:
            steps_j = steps_j.clip(-2 * self._most_moved_j, 2 * self._most_moved_j)
        self._scatter_j2 += float(steps_j @ steps_j) / 2
        self._largest_j = max(self._largest_j, float(np.max(np.abs(energy_j))))
        if len(read) and number[-1] == stretch[-1]:
            self._last_j, self._since_j = float(count_j[-1]), float(total_j[-1] - reached_j[-1])
        elif stretch[-1]:
            self._last_j, self._since_j = math.nan, 0.0
        else:
            self._since_j += float(total_j[-1])

    def _tolerance_j(self, quantum_j: float) -> float:
        noise_j = _SIGMAS * math.sqrt(self._scatter_j2)
        return TOLERANCE * abs(self.measured_j) + self._stretches * quantum_j + noise_j

    def agrees(self, quantum_j: float) -> bool:
        """Return whether the counter matches this power; `quantum_j` is its last digit."""
        tolerance_j = self._tolerance_j(quantum_j)
        telling = tolerance_j < _TELLING * abs(self.measured_j)
        return telling and abs(self.counted_j - self.measured_j) <= tolerance_j

    def contradicts(self, quantum_j: float) -> bool:
        """Return whether the counter differs even if it is a window late in each stretch."""
        late_j = self._stretches * min(self._largest_j, self._most_moved_j)
        return abs(self.counted_j - self.measured_j) > self._tolerance_j(quantum_j) + late_j
