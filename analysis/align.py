"""All times onto the controller's clock: the target's by round trips, a meter's by arrivals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from instrumentation.clock import ClockError, ClockReading, OffsetModel

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MAX_SKEW = 500e-6  # no quartz is worse; a steeper slope is jitter over too short a time
CONTIGUOUS_WINDOWS = 1.5  # ends further apart than this many windows have a gap between them


@dataclass(frozen=True)
class TargetClock:
    """Maps the target's times to the controller's, one model for each boot of the target."""

    models: Mapping[str, OffsetModel]

    @classmethod
    def fit(cls, lines: Iterable[Mapping[str, Any]]) -> TargetClock:
        """From the lines of clock.jsonl; a line that is no reading is left out."""
        readings = [reading for line in lines if (reading := _reading(line)) is not None]
        models = {}
        for boot_id in {reading.boot_id for reading in readings}:
            with suppress(ClockError):
                models[boot_id] = OffsetModel.fit(readings, boot_id)
        return cls(models)

    def to_controller_ns(self, boot_id: str, t_target_ns: int) -> int | None:
        """The same moment on the controller's clock, None where that boot has no reading."""
        model = self.models.get(boot_id)
        return None if model is None else model.to_controller_ns(t_target_ns)

    def bound_ns(self, boot_id: str, t_target_ns: int) -> int | None:
        """How far `to_controller_ns` can be off."""
        model = self.models.get(boot_id)
        return None if model is None else model.bound_ns(t_target_ns)


def _reading(line: Mapping[str, Any]) -> ClockReading | None:
    try:
        sent, there, back = (int(line[f"t_{key}_ns"]) for key in ("send", "target", "receive"))
        return ClockReading(sent, there, back, str(line["boot_id"]))
    except (KeyError, TypeError, ValueError):
        return None


@dataclass(frozen=True)
class Windows:
    """Windows of one channel, in order and without overlap, on the controller's clock."""

    start_ns: Ints
    end_ns: Ints
    power_w: Floats


def lower_envelope(x: Floats, y: Floats) -> tuple[float, float]:
    """Intercept and slope of the line under all points that lies closest to them.

    With x the sender's time and y = arrival − x, the points lie above the true line by their delay,
    and late bunches leave no trace. The line with the least summed distance is the edge of the
    lower convex hull above the mean of x (Moon, Skelly, Towsley, INFOCOM 1999). `x` must not fall.
    """
    if len(x) == 0:
        raise ValueError("no points")
    hull: list[int] = []
    for i in _thin(x, y):
        while len(hull) >= 2 and _turns_right(x, y, hull[-2], hull[-1], i):
            hull.pop()
        hull.append(i)
    middle = float(np.mean(x))
    for left, right in pairwise(hull):
        if x[left] <= middle <= x[right] and x[right] > x[left]:
            slope = float((y[right] - y[left]) / (x[right] - x[left]))
            if abs(slope) <= MAX_SKEW:
                return float(y[left] - slope * x[left]), slope
    return float(np.min(y)), 0.0


def _thin(x: Floats, y: Floats, bins: int = 4096) -> list[int]:
    """Indices of the lowest point of each of `bins` equal stretches: the hull needs no others."""
    if len(x) <= bins:
        return list(range(len(x)))
    edges = np.linspace(0, len(x), bins + 1).astype(int)
    return [int(a + np.argmin(y[a:b])) for a, b in pairwise(edges)]


def _turns_right(x: Floats, y: Floats, a: int, b: int, c: int) -> bool:
    """Whether b lies on or above the line from a to c."""
    return bool((x[b] - x[a]) * (y[c] - y[a]) <= (y[b] - y[a]) * (x[c] - x[a]))


def window_ends_ns(samples: pl.DataFrame) -> Ints:
    """Ends of the samples' windows, controller's clock; rows in the order of a meter's stream.

    Where the meter tells its own time, that time is mapped by the lower envelope of the stretch
    since the port was opened or the meter restarted; else the arrival of the record's first byte
    stands for it.
    """
    arrival = samples["t_mono_ns"].to_numpy().astype(np.int64)
    ends = arrival.copy()
    device = samples["t_device_ms"]
    known = np.flatnonzero(device.is_not_null().to_numpy())
    if len(known) == 0:
        return ends
    device_ms = device.fill_null(0).to_numpy()[known]
    epoch = samples["epoch"].to_numpy()[known]
    breaks = np.flatnonzero((np.diff(epoch) != 0) | (np.diff(device_ms) < 0)) + 1
    for first, last in zip([0, *breaks], [*breaks, len(known)], strict=True):
        rows = known[first:last]
        # Offsets from the first keep the floats exact to well below a microsecond.
        x = (device_ms[first:last] - device_ms[first]).astype(np.float64) * 1e6
        y = (arrival[rows] - arrival[rows[0]]).astype(np.float64) - x
        intercept, slope = lower_envelope(x, y)
        ends[rows] = arrival[rows[0]] + np.rint(x * (1 + slope) + intercept).astype(np.int64)
    return ends


def windows(samples: pl.DataFrame, ends_ns: Ints, channel: str) -> Windows:
    """Windows of one channel; neighbours are joined where only rounding stands between them.

    A window starts where the one before ended if both ends are less than 1.5 windows apart, else
    one window before its own end: what lies between is a gap and stays one.
    """
    chosen = np.flatnonzero((samples["channel"] == channel).to_numpy())
    order = chosen[np.argsort(ends_ns[chosen], kind="stable")]
    end = ends_ns[order]
    width = np.rint(samples["window_s"].to_numpy()[order] * 1e9).astype(np.int64)
    epoch = samples["epoch"].to_numpy()[order]
    start = end - width
    if len(end) > 1:
        step = np.diff(end)
        joined = (step < CONTIGUOUS_WINDOWS * width[1:]) & (np.diff(epoch) == 0)
        start[1:] = np.where(joined, end[:-1], np.maximum(start[1:], end[:-1]))
    return Windows(start, end, samples["power_w"].to_numpy()[order].astype(np.float64))
