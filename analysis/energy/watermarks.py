"""Find a suite's load watermarks in a meter's readings, as a check of the clock link.

A reading is modelled as base + drift + swing × the mean of the load over its window. The offset and
the window are those at which the load correlates best with the readings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from analysis.energy.windows import fit as fit_times
from analysis.energy.windows import windows
from analysis.suite.clocks import Floats, Ints, TargetClock
from analysis.suite.records import SYSTEM, Meter, Suite
from contract.documents import WatermarkLine
from instrumentation.watermark import LEAST_RECEIVED

AGREES, DISAGREES, CANNOT_TELL = "agrees", "disagrees", "cannot tell"
USEFUL_MS = 250.0  # bounds wider than this in total do not test a clock
MIN_READINGS = 12  # of a watermark, for an estimate of the fit's residuals
MIN_SHARE = 0.6  # of the time of a watermark that readings must cover
MAX_READINGS = 4000  # of a watermark; neighbouring readings of a faster meter are averaged
MIN_QUALITY = 3.0  # main lobe / side lobe, below which another offset fits about as well
MIN_SWING_SIGMAS = 6.0
# Below this at every offset, readings of the whole machine do not follow the load, unless they may
# be later or longer means than this number of chips.
IGNORED_SIGMAS, IGNORED_CHIPS = 4.5, 2.0
WINDOW_SHARE = 0.1  # of the declared window, by which a fitted one may differ
SEARCH_S, SEARCH_CHIPS, GRID_PARTS = 2.0, 4.0, 8


@dataclass(frozen=True, eq=False)
class Readings:
    """Readings of one channel in order of time; window ends are on the controller's clock."""

    end_ns: Ints
    width_s: Floats
    power_w: Floats


@dataclass(frozen=True)
class Watermark:
    """Edges of the load on the controller's clock, by the clock link.

    At `t_ns` the load becomes `high` (1 or 0). There are `pad_s` of rest before and after;
    `edge_bound_s` bounds the error of each edge.
    """

    t_ns: tuple[int, ...]
    high: tuple[int, ...]
    chip_s: float
    pad_s: float
    edge_bound_s: float = 0.0

    @property
    def reach_s(self) -> float:
        """Largest offset, in both directions, that is searched."""
        return max(SEARCH_S, SEARCH_CHIPS * self.chip_s)


@dataclass(frozen=True)
class Fit:
    """The fit of a watermark to one channel; `problem` is the reason if it failed.

    `offset_ms` is the delay of the windows' middles behind the load. `window_s` is the length of
    the window that fits best, `declared_s` the declared one. The bounds attribute all residuals to
    one displacement, so that they include filters and late falls of the power, which are not
    modelled. `quality` is the main lobe over the highest side lobe. `ignores` is whether readings
    of enough of the time show nothing of the load.
    """

    problem: str = ""
    offset_ms: float = 0.0
    bound_ms: float = 0.0
    window_s: float = 0.0
    declared_s: float = 0.0
    window_bound_s: float = 0.0
    quality: float = 0.0
    ignores: bool = False

    @property
    def delay_s(self) -> float | None:
        """Mean delay of the readings, in s, in addition to that of the declared window.

        None if the window is as declared, or unknown.
        """
        longer_s = self.window_s - self.declared_s
        if self.problem or abs(longer_s) <= self.window_bound_s + WINDOW_SHARE * self.declared_s:
            return None
        return max(longer_s / 2, 0.0)


@dataclass(frozen=True)
class WatermarkTrust:
    """The verdict of one watermark, counted from 1, on one meter's times.

    `fit` is that of the channel that shows the load best. `verdict` is `agrees`, `disagrees` or
    `cannot tell`; `sentence` has the reason. `delays_s` has the delay (`Fit.delay_s`) of channels
    with another window than declared. `ignored` is whether the meter's channel of the whole machine
    does not follow the load at all.
    """

    number: int
    source: str
    component: str
    fit: Fit
    delays_s: Mapping[str, float]
    verdict: str
    sentence: str
    ignored: bool


class _NotSeenError(Exception):
    """The readings show no watermark; the message is a clause with the reason.

    With `ignores` they show nothing of the load.
    """

    def __init__(self, reason: str, *, ignores: bool = False) -> None:
        super().__init__(reason)
        self.ignores = ignores


def watermarks(suite: Suite, clock: TargetClock) -> list[WatermarkTrust]:
    """Check each watermark in each meter's readings; empty if the plan has no watermark."""
    if suite.plan.watermark is None:
        return []
    lines = suite.watermarks or (WatermarkLine("", error="the target left none"),)
    placed = [_placed(line, clock) for line in lines]
    marks = [mark for mark in placed if isinstance(mark, Watermark)]
    trusts = []
    for meter in suite.meters:
        channels, limit_ms = _readings(meter, marks)
        for number, (line, mark) in enumerate(zip(lines, placed, strict=True), start=1):
            fits, component = {"": Fit(str(mark))}, ""
            if isinstance(mark, Watermark):
                fits = {name: fit(read, mark) for name, read in channels.items()} or {
                    "": Fit(f"no watermark seen: {meter.name} has no readings of that time")
                }
                # A drive's channel hardly shows the processor's load.
                component = max(fits, key=lambda name: (not fits[name].problem, fits[name].quality))
            bound_ms = max(
                ((clock.bound_ns(line.boot_id, t) or 0) / 1e6 for t, _ in line.edges), default=0.0
            )
            best = fits[component]
            late_s = {n: f.delay_s for n, f in fits.items() if f.delay_s is not None}
            verdict = agreement(best, -bound_ms, limit_ms + bound_ms)
            ignored = SYSTEM in fits and fits[SYSTEM].ignores
            ignored &= limit_ms <= IGNORED_CHIPS * line.chip_s * 1e3
            ignored &= (line.received or 0.0) >= LEAST_RECEIVED
            trust = WatermarkTrust(number, meter.name, component, best, late_s, *verdict, ignored)
            trusts.append(trust)
    return trusts


def disagreements(trusts: Iterable[WatermarkTrust], slow: Collection[str]) -> Iterator[str]:
    """Yield the sentences that flag a suite.

    `slow` are the meters whose joules depend on a window other than the declared one.
    """
    for trust in trusts:
        fitted = trust.fit
        if fitted.delay_s is not None and trust.source in slow:
            yield (
                f"Load watermark {trust.number}: readings of {trust.source} are means over "
                f"{fitted.window_s:.3g} s, and {fitted.declared_s:.3g} s by its description. "
                "The intervals of its joules are wider for it: correct its period, or set the "
                "meter to it."
            )
        elif trust.verdict == DISAGREES:
            yield (
                f"Load watermark {trust.number} and clock link disagree for {trust.source} "
                f"({trust.sentence}), so its joules may stand in the wrong phases."
            )


def delays_s(trusts: Iterable[WatermarkTrust], meter: str) -> dict[str, float]:
    """Return by channel of a meter the longest delay that any watermark shows, in s."""
    delays: dict[str, float] = {}
    for trust in trusts:
        for name, delay_s in trust.delays_s.items() if trust.source == meter else ():
            delays[name] = max(delays.get(name, 0.0), delay_s)
    return delays


def agreement(fitted: Fit, low_ms: float, high_ms: float) -> tuple[str, str]:
    """Return the verdict on whether the fitted interval meets the allowed one, and the reason.

    Allowed offsets are from minus the clock link's bound to the meter's greatest delay plus it.
    """
    if fitted.problem:
        return CANNOT_TELL, fitted.problem
    offset_ms, bound_ms = fitted.offset_ms, fitted.bound_ms
    sentence = (
        f"seen {offset_ms:.1f} ± {bound_ms:.1f} ms late; the clocks allow {low_ms:.1f} to "
        f"{high_ms:.1f} ms"
    )
    if offset_ms + bound_ms < low_ms or offset_ms - bound_ms > high_ms:
        return DISAGREES, sentence
    if 2 * bound_ms + high_ms - low_ms > USEFUL_MS:
        return CANNOT_TELL, f"{sentence}: too wide for a verdict"
    return AGREES, sentence


def _placed(line: WatermarkLine, clock: TargetClock) -> Watermark | str:
    """Return the watermark on the controller's clock, or why it cannot be placed."""
    if line.error is not None:
        return f"no watermark was played: {line.error}"
    if not line.edges or line.chip_s <= 0:
        return "a line of watermark.jsonl is not whole"
    times = [clock.to_controller_ns(line.boot_id, t) for t, _ in line.edges]
    placed = tuple(t for t in times if t is not None)
    if len(placed) < len(times):
        return "the clock link knows nothing of that boot of the target"
    high = tuple(level for _, level in line.edges)
    # If CPUs differ in power, the children's mean may differ from the middle of a rise.
    return Watermark(placed, high, line.chip_s, line.pad_s, line.spread_ns / 2e9)


def _readings(meter: Meter, marks: Collection[Watermark]) -> tuple[dict[str, Readings], float]:
    """Return readings around the watermarks by channel, and the meter's greatest delay in ms."""
    if not marks or not meter.samples.records:
        return {}, meter.arrival_delay_limit_s * 1e3
    timing = fit_times(meter.samples, meter.timing, meter.arrival_delay_limit_s)
    parts: list[tuple[np.ndarray, ...]] = []
    for part in windows(meter.samples, timing, meter.channels):
        near = np.zeros(len(part.end_ns), bool)
        for mark in marks:
            margin_ns = round((mark.pad_s + 2 * mark.reach_s) * 1e9)
            begin_ns, end_ns = mark.t_ns[0] - margin_ns, mark.t_ns[-1] + margin_ns
            near |= (part.end_ns >= begin_ns) & (part.end_ns <= end_ns)
        if near.any():
            width_s = (part.end_ns - part.start_ns)[near] / 1e9
            powers = [part.power_w[name][near] for name in meter.channels]
            parts.append((part.end_ns[near], width_s, *powers))
    if not parts:
        return {}, timing.bound_ns / 1e6
    ends, widths, *powers = (np.concatenate(column) for column in zip(*parts, strict=True))
    return {
        name: Readings(ends, widths, power_w)
        for name, power_w in zip(meter.channels, powers, strict=True)
    }, timing.bound_ns / 1e6


def fit(readings: Readings, mark: Watermark) -> Fit:
    """Find a watermark in a channel's readings, within `reach_s` of its place by the clocks."""
    quality = 0.0
    try:
        offset_s, _ = _search(_part(readings, mark, 0.0), mark)
        # The load before and after the rests is unknown: search only where the pattern is.
        part = _part(readings, mark, offset_s)
        offset_s, quality = _search(part, mark)
        if quality < MIN_QUALITY:
            raise _NotSeenError(
                f"another offset fits about as well (main lobe / side lobe {quality:.1f}, at least "
                f"{MIN_QUALITY:g} is needed)"
            )
        return _refined(part, mark, offset_s, quality)
    except _NotSeenError as error:
        problem = f"no watermark seen: {error}"
        return Fit(problem, quality=quality, ignores=error.ignores)


@dataclass(frozen=True, eq=False)
class _Part:
    """The readings around one watermark; times in s from its first edge."""

    end_s: Floats
    changes: Floats  # of the power beyond base and drift, scaled to length 1
    basis: Floats  # of base and drift
    declared_s: float
    edges_s: Floats
    busy_s: Floats  # seconds of load up to each edge

    def pattern(self, offset_s: float, window_s: float) -> Floats:
        """Return the windows' mean load without base and drift, scaled to length 1.

        The offset is that of a window's middle, as its end is as uncertain as its length.
        """
        end_s = self.end_s - offset_s + (window_s - self.declared_s) / 2
        until, since = (np.interp(t, self.edges_s, self.busy_s) for t in (end_s, end_s - window_s))
        return _scaled((until - since) / window_s, self.basis)


def _scaled(values: Floats, basis: Floats) -> Floats:
    """Return `values` without base and drift as a vector of length 1; zeros if constant."""
    residual = values - basis @ (basis.T @ values)
    length = float(np.linalg.norm(residual))
    scaled: Floats = residual / length if length > 1e-9 * np.linalg.norm(values) else 0 * residual
    return scaled


def _part(readings: Readings, mark: Watermark, offset_s: float) -> _Part:
    """Return the readings of a watermark that is `offset_s` late. Raises _NotSeenError."""
    begin_ns = mark.t_ns[0] + round((offset_s - mark.pad_s) * 1e9)
    end_ns = mark.t_ns[-1] + round((offset_s + mark.pad_s) * 1e9)
    within = (readings.end_ns - readings.width_s * 1e9 >= begin_ns) & (readings.end_ns < end_ns)
    within &= np.isfinite(readings.power_w) & (readings.width_s > 0)
    end_s = (readings.end_ns[within] - mark.t_ns[0]) / 1e9
    width_s, power_w = readings.width_s[within], readings.power_w[within]
    if len(end_s) < MIN_READINGS:
        raise _NotSeenError(f"there are {len(end_s)} readings of the time it was played")
    share = float(width_s.sum()) / ((end_ns - begin_ns) / 1e9)
    if share < MIN_SHARE:
        raise _NotSeenError(f"readings cover {share:.0%} of the time it was played")
    declared_s = float(np.median(width_s))
    if (count := len(end_s) // MAX_READINGS + 1) > 1:  # gaps are never bridged
        rows = len(end_s) // count
        ends, powers = (a[: rows * count].reshape(rows, count) for a in (end_s, power_w))
        gapless = np.abs(ends[:, -1] - ends[:, 0] - (count - 1) * declared_s) < 0.5 * declared_s
        end_s, power_w = ends[gapless, -1], powers[gapless].mean(axis=1)
        declared_s *= count
    basis: Floats = np.linalg.qr(np.column_stack([np.ones(len(end_s)), end_s]))[0]
    changes = _scaled(power_w, basis)
    if not changes.any():
        raise _NotSeenError("the readings never change", ignores=True)
    edges_s = (np.array(mark.t_ns, np.int64) - mark.t_ns[0]) / 1e9
    busy_s = np.cumsum(np.append(0.0, np.diff(edges_s) * mark.high[:-1]))
    return _Part(end_s, changes, basis, declared_s, edges_s, busy_s)


def _search(part: _Part, mark: Watermark) -> tuple[float, float]:
    """Return the offset in s at which the load correlates best, and the peak's quality.

    Raises _NotSeenError.
    """
    step_s = mark.chip_s / GRID_PARTS
    grid = np.arange(-mark.reach_s, mark.reach_s + step_s, step_s)
    match = np.array([part.pattern(s, part.declared_s) @ part.changes for s in grid.tolist()])
    peak = int(np.argmax(np.abs(match)))
    explained = float(match[peak]) ** 2
    if explained * (len(part.end_s) - 4) < IGNORED_SIGMAS**2 * (1 - explained):
        raise _NotSeenError("the readings do not follow the load", ignores=True)
    if peak in (0, len(grid) - 1):
        reach = f"{mark.reach_s:g} s of where the clocks put it"
        raise _NotSeenError(f"nothing like it lies within {reach}")
    side_lobes = np.abs(match[np.abs(grid - grid[peak]) >= mark.chip_s + part.declared_s / 2])
    quality = float(abs(match[peak]) / side_lobes.max()) if side_lobes.any() else 0.0
    if match[peak] < 0 and quality >= 2:
        raise _NotSeenError("the power falls where the load rises", ignores=True)
    return float(grid[peak]), quality


def _refined(part: _Part, mark: Watermark, rough_s: float, quality: float) -> Fit:
    """Return offset and window where the correlation is greatest. Raises _NotSeenError."""
    from scipy.optimize import least_squares  # slow to import, and seldom needed

    def unexplained(x: Floats) -> Floats:
        pattern = part.pattern(*x)
        return part.changes - pattern * (pattern @ part.changes)

    window_s, room_s = part.declared_s, max(part.declared_s, mark.chip_s)
    low, high = [rough_s - room_s, 0.02 * window_s], [rough_s + room_s, 5 * room_s]
    solutions = [
        least_squares(
            unexplained, [rough_s, scale * window_s], bounds=(low, high), x_scale=window_s
        )
        for scale in (0.9, 1.6)
    ]
    best = min(solutions, key=lambda solution: float(solution.cost))
    residual = 2 * float(best.cost)  # 1 - the square of the correlation
    count, free = len(part.end_s), len(part.end_s) - 5
    if (1 - residual) * free < MIN_SWING_SIGMAS**2 * residual:
        raise _NotSeenError("the rise of the power under load is not clear of the noise")
    jacobian = np.asarray(best.jac, np.float64)
    normal = jacobian.T @ jacobian
    if np.linalg.cond(normal) > 1e12:
        raise _NotSeenError("the readings cannot separate the offset from the window's length")
    scatter = np.diag(np.linalg.inv(normal)) * residual * count / free
    shift_s, window_bound_s = np.sqrt(scatter).tolist()
    offset_s, window_s = best.x.tolist()
    # The place of a window of another length than declared within its reading is unknown.
    bound_s = shift_s + abs(window_s - part.declared_s) / 2
    return Fit(
        offset_ms=offset_s * 1e3,
        bound_ms=(bound_s + mark.edge_bound_s) * 1e3,
        window_s=window_s,
        declared_s=part.declared_s,
        window_bound_s=window_bound_s,
        quality=quality,
    )
