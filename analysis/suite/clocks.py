"""Place all times on the controller's clock: the target's by round trips, a meter's by arrivals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from instrumentation.clock import ClockReading, OffsetModel

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

QUARTZ_SKEW = 500e-6  # no quartz is worse
MAX_SKEW = 0.02  # nor any oscillator: a ceramic resonator is off by 0.5 %, an RC circuit by 2 %
CLEAR = 3  # spreads of the delay that a drift must exceed to be seen in `FEW` points
FEW = 20
BUNCHED = 0.4  # share of records that a controller may read late for being busy
MAX_WANDER = 10e-6  # how far a rate may wander from its mean while a suite runs
KNOT_POINTS, KNOT_NS = 64, 300_000_000_000  # such a stretch has a record without delay


@dataclass(frozen=True)
class BootClock:
    """One boot of the target, as seen from each boot of the controller; at least one model.

    A time is placed by the model whose readings lie around it, or nearest. Where a clock jumped
    there is one model before and one after; when in between it did so is unknown.
    """

    models: tuple[OffsetModel, ...]

    @property
    def skew_ppm(self) -> float:
        """Mean rate by which the target gains, over the longest stretch of readings."""
        return max(self.models, key=lambda model: model.knots[-1][0] - model.knots[0][0]).skew_ppm

    def to_controller_ns(self, t_target_ns: int) -> int:
        """Return the same moment on the controller's clock."""
        return self._nearest(t_target_ns).to_controller_ns(t_target_ns)

    def bound_ns(self, t_target_ns: int) -> int:
        """Return how far `to_controller_ns` can be off; between two models, further."""
        near = self._nearest(t_target_ns)
        earlier = [m for m in self.models if m.knots[-1][0] < t_target_ns]
        later = [m for m in self.models if m.knots[0][0] > t_target_ns]
        apart_ns = 0
        if earlier and later and near in (earlier[-1], later[0]):
            before, after = earlier[-1], later[0]
            apart_ns = abs(
                before.to_controller_ns(t_target_ns) - after.to_controller_ns(t_target_ns)
            )
        return near.bound_ns(t_target_ns) + apart_ns

    def _nearest(self, t_ns: int) -> OffsetModel:
        return min(self.models, key=lambda m: max(m.knots[0][0] - t_ns, t_ns - m.knots[-1][0], 0))


@dataclass(frozen=True)
class TargetClock:
    """A map of target times to controller times, with a clock for each boot of the target."""

    models: Mapping[str, BootClock]

    @classmethod
    def fit(cls, readings: Iterable[ClockReading]) -> TargetClock:
        """Fit the readings of clock.jsonl.

        Readings of several boots of the controller must already be on one axis
        (analysis.suite.controller_boots).
        """
        by_boots: dict[tuple[str, str], list[ClockReading]] = {}
        for reading in readings:
            boots = reading.boot_id, reading.controller_boot_id
            by_boots.setdefault(boots, []).append(reading)
        models: dict[str, tuple[OffsetModel, ...]] = {}
        for (boot_id, _), of_boot in by_boots.items():
            models[boot_id] = models.get(boot_id, ()) + OffsetModel.pieces(of_boot, boot_id)
        return cls({boot_id: BootClock(pieces) for boot_id, pieces in models.items()})

    def to_controller_ns(self, boot_id: str, t_target_ns: int) -> int | None:
        """Return the same moment on the controller's clock; None if that boot has no reading."""
        model = self.models.get(boot_id)
        return None if model is None else model.to_controller_ns(t_target_ns)

    def bound_ns(self, boot_id: str, t_target_ns: int) -> int | None:
        """Return how far `to_controller_ns` can be off; None if that boot has no reading."""
        model = self.models.get(boot_id)
        return None if model is None else model.bound_ns(t_target_ns)


@dataclass(frozen=True, eq=False)
class Line:
    """A map of a sender's time to the controller's clock, both as offsets in ns.

    `at` of x is x + intercept + slope·x plus what `knots` (x, offset) add between them.
    `bound_ns`: how late the line can be, because even its fastest record may have been delayed.
    `contradicted`: many delays are beyond their limit, or the clock runs as no clock does.
    """

    intercept_ns: float
    slope: float
    knots: tuple[Floats, Floats]
    bound_ns: float
    contradicted: bool = False

    def at(self, x: Floats) -> Floats:
        """Return offsets on the controller's clock."""
        drift = np.interp(x, *self.knots) if len(self.knots[0]) else 0.0
        return x + (self.intercept_ns + self.slope * x + drift)


def fit_line(x: Floats, y: Floats, delays: tuple[Floats, Floats], limit_ns: float) -> Line:
    """Return the line under the points (x, y = arrival − x), then what the clock wandered from it.

    `x` must not fall; `delays` are some points (x, y) taken without regard to their height, which
    show how much the delay varies. With a limit L on all delays and a spread S of those seen, the
    smallest lies in [0, L − S]. A busy controller reads some bunches later, which shows nothing of
    that; but where more than two in five are beyond L, either L or the line is not as declared,
    and nothing better than S is known. Raises ValueError without points.
    """
    intercept, slope, uncertainty_ns = _rate(x, y, delays, limit_ns)
    above = y - (intercept + slope * x)
    knots = _knots(x, above)
    line = Line(intercept, slope, knots, 0.0)
    delays_ns = delays[1] - (line.at(delays[0]) - delays[0])
    usual = delays_ns[delays_ns <= limit_ns]
    contradicted = abs(slope) > MAX_SKEW or len(usual) < (1 - BUNCHED) * len(delays_ns)
    spread = (
        float(np.quantile(delays_ns if contradicted else usual, 0.95)) if len(delays_ns) else 0.0
    )
    late_ns = spread if contradicted else max(limit_ns - max(spread, 0.0), 0.05 * limit_ns)
    return Line(intercept, slope, knots, late_ns + uncertainty_ns, contradicted)


def _rate(
    x: Floats, y: Floats, delays: tuple[Floats, Floats], limit_ns: float
) -> tuple[float, float, float]:
    """Return intercept and slope of the lower envelope, and by how many ns its slope may be off.

    Over a short time, varying delays look like a slope. A slope that no quartz has is believed if
    the drift clearly exceeds the delays; else the line is level, and the drift is uncertainty.
    """
    intercept, slope = lower_envelope(x, y)
    if abs(slope) <= QUARTZ_SKEW:
        return intercept, slope, 0.0
    drift_ns = abs(slope) * float(x[-1] - x[0])
    above = delays[1] - (intercept + slope * delays[0])
    spread_ns = float(np.quantile(above, 0.95)) if len(above) >= FEW else limit_ns
    if drift_ns > CLEAR * spread_ns * math.sqrt(FEW / max(len(x), FEW)):
        return intercept, slope, 0.0
    return float(np.min(y)), 0.0, min(abs(slope), MAX_SKEW) / abs(slope) * drift_ns


def _knots(x: Floats, above: Floats) -> tuple[Floats, Floats]:
    """Return the lowest points above the line in stretches of minutes, if a clock can reach them.

    A rate within `MAX_WANDER` makes neighbours bound each other, so that a stretch in which every
    record was late takes its height from its neighbours.
    """
    count = int(min(len(x) // KNOT_POINTS, (x[-1] - x[0]) // KNOT_NS))
    if count < 3:
        return np.empty(0), np.empty(0)
    cut = np.linspace(0, len(x), count + 1).astype(int)
    lowest = np.array([a + int(np.argmin(above[a:b])) for a, b in pairwise(cut)])
    at, height = x[lowest], above[lowest]
    height = np.minimum.accumulate(height - MAX_WANDER * at) + MAX_WANDER * at
    back = np.minimum.accumulate((height + MAX_WANDER * at)[::-1])[::-1]
    return at, back - MAX_WANDER * at


def lower_envelope(x: Floats, y: Floats) -> tuple[float, float]:
    """Return intercept and slope of the line below all points that is closest to them.

    With x the sender's time and y = arrival − x, points are above the true line by their delay,
    and late bunches leave no trace. The line with the least summed distance is the edge of the
    lower convex hull above the mean of x (Moon, Skelly, Towsley, INFOCOM 1999). `x` must not fall.
    """
    if len(x) == 0:
        raise ValueError("no points")
    hull: list[int] = []
    for i in lowest_of_bins(y, 4096):
        while len(hull) >= 2:  # drop points on or above the line to the new point
            a, b = hull[-2:]
            if (x[b] - x[a]) * (y[i] - y[a]) > (y[b] - y[a]) * (x[i] - x[a]):
                break
            hull.pop()
        hull.append(i)
    middle = float(np.mean(x))
    for a, b in pairwise(hull):
        if x[a] <= middle <= x[b] and x[b] > x[a]:
            slope = float((y[b] - y[a]) / (x[b] - x[a]))
            return float(y[a] - slope * x[a]), slope
    return float(np.min(y)), 0.0


def lowest_of_bins(y: Floats, bins: int) -> list[int]:
    """Return indices of the lowest point of each of `bins` stretches: the hull needs no others."""
    if len(y) <= bins:
        return list(range(len(y)))
    edges = np.linspace(0, len(y), bins + 1).astype(int)
    starts = edges[:-1]
    lowest = np.flatnonzero(y == np.repeat(np.minimum.reduceat(y, starts), np.diff(edges)))
    return [int(at) for at in lowest[np.searchsorted(lowest, starts)]]
