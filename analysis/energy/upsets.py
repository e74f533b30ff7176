"""Readings that did not change for longer than this meter's ever do: it was stuck."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analysis.energy.windows import Spans, Windows
from analysis.suite.clocks import Floats, Ints

STUCK_FLAG = "stuck"
# False alarms per record, where repetitions at one level of power are independent.
ALARMS = 1e-6
LEAST = 4  # records: fewer alike are never taken for stuck
SOME = 16  # of so many records that all differ, one is counted, for all
ENOUGH = 50  # records of a level that tell how often one repeats another; else those of all levels
LEVELS_PER_OCTAVE, LEVELS = 16, 1024  # of power: repetitions are counted level by level
_LONGEST = 1024  # lengths of runs that are told apart
_LENGTHS = np.arange(_LONGEST)
_USUAL = 0.999  # share of the runs of a level that are no longer than usual
_LONGER = 2.0  # than usual, at least


@dataclass
class Stuck:
    """Runs of equal records, gathered while the windows pass; records are equal in all channels,
    the first of which tells the level of power.

    How likely a record repeats the one before is taken from the recording itself, among records of
    about the same power: a resting machine repeats a coarse reading for minutes, a working one
    hardly a fine reading once. A run of n is one in (1 − p) pⁿ⁻¹ records. Few records tell p badly,
    so it is taken as (repetitions + 1) / (records + 2), without the run in question.
    """

    _counts: Ints = field(default_factory=lambda: np.zeros((LEVELS, _LONGEST), np.int64))
    _long: list[Ints] = field(default_factory=list)  # level, length, start_ns, end_ns

    def watched(self, passing: Iterable[Windows]) -> Iterator[Windows]:
        """The same windows."""
        for found in passing:
            self._add(found)
            yield found

    def _add(self, found: Windows) -> None:
        powers = list(found.power_w.values())
        same = np.diff(found.epoch) == 0
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
        kind = level * _LONGEST + _told(length)
        self._counts += np.bincount(kind, minlength=LEVELS * _LONGEST).reshape(LEVELS, _LONGEST)
        long = np.flatnonzero(length >= LEAST)
        last = first[long] + length[long] - 1
        kept = level[long], length[long], found.start_ns[first[long]], found.end_ns[last]
        self._long.append(np.column_stack(kept))

    def stretches(self) -> Spans:
        """What was stuck, on the controller's clock."""
        if not self._long:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        found = np.concatenate(self._long)
        kinds, of_kind = np.unique(found[:, :2], axis=0, return_inverse=True)
        stuck = np.array([self._is(int(level), int(length)) for level, length in kinds], bool)
        chosen = found[stuck[of_kind.ravel()]]
        return chosen[:, 2], chosen[:, 3]

    def _is(self, level: int, length: int) -> bool:
        counts, told = self._counts[max(level - 1, 0) : level + 2].sum(axis=0), _told(length)
        if int(counts @ _LENGTHS) - told < ENOUGH:
            counts = self._counts.sum(axis=0)
        counts[told] -= 1
        records, runs = int(counts @ _LENGTHS), int(counts.sum())
        if records < ENOUGH:
            return False
        repeats = (records - runs + 1) / (records + 2)
        if math.log1p(-repeats) + (length - 1) * math.log(repeats) > math.log(ALARMS):
            return False
        usual = int(np.searchsorted(np.cumsum(counts), _USUAL * runs))
        return usual < _LONGEST - 1 and length > _LONGER * usual


def _told(length: Ints | int) -> Any:
    """Lengths as far as they are told apart."""
    return np.minimum(length, _LONGEST - 1)


def _level(power_w: Floats) -> Ints:
    """Numbers of the levels: sixteen to each doubling, from 1 µW on."""
    octaves = np.log2(np.maximum(power_w, 1e-6) / 1e-6)
    return np.asarray(np.minimum(octaves * LEVELS_PER_OCTAVE, LEVELS - 1), np.int64)
