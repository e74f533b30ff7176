"""Windows of a meter's readings on the controller's clock, while its records pass by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

import numpy as np
import polars as pl
from scipy.ndimage import minimum_filter1d

from analysis.suite.clocks import (
    BUNCHED,
    FEW,
    MAX_SKEW,
    QUARTZ_SKEW,
    Floats,
    Ints,
    Line,
    fit_line,
    lowest_of_bins,
)
from analysis.suite.incidents import BREAK_NS, BREAK_WINDOWS
from analysis.suite.samples import COLUMNS, Samples

CONTIGUOUS_WINDOWS = 1.5  # ends further apart than this many windows have a gap between them
GROUP = 16  # records of which the lowest has almost no delay
AHEAD = 256  # following records examined for lost ones: the longest bunch that arrives late
_POINTS = 4096  # points of one table that enter the envelope
_UNKNOWN = np.iinfo(np.int64).min
LONGEST_S = 1e6  # largest delay of a meter that fits the clock's nanoseconds
DELAY_FLAG, PERIOD_FLAG = "delay-beyond-limit", "period-not-nominal"
DUPLICATE_FLAG = "duplicate-record"
Spans = tuple[Ints, Ints]  # starts and ends in ns, in order of time


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows in order, without overlap; by channel: mean power, the meter's energy counter."""

    start_ns: Ints
    end_ns: Ints
    epoch: Ints
    power_w: Mapping[str, Floats]
    energy_j: Mapping[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Stretch:
    """Records during one run of the meter's clock, from `arrival_ns` (its `own_ns`) on."""

    arrival_ns: int
    own_ns: int
    line: Line


@dataclass(frozen=True, eq=False)
class Timing:
    """The relation of a meter's records to the controller's clock.

    Ends of windows may be too late by up to `bound_ns`, by the same amount in a stretch, or, with
    `poll`, each by its own. `flags` name contradictions to the meter's description. `extra_ns` are
    the spans with a duplicate record.
    """

    kind: str
    stretches: tuple[Stretch, ...]
    bound_ns: float
    flags: tuple[str, ...] = ()
    extra_ns: Spans = (np.empty(0, np.int64), np.empty(0, np.int64))


class OwnTime:
    """A meter's own time of each record in ns, and the number of its stretch.

    With `device` it is the time in the record, with a new stretch if the port was opened or that
    time decreased; with `index` the record's number times the window; with `poll` there is none.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._stretch = -1
        self._last: tuple[int, int, int] | None = None  # epoch, arrival, own time

    def times(self, table: pl.DataFrame, ahead: pl.DataFrame | None) -> tuple[Ints, Ints]:
        """Return times, or _UNKNOWN, and stretches; `ahead` are the records that follow."""
        epoch = table["epoch"].to_numpy().astype(np.int64)
        if self._kind == "poll":
            return np.full(len(table), _UNKNOWN), np.zeros(len(table), np.int64)
        if self._kind == "index":
            return self._numbered(epoch, table, ahead)
        device_ns = table["t_device_us"].fill_null(0).to_numpy().astype(np.int64) * 1000
        device_ns[table["t_device_us"].is_null().to_numpy()] = _UNKNOWN
        timed = np.flatnonzero(device_ns != _UNKNOWN)
        stretch = np.full(len(table), max(self._stretch, 0))
        if len(timed):
            stretch[timed] = self._stretches(epoch[timed], device_ns[timed])
        return device_ns, stretch

    def _stretches(self, epoch: Ints, device_ns: Ints) -> Ints:
        last = self._last or (epoch[0] - 1, 0, device_ns[0])
        new = np.empty(len(device_ns), bool)
        new[0] = epoch[0] != last[0] or device_ns[0] < last[2]
        np.less(device_ns[1:], device_ns[:-1], out=new[1:])
        new[1:] |= epoch[1:] != epoch[:-1]
        stretch: Ints = self._stretch + np.cumsum(new)
        self._stretch, self._last = int(stretch[-1]), (int(epoch[-1]), 0, int(device_ns[-1]))
        return stretch

    def _numbered(
        self, epoch: Ints, table: pl.DataFrame, ahead: pl.DataFrame | None
    ) -> tuple[Ints, Ints]:
        count = len(table)
        last = self._last or (int(epoch[0]) - 1, int(table["t_mono_ns"][0]), 0)
        next_rows = table.clear() if ahead is None else ahead.head(AHEAD)
        rows = pl.concat([table, next_rows])
        arrival = np.concatenate([[last[1]], rows["t_mono_ns"].to_numpy()])
        epochs = np.concatenate([[last[0]], rows["epoch"].to_numpy()])
        width = np.rint(rows["window_s"].to_numpy() * 1e9).astype(np.int64)
        silence = np.maximum(BREAK_NS, BREAK_WINDOWS * width)
        new = (np.diff(epochs) != 0) | (np.diff(arrival) > silence)
        step = width.copy()
        cuts = [0, *(np.flatnonzero(new) + 1), len(arrival)]
        for first, end in pairwise(cuts):  # positions in `arrival`; its record k is row k - 1
            inside = slice(first, end - 1)
            step[inside] += width[inside] * missed_records(arrival[first:end], width[inside])
        step[new] = 0
        stretch = self._stretch + np.cumsum(new[:count])
        device_ns = last[2] + np.cumsum(step[:count])
        starts = np.flatnonzero(new[:count])
        if len(starts):  # each stretch counts from 0
            device_ns[starts[0] :] -= np.repeat(device_ns[starts], np.diff([*starts, count]))
        self._stretch = int(stretch[-1])
        self._last = (int(epoch[-1]), int(arrival[count]), int(device_ns[-1]))
        return device_ns, stretch


def missed_records(arrival: Ints, width_ns: Ints) -> Ints:
    """Count the records missing before each but the first, from arrivals of one stretch.

    A duplicate record counts −1. With a fast clock records arrive ever earlier for their number,
    which would hide missing ones, so that the clock's rate is removed first.
    """
    if len(arrival) < 2:
        return np.zeros(0, np.int64)
    own_ns = np.concatenate([[0], np.cumsum(width_ns)])
    late_ns = arrival - arrival[0] - own_ns
    rate = _rate(late_ns / np.median(width_ns))
    late_ns -= np.rint(rate * own_ns).astype(np.int64)
    twice = np.zeros(len(width_ns), np.int64)
    twice[_twice(late_ns / np.median(width_ns)) - 1] = 1
    late_ns[1:] += np.cumsum(twice * width_ns)
    return _lost(late_ns, width_ns) - twice


def _rate(late: Floats) -> float:
    """Return the increase of lateness per record in windows, without that of missing records.

    Missing records add whole windows: so the lowest of some records are compared with those that
    follow, whole windows are removed, and the median is the rate; this is refined over distances
    four times as long, and so on. `late` is in windows.
    """
    count = len(late) // GROUP
    if count < 4:
        return 0.0
    grouped = late[: count * GROUP].reshape(count, GROUP)
    place = np.argmin(grouped, axis=1) + GROUP * np.arange(count)
    low = late[place]
    rate, apart = 0.0, 1
    while apart < count:
        records = place[apart:] - place[:-apart]
        change = low[apart:] - low[:-apart] - rate * records
        rate += float(np.median((change - np.rint(change)) / records))
        apart *= 4
    return rate if QUARTZ_SKEW < abs(rate) <= MAX_SKEW else 0.0


def _lost(late_ns: Ints, width_ns: Ints) -> Ints:
    """Count the records missing before each but the first, from lateness for their number.

    A missing record delays all that follow by a window; a late one does not. So the least lateness
    of the records ahead counts; near the end of a stretch, with few ahead, a pause longer than
    usual delays is required as well.
    """
    least = minimum_filter1d(late_ns, AHEAD, origin=-(AHEAD // 2), mode="nearest")
    lost = np.maximum(np.rint(np.diff(least) / width_ns).astype(np.int64), 0)
    spread = np.minimum(np.quantile(late_ns - least, 0.95), 2 * width_ns)
    pause = np.diff(late_ns) >= (CONTIGUOUS_WINDOWS - 1) * width_ns + np.maximum(
        spread - width_ns / 2, 0
    )
    lost[-AHEAD // 8 :] *= pause[-AHEAD // 8 :]
    return lost


def _twice(late: Floats) -> Ints:
    """Return the numbers of duplicate records, from each record's lateness in windows.

    After a duplicate all arrive a window too early for their number, while distances before and
    after it are unchanged, unlike in a bunch that was read late. None is detected if the delay of
    most records varies by a window.
    """
    step = np.diff(late)
    level = np.abs(step) < 0.25
    if np.mean(level) < 1 - BUNCHED:
        return np.empty(0, np.int64)
    fallen = np.abs(step + 1) < 0.25
    return np.flatnonzero(level[:-2] & fallen[1:-1] & level[2:]) + 2


def fit(samples: Samples, kind: str, limit_s: float) -> Timing:
    """Fit a meter's times in one pass; `kind` is its timing, `limit_s` the limit of its delay."""
    limit_ns = min(limit_s, LONGEST_S) * 1e9
    if kind == "poll":
        return Timing(kind, (), limit_ns)
    gathered: list[_Gathered] = []
    periods: list[float] = []
    extra: list[Ints] = []
    own_time = OwnTime(kind)
    for table, ahead in _with_ahead(samples.tables(COLUMNS)):
        arrival = table["t_mono_ns"].to_numpy().astype(np.int64)
        device_ns, stretch = own_time.times(table, ahead)
        for rows in _pieces(stretch, device_ns):
            step_ns = np.diff(device_ns[rows])
            extra.append(arrival[rows[1 + np.flatnonzero(step_ns == 0)]])
            if len(rows) >= FEW:
                some = rows[1:_POINTS]
                width_ns = table["window_s"].to_numpy()[some] * 1e9
                periods.append(float(np.median(step_ns[: len(some)] / width_ns)))
            while len(gathered) <= stretch[rows[0]]:
                gathered.append(_Gathered(int(arrival[rows[0]]), int(device_ns[rows[0]])))
            gathered[-1].add(arrival[rows], device_ns[rows])
    stretches = tuple(g.stretch(limit_ns) for g in gathered)
    wrong = {
        DELAY_FLAG: any(s.line.contradicted for s in stretches),
        PERIOD_FLAG: any(abs(period - 1) > MAX_SKEW for period in periods),
    }
    bound_ns = max((s.line.bound_ns for s in stretches), default=limit_ns)
    flags = tuple(flag for flag, applies in wrong.items() if applies)
    extra_ns = np.concatenate([*extra, np.empty(0, np.int64)])
    return Timing(kind, stretches, bound_ns, flags, (extra_ns - round(limit_ns), extra_ns))


@dataclass
class _Gathered:
    """Points of one stretch: the lowest, and some regardless of their height."""

    arrival_ns: int
    own_ns: int
    low: list[tuple[Floats, Floats]] = field(default_factory=list)
    some: list[tuple[Floats, Floats]] = field(default_factory=list)

    def add(self, arrival: Ints, device_ns: Ints) -> None:
        # Offsets from the first keep the floats exact to well below a microsecond.
        x = (device_ns - self.own_ns).astype(np.float64)
        y = (arrival - self.arrival_ns).astype(np.float64) - x
        low = lowest_of_bins(y, _POINTS)
        self.low.append((x[low], y[low]))
        every = max(1, len(x) // 512)
        self.some.append((x[::every].copy(), y[::every].copy()))  # views would keep all of it

    def stretch(self, limit_ns: float) -> Stretch:
        line = fit_line(*_joined(self.low), _joined(self.some), limit_ns)
        return Stretch(self.arrival_ns, self.own_ns, line)


def _joined(parts: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def _pieces(stretch: Ints, device_ns: Ints) -> Iterator[Ints]:
    """Yield the rows with a device time of each stretch."""
    timed = np.flatnonzero(device_ns != _UNKNOWN)
    if len(timed) == 0:
        return
    cut = np.flatnonzero(np.diff(stretch[timed])) + 1
    yield from np.split(timed, cut)


def _with_ahead(
    tables: Iterator[pl.DataFrame],
) -> Iterator[tuple[pl.DataFrame, pl.DataFrame | None]]:
    for table, ahead in pairwise(chain(tables, [None])):
        if table is not None:
            yield table, ahead


def windows(samples: Samples, timing: Timing, channels: Sequence[str]) -> Iterator[Windows]:
    """Yield the windows of these channels, some hundred thousand at a time.

    A window starts at the end of the one before if their ends are less than 1.5 windows apart, else
    one window before its end: the time between stays a gap.
    """
    columns = [f"{kind}_{name}" for kind in ("power_w", "energy_j") for name in channels]
    columns = [name for name in columns if name in samples.columns]
    own_time = OwnTime(timing.kind)
    last = None
    for table, ahead in _with_ahead(samples.tables([*COLUMNS, *columns])):
        device_ns, stretch = own_time.times(table, ahead)
        end = table["t_mono_ns"].to_numpy().astype(np.int64)
        for rows in _pieces(stretch, device_ns):
            fitted = timing.stretches[stretch[rows[0]]]
            x = (device_ns[rows] - fitted.own_ns).astype(np.float64)
            end[rows] = fitted.arrival_ns + np.rint(fitted.line.at(x)).astype(np.int64)
        values = {name: table[name].to_numpy().astype(np.float64, copy=False) for name in columns}
        # A record that lacks the power of a channel counts as missing.
        powers = [value for name, value in values.items() if name.startswith("power_w_")]
        good = np.all(np.isfinite(powers), axis=0)
        if not good.any():
            continue
        epoch = table["epoch"].to_numpy().astype(np.int64)[good]
        width = np.rint(table["window_s"].to_numpy() * 1e9).astype(np.int64)[good]
        start, end = joined(end[good], width, epoch, last)
        last = (int(end[-1]), int(epoch[-1]))
        power, energy = (
            {c: values[f"{kind}_{c}"][good] for c in channels if f"{kind}_{c}" in values}
            for kind in ("power_w", "energy_j")
        )
        yield Windows(start, end, epoch, power, energy)


def joined(end: Ints, width: Ints, epoch: Ints, last: tuple[int, int] | None) -> tuple[Ints, Ints]:
    """Return windows' starts and ends; `last` is the end and epoch of the preceding window."""
    first_end, first_epoch = last or (int(end[0] - width[0]), int(epoch[0]))
    end = np.maximum(np.maximum.accumulate(end), first_end)
    before = np.concatenate([[first_end], end[:-1]])
    same = np.diff(epoch, prepend=first_epoch) == 0
    touching = same & (end - before < CONTIGUOUS_WINDOWS * width)
    return np.where(touching, before, np.maximum(end - width, before)), end


# Gaps show in the coverage, restarts in the stretches of the meter's clock; a marker is not about
# the power.
NOT_REMARKS = frozenset({"gap", "restart", "marker"})


@dataclass(frozen=True, eq=False)
class Remarks:
    """Spans of the records flagged with each word, on the controller's clock."""

    stretches: Mapping[str, Spans]

    @classmethod
    def from_samples(cls, samples: Samples) -> Remarks:
        """Gather the flags in one pass; neighbouring records with a word are one stretch."""
        if "flags" not in samples.columns:
            return cls({})
        parts: dict[str, list[Spans]] = {}
        for table in samples.tables(["t_mono_ns", "window_s", "flags"]):
            remarked = table.filter(pl.col("flags") != "")
            for flags in remarked["flags"].unique():
                bearing = remarked.filter(flags=flags)
                end = bearing["t_mono_ns"].to_numpy().astype(np.int64)
                width = np.rint(bearing["window_s"].to_numpy() * 1e9).astype(np.int64)
                start = end - width
                new = np.flatnonzero(start[1:] - end[:-1] > width[1:] // 2) + 1
                spans = start[[0, *new]], end[[*(new - 1), -1]]
                for word in set(flags.split()) - NOT_REMARKS:
                    parts.setdefault(word, []).append(spans)
        stretches = {}
        for word, spans_of_word in parts.items():
            starts, ends = (np.concatenate(sides) for sides in zip(*spans_of_word, strict=True))
            order = np.argsort(starts, kind="stable")
            stretches[word] = starts[order], np.maximum.accumulate(ends[order])
        return cls(stretches)

    def during(
        self, start_ns: int, end_ns: int, own_name: str, all_own: Sequence[str]
    ) -> list[str]:
        """Return the words on records between two instants, except those on other channels.

        A word that ends in `-` and the meter's name of a channel (`all_own`) applies only to that.
        """
        words = []
        for word, spans in self.stretches.items():
            base, _, channel = word.rpartition("-")
            if base and channel in all_own and channel != own_name:
                continue
            if meets(spans, start_ns, end_ns):
                words.append(base if base and channel in all_own else word)
        return sorted(words)


def overlap_ns(spans: Spans, start_ns: int, end_ns: int) -> int:
    """Return how long the spans overlap a stretch together."""
    inside_ns = np.minimum(spans[1], end_ns) - np.maximum(spans[0], start_ns)
    return int(inside_ns[inside_ns > 0].sum())


def meets(spans: Spans, start_ns: int, end_ns: int) -> bool:
    """Return whether any of the spans overlaps a stretch."""
    starts, ends = spans
    first = int(np.searchsorted(ends, start_ns, side="right"))
    return first < len(starts) and bool(starts[first] < end_ns)
