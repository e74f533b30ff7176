"""The load watermarks of a suite held against its clock link: two ways to the same offset."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.energy.watermark_fit import Fit, Readings, Watermark, fit, reach_s
from analysis.energy.windows import fit as fit_times
from analysis.energy.windows import windows
from analysis.suite.clocks import TargetClock
from analysis.suite.records import Meter, Suite
from contract.documents import WatermarkLine

AGREES, DISAGREES, CANNOT_TELL = "agrees", "disagrees", "cannot tell"
# Bounds that are wider than this, all together, do not test a clock.
USEFUL_MS = 250.0


@dataclass(frozen=True)
class WatermarkTrust:
    """What one session's watermarks show of one meter's times.

    `fit` is that of the channel that shows the load best. `verdict` is one of `agrees`,
    `disagrees`, `cannot tell`; `sentence` has the reason. `delays_s` is by channel
    the delay of its readings besides the declared window, where they show another window.
    """

    session: int
    source: str
    component: str
    fit: Fit
    delays_s: Mapping[str, float]
    verdict: str
    sentence: str


@dataclass(frozen=True)
class _Session:
    """Watermarks of one session that can be placed, or the problem why they cannot."""

    marks: tuple[Watermark, ...]
    link_bound_ms: tuple[float, ...]
    problem: str = ""


def watermarks(suite: Suite, clock: TargetClock) -> list[WatermarkTrust]:
    """One entry for each session and meter; empty where the plan wants no watermark."""
    if suite.plan.watermark is None:
        return []
    sessions = [_session(lines, clock) for lines in _sessions(suite.watermarks)]
    if not sessions:
        sessions = [_Session((), (), "the target left no watermark")]
    trusts = []
    for meter in suite.meters:
        placed = [mark for session in sessions for mark in session.marks]
        channels, limit_ms = _readings(meter, placed)
        for number, session in enumerate(sessions, start=1):
            placed_channels = {} if session.problem else channels
            fits = {name: fit(read, session.marks) for name, read in placed_channels.items()}
            component, best = _best(meter, fits, session)
            allowed = tuple((-ms, limit_ms + ms) for ms in session.link_bound_ms)
            verdict, sentence = agreement(best, allowed)
            late_s = {n: f.delay_s for n, f in fits.items() if f.delay_s is not None}
            trusts.append(
                WatermarkTrust(number, meter.name, component, best, late_s, verdict, sentence)
            )
    return trusts


def disagreements(trusts: Iterable[WatermarkTrust], slow: Collection[str]) -> Iterator[str]:
    """Yield the sentences that flag a suite.

    `slow` are the meters with joules that another window than the declared one bears on.
    """
    for trust in trusts:
        fitted = trust.fit
        if fitted.delay_s is not None and trust.source in slow:
            yield (
                f"Session {trust.session}: readings of {trust.source} are means over "
                f"{fitted.window_s:.3g} s by the load watermark, and {fitted.window_told_s:.3g} s "
                "by its description. The intervals of its joules are wider for it: correct its "
                "period, or set the meter to it."
            )
        elif trust.verdict == DISAGREES:
            yield (
                f"Session {trust.session}: load watermark and clock link disagree for "
                f"{trust.source} ({trust.sentence}), so its joules may stand in the wrong phases."
            )


def delays_s(trusts: Iterable[WatermarkTrust], meter: str) -> dict[str, float]:
    """Return by channel of a meter the longest delay that any session shows, in s."""
    delays: dict[str, float] = {}
    for trust in trusts:
        for name, delay_s in trust.delays_s.items() if trust.source == meter else ():
            delays[name] = max(delays.get(name, 0.0), delay_s)
    return delays


def agreement(fitted: Fit, allowed_ms: Sequence[tuple[float, float]]) -> tuple[str, str]:
    """Return whether each watermark's fitted interval meets the allowed one, and the reason.

    `allowed_ms` are the offsets that the other way allows: from minus the clock link's bound to the
    meter's greatest delay plus that bound.
    """
    if fitted.problem:
        return CANNOT_TELL, fitted.problem
    places = ("at the start", "at the end") if len(fitted.offset_ms) == 2 else ("once",)
    offsets = " and ".join(
        f"{offset:.1f} ± {bound:.1f} ms late {place}"
        for offset, bound, place in zip(fitted.offset_ms, fitted.bound_ms, places, strict=True)
    )
    low, high = min(a for a, _ in allowed_ms), max(b for _, b in allowed_ms)
    sentence = f"seen {offsets}; the clocks allow {low:.1f} to {high:.1f} ms"
    pairs = list(zip(fitted.offset_ms, fitted.bound_ms, allowed_ms, strict=True))
    if any(offset + bound < a or offset - bound > b for offset, bound, (a, b) in pairs):
        return DISAGREES, sentence
    if any(2 * bound + b - a > USEFUL_MS for _, bound, (a, b) in pairs):
        return CANNOT_TELL, f"{sentence}: too wide for a verdict"
    return AGREES, sentence


def _sessions(lines: Sequence[WatermarkLine]) -> Iterator[list[WatermarkLine]]:
    """Group lines by session: a start, and the end that follows it in the same boot."""
    held: list[WatermarkLine] = []
    for line in lines:
        joins = held and line.when == "end" and line.boot_id == held[0].boot_id
        if held and not joins:
            yield held
            held = []
        held.append(line)
        if line.when == "end":
            yield held
            held = []
    if held:
        yield held


def _session(lines: Sequence[WatermarkLine], clock: TargetClock) -> _Session:
    """Place the session's watermarks on the controller's clock."""
    marks, bounds = [], []
    for line in lines:
        if line.error is not None:
            return _Session((), (), f"it was not played: {line.error}")
        if not line.edges or line.chip_s <= 0:
            return _Session((), (), "a line of watermark.jsonl is not whole")
        times = [clock.to_controller_ns(line.boot_id, t) for t, _ in line.edges]
        ends = line.edges[0][0], line.edges[-1][0]
        bound_ns = max(clock.bound_ns(line.boot_id, t) or 0 for t in ends)
        known = tuple(t for t in times if t is not None)
        if len(known) < len(times):
            return _Session((), (), "the clock link knows nothing of that boot of the target")
        high = tuple(level for _, level in line.edges)
        # Where CPUs take different powers, the children's mean may lie beside the middle of a rise.
        marks.append(Watermark(known, high, line.chip_s, line.pad_s, line.spread_ns / 2e9))
        bounds.append(bound_ns / 1e6)
    return _Session(tuple(marks), tuple(bounds))


def _readings(meter: Meter, marks: Sequence[Watermark]) -> tuple[dict[str, Readings], float]:
    """Return readings around the watermarks by channel, and the meter's greatest delay in ms."""
    if not marks or not meter.samples.records:
        return {}, meter.arrival_delay_limit_s * 1e3
    timing = fit_times(meter.samples, meter.timing, meter.arrival_delay_limit_s)
    around_ns = [
        (mark.t_ns[0] - _margin_ns(mark), mark.t_ns[-1] + _margin_ns(mark)) for mark in marks
    ]
    kept: list[tuple[np.ndarray, ...]] = []
    for part in windows(meter.samples, timing, meter.channels):
        near = np.zeros(len(part.end_ns), bool)
        for begin_ns, end_ns in around_ns:
            near |= (part.end_ns >= begin_ns) & (part.end_ns <= end_ns)
        if near.any():
            width_s = (part.end_ns - part.start_ns)[near] / 1e9
            powers = [part.power_w[name][near] for name in meter.channels]
            kept.append((part.end_ns[near], width_s, *powers))
    if not kept:
        return {}, timing.bound_ns / 1e6
    ends, widths, *powers = (np.concatenate(column) for column in zip(*kept, strict=True))
    return {
        name: Readings(ends, widths, power_w)
        for name, power_w in zip(meter.channels, powers, strict=True)
    }, timing.bound_ns / 1e6


def _margin_ns(mark: Watermark) -> int:
    return round((mark.pad_s + 2 * reach_s(mark)) * 1e9)


def _best(meter: Meter, fits: Mapping[str, Fit], session: _Session) -> tuple[str, Fit]:
    """Return the channel whose watermark is the clearest.

    A drive's hardly shows the processor's load.
    """
    if session.problem:
        return "", Fit(session.problem)
    if not fits:
        return "", Fit(f"no watermark seen: {meter.name} has no readings of that time")
    name = max(fits, key=lambda name: (not fits[name].problem, fits[name].quality or 0.0))
    return name, fits[name]
