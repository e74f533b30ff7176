"""Find readings that cannot be: stuck, 0 W or less, or one far above its neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analysis.energy.uncertainty import last_digit
from analysis.energy.windows import Spans, Windows
from analysis.suite.clocks import Floats, Ints
from instrumentation.sources.counter import LONE, LONE_FLAG, LONE_FLOOR_W, LONE_SHARE

STUCK_FLAG = "stuck"
ZERO_FLAG, NEGATIVE_FLAG = "zero-power", "negative-power"
# False alarms per record, where repetitions at one level of power are independent.
ALARMS = 1e-6
LEAST = 4  # records: fewer alike are never taken for stuck
SOME = 16  # of so many records that all differ, one is counted, for all
ENOUGH = 50  # records of a level that tell how often one repeats another; else those of all levels
LEVELS_PER_OCTAVE, LEVELS = 16, 1024  # of power: repetitions are counted level by level
CONSTANT_NS = 2_000_000_000  # what is shorter spans no run
_DIGITS = 50_000  # records that tell the last digit
_LONGEST = 1024  # lengths of runs that are told apart
_LENGTHS = np.arange(_LONGEST)
_USUAL = 0.999  # share of the runs of a level that are no longer than usual
_LONGER = 2.0  # than usual, at least


@dataclass
class Stuck:
    """Runs of equal records, gathered while the windows pass.

    Records are equal in all channels, the first of which has the level of power.

    How likely a record repeats the one before is taken from the recording itself, among records of
    about the same power: a resting machine repeats a coarse reading for minutes, a working one
    hardly a fine reading once. A run of n is one in (1 − p) pⁿ⁻¹ records. Few leave p uncertain,
    so it is taken as (repetitions + 1) / (records + 2), without the run in question.
    """

    _counts: Ints = field(default_factory=lambda: np.zeros((LEVELS, _LONGEST), np.int64))
    _long: list[Ints] = field(default_factory=list)  # level, length, start_ns, end_ns

    def watched(self, passing: Iterable[Windows]) -> Iterator[Windows]:
        """Yield the same windows."""
        for windows in passing:
            self._add(windows)
            yield windows

    def _add(self, windows: Windows) -> None:
        powers = list(windows.power_w.values())
        same = np.diff(windows.epoch) == 0
        for power in powers:
            if not same.any():
                break
            same &= power[1:] == power[:-1]
        if not same.any():  # the usual thing of a fast meter, of which some tell the level
            some = _level(np.abs(powers[0][::SOME]))
            self._counts[:, 1] += SOME * np.bincount(some, minlength=LEVELS)
            return
        first = np.flatnonzero(np.concatenate([[True], ~same]))
        length = np.diff(np.concatenate([first, [len(powers[0])]]))
        level = _level(np.abs(powers[0][first]))
        kind = level * _LONGEST + _distinct(length)
        self._counts += np.bincount(kind, minlength=LEVELS * _LONGEST).reshape(LEVELS, _LONGEST)
        long = np.flatnonzero(length >= LEAST)
        last = first[long] + length[long] - 1
        kept = level[long], length[long], windows.start_ns[first[long]], windows.end_ns[last]
        self._long.append(np.column_stack(kept))

    def stretches(self) -> Spans:
        """Return what was stuck, on the controller's clock."""
        if not self._long:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        runs = np.concatenate(self._long)
        kinds, of_kind = np.unique(runs[:, :2], axis=0, return_inverse=True)
        stuck = np.array([self._is(int(level), int(length)) for level, length in kinds], bool)
        chosen = runs[stuck[of_kind.ravel()]]
        return chosen[:, 2], chosen[:, 3]

    def _is(self, level: int, length: int) -> bool:
        counts, capped = self._counts[max(level - 1, 0) : level + 2].sum(axis=0), _distinct(length)
        if int(counts @ _LENGTHS) - capped < ENOUGH:
            counts = self._counts.sum(axis=0)
        counts[capped] -= 1
        records, runs = int(counts @ _LENGTHS), int(counts.sum())
        if records < ENOUGH:
            return False
        repeats = (records - runs + 1) / (records + 2)
        if math.log1p(-repeats) + (length - 1) * math.log(repeats) > math.log(ALARMS):
            return False
        usual = int(np.searchsorted(np.cumsum(counts), _USUAL * runs))
        return usual < _LONGEST - 1 and length > _LONGER * usual


@dataclass
class Odd:
    """Windows of one channel whose power cannot be, gathered while all pass.

    0 W (many plugs show it below some watts, and no running machine takes nothing), less than 0 W,
    and lone peaks.
    """

    channel: str
    _windows: list[Ints] = field(default_factory=list)  # start_ns, end_ns
    _excess_j: list[Floats] = field(default_factory=list)  # of those that stand alone, else 0
    _power_w: list[Floats] = field(default_factory=list)
    _before_w: Floats = field(default_factory=lambda: np.empty(0))
    _before_ns: Ints = field(default_factory=lambda: np.empty((0, 2), np.int64))

    def watched(self, passing: Iterable[Windows]) -> Iterator[Windows]:
        """Yield the same windows."""
        for windows in passing:
            power_w = np.concatenate([self._before_w, windows.power_w[self.channel]])
            now_ns = np.column_stack((windows.start_ns, windows.end_ns))
            span_ns = np.concatenate([self._before_ns, now_ns])
            # The last ones are judged with those that follow them.
            self._add(power_w, span_ns, 1 if len(self._before_w) else 0)
            self._before_w, self._before_ns = power_w[-2:], span_ns[-2:]
            yield windows
        self._add(np.append(self._before_w, math.inf), self._before_ns, len(self._before_w) - 1)

    def _add(self, power_w: Floats, span_ns: Ints, first: int) -> None:
        """Take windows from number `first` on, but for the last one of `power_w`."""
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
        """Return the flags of stretches that have so much energy together."""
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
    """Stretches in which one channel gave one value but for its last digit.

    A meter that was opened again in between is not taken for a living one by that.
    """

    channel: str
    records: int = 0
    _digit_w: float | None = None
    _least_w: float = math.inf
    _most_w: float = -math.inf
    _last: _Level | None = None
    _ended: list[tuple[int, int]] = field(default_factory=list)

    def watched(self, passing: Iterable[Windows]) -> Iterator[Windows]:
        """Yield the same windows."""
        for windows in passing:
            power = windows.power_w[self.channel]
            if self._digit_w is None:
                # Sums of decimal fractions are off by some last bits.
                self._digit_w = last_digit(power[:_DIGITS]) * (1 + 1e-6) + 1e-9
            self._least_w = min(self._least_w, float(power.min()))
            self._most_w = max(self._most_w, float(power.max()))
            self.records += len(power)
            for level in self._levels(windows, power):
                self._add(level)
            yield windows

    @property
    def only_w(self) -> float | None:
        """The value of all records, where they are some and give one but for the last digit."""
        if self.records < LEAST or self._most_w - self._least_w > (self._digit_w or 0.0):
            return None
        return (self._least_w + self._most_w) / 2

    def stretches(self) -> tuple[tuple[int, int], ...]:
        """Return starts and ends of those of `CONSTANT_NS` and more, in the controller's ns."""
        lasts = self._last is not None and self._last.lasts
        return (*self._ended, *([self._last.span_ns] if self._last and lasts else []))

    def _levels(self, windows: Windows, power: Floats) -> Iterator[_Level]:
        """Return the windows' constant stretches: first, last, and those of `CONSTANT_NS` between.

        The first and the last may go on beyond the windows.
        """
        digit_w = self._digit_w or 0.0
        steady = np.abs(np.diff(power)) <= digit_w
        first = np.flatnonzero(np.concatenate([[True], ~steady]))
        after = np.concatenate([first[1:], [len(power)]])
        lasted = windows.end_ns[after - 1] - windows.start_ns[first] >= CONSTANT_NS
        lasted[[0, -1]] = True
        for start, end in zip(first[lasted], after[lasted], strict=True):
            begin = start
            while begin < end:  # it may have crept away digit by digit
                low = np.minimum.accumulate(power[begin:end])
                high = np.maximum.accumulate(power[begin:end])
                beyond = np.flatnonzero(high - low > digit_w)
                size = int(beyond[0]) if len(beyond) else end - begin
                span_ns = int(windows.start_ns[begin]), int(windows.end_ns[begin + size - 1])
                yield _Level(float(low[size - 1]), float(high[size - 1]), span_ns)
                begin += size

    def _add(self, level: _Level) -> None:
        last = self._last
        if last is not None and level.joins(last, self._digit_w or 0.0):
            level = last.with_(level)
        elif last is not None and last.lasts:
            self._ended.append(last.span_ns)
        self._last = level


@dataclass(frozen=True)
class _Level:
    """A constant stretch: its least and most power in W, its start and end in ns."""

    low_w: float
    high_w: float
    span_ns: tuple[int, int]

    @property
    def lasts(self) -> bool:
        return self.span_ns[1] - self.span_ns[0] >= CONSTANT_NS

    def joins(self, before: _Level, digit_w: float) -> bool:
        """Whether this and the one before it are one: it goes on where that ends."""
        both = self.with_(before)
        near = self.span_ns[0] - before.span_ns[1] < CONSTANT_NS
        return near and both.high_w - both.low_w <= digit_w

    def with_(self, other: _Level) -> _Level:
        starts, ends = zip(self.span_ns, other.span_ns, strict=True)
        low_w, high_w = min(self.low_w, other.low_w), max(self.high_w, other.high_w)
        return _Level(low_w, high_w, (min(starts), max(ends)))


def _distinct(length: Ints | int) -> Any:
    """Return lengths as far as they are distinguished."""
    return np.minimum(length, _LONGEST - 1)


def _level(power_w: Floats) -> Ints:
    """Numbers of the levels: sixteen to each doubling, from 1 µW on."""
    octaves = np.log2(np.maximum(power_w, 1e-6) / 1e-6)
    return np.asarray(np.minimum(octaves * LEVELS_PER_OCTAVE, LEVELS - 1), np.int64)
