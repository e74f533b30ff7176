"""Joules of a meter's channels between edges, from its curves, with their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice

import numpy as np

from analysis.energy.curve import Curve, Edge
from analysis.energy.integrate import integrate
from analysis.energy.plausibility import (
    NEGATIVE_FLAG,
    STUCK_FLAG,
    Constant,
    Odd,
    Power,
    Stuck,
    is_stepped,
)
from analysis.energy.response import HELD_FLAG, SLOW_FLAG, Updates
from analysis.energy.uncertainty import EXAMINED, Resolution, TypeB, reading_variance_j2
from analysis.energy.windows import (
    DUPLICATE_FLAG,
    Spans,
    Timing,
    Windows,
    fit,
    meets,
    overlap_ns,
    windows,
)
from analysis.suite.clocks import Floats
from analysis.suite.records import SYSTEM
from analysis.suite.samples import Samples
from instrumentation.accuracy import ErrorTerm
from instrumentation.sources.counter import LONE_FLAG, SHORTER

COUNTER_FLAG, GAP_FLAG = "counter-contradicted", "gap-contradicted"
ONLY_RISES_FLAG = "only-rises"
# A stretch shorter than a window has a figure if the machine rests on both sides of it, windows can
# be displaced by at most a quarter of it, and the half width of the 95 % interval is at most this
# share of the joules.
MOST_SHARE = 0.5
# Share of a stretch in which stuck readings leave it a figure, with a flag.
MOST_STUCK = 0.5
LEAST_MEASURED = 0.5  # share of the time, below which the rest is not filled in
# Share of the joules from which on the readings' 95 % uncertainty has a flag if the interval is
# only that of the scatter of runs.
UNSURE_SHARE, UNSURE_FLAG = 0.04, "coarse-readings"


@dataclass(frozen=True)
class Energy:
    """Energy of one or more stretches in one component; `energy_j` is None if unknown.

    `statistical_j` is a standard uncertainty, `coverage` the share of the time that windows cover.
    """

    energy_j: float | None
    statistical_j: float | None
    coverage: float
    flags: tuple[str, ...]

    @property
    def unsure(self) -> bool:
        """Whether the readings' uncertainty is more than `UNSURE_SHARE` of the joules."""
        if self.energy_j is None or self.statistical_j is None:
            return False
        return 1.96 * self.statistical_j > UNSURE_SHARE * abs(self.energy_j)


@dataclass(frozen=True, eq=False)
class Metered:
    """Curves and faults of a meter's channels at all edges, from one pass over its records.

    `only_w` has the power of channels with the same value in all records; `constant_ns` the
    stretches in which a channel had one value; the value of `counters` only rose. `terms` are the
    meter's stated errors.
    """

    edges: tuple[Edge, ...]
    timing: Timing
    resolutions: dict[str, Resolution]
    updates: dict[str, Updates]
    curves: dict[str, Curve]
    stuck_ns: Spans
    odd: dict[str, Odd]
    only_w: dict[str, float]
    constant_ns: dict[str, tuple[tuple[int, int], ...]]
    counters: set[str]
    terms: Sequence[ErrorTerm]

    @classmethod
    def from_samples(
        cls,
        samples: Samples,
        kind: str,
        limit_s: float,
        channels: Sequence[str],
        edges: set[Edge],
        *,
        late_s: Mapping[str, float] | None = None,
        terms: Sequence[ErrorTerm] = (),
        begun_ns: Collection[int] = (),
    ) -> Metered:
        """Read a meter's records once.

        `kind` and `limit_s` are its timing and its limit of delay, `late_s` the mean delays of
        channels that are not as declared, `begun_ns` times of the edges at which work began after a
        rest. Of several edges at one instant, one with a rest counts.
        """
        chosen: dict[int, Edge] = {}
        for edge in sorted(edges, key=lambda e: (e.t_ns, e.rest is None)):
            chosen.setdefault(edge.t_ns, edge)
        ordered = tuple(chosen.values())
        timing = fit(samples, kind, limit_s)
        stuck = Stuck(np.array(sorted(begun_ns), np.int64))
        half_steps_w = [term.limit for term in terms if term.name == "resolution"]
        stated_w = min((2 * limit for limit in half_steps_w if limit), default=math.inf)
        constant = {name: Constant(name, stated_w) for name in channels}
        odd = {name: Odd(name) for name in channels}
        checks: list[Stuck | Constant | Odd] = [stuck, *constant.values(), *odd.values()]

        def checked() -> Iterator[Windows]:
            for part in windows(samples, timing, channels):
                for check in checks:
                    check.take(part)
                yield part

        passing = checked()
        first = list(islice(passing, 1))
        resolutions = {name: Resolution() for name in channels}
        updates = {name: Updates() for name in channels}
        late = dict(late_s or {})
        for first_windows in first:
            width_s = float(np.median(first_windows.end_ns - first_windows.start_ns)) * 1e-9
            for name in channels:
                resolution = Resolution.seen_in(first_windows, name)
                held = Updates.seen_in(first_windows.power_w[name][:EXAMINED], resolution.quantum_w)
                # No finer than the change after which a held reading follows, in either direction.
                quantum_w = max(resolution.quantum_w, 2 * held.step_w)
                updates[name], resolutions[name] = held, replace(resolution, quantum_w=quantum_w)
                if held.readings > 1:
                    late[name] = max(late.get(name, 0.0), (held.readings - 1) * width_s)
        curves = integrate(chain(first, passing), ordered, resolutions, timing.bound_ns, late)
        for channel in odd.values():
            channel.finish()
        resolutions = {
            name: resolutions[name].with_rests(curve.rest_squares_w2, curve.rest_freedom)
            for name, curve in curves.items()
        }
        only_w = {n: w for n, channel in constant.items() if (w := channel.only_w) is not None}
        constant_ns = {name: channel.stretches() for name, channel in constant.items()}
        counters = {name for name, channel in constant.items() if channel.is_counter}
        spans = stuck.stretches(), odd
        return cls(
            *(
                ordered,
                timing,
                resolutions,
                updates,
                curves,
                *spans,
                only_w,
                constant_ns,
                counters,
                terms,
            )
        )

    def energy(
        self, channel: str, stretches: Sequence[tuple[int, int]], *, refuse_short: bool = False
    ) -> Energy:
        """Return the energy of stretches together, each from one edge's time in ns to another's.

        With `refuse_short`, a stretch shorter than a window has a figure only if rests give it.
        """
        curve = self.curves[channel]
        pairs = [(self._places[start], self._places[end]) for start, end in stretches]
        between = np.concatenate([np.arange(i, j) for i, j in pairs])
        duration_s = sum(end - start for start, end in stretches) * 1e-9
        coverage = min(1.0, float(curve.covered_s[between].sum()) / duration_s)
        if channel in self.counters:
            return Energy(None, None, coverage, (ONLY_RISES_FLAG,))
        filled = curve.by_plateau[between].any()
        mostly_filled = filled and coverage < LEAST_MEASURED and not curve.gaps_checked
        if curve.void[between].any() or mostly_filled:
            return Energy(None, None, coverage, ("no-samples",))
        if curve.gap_open[between].any():
            return Energy(None, None, coverage, (GAP_FLAG,))
        flagged = {"gap-filled": filled, "gap-by-counter": curve.by_counter[between].any()}
        if not any(flagged.values()) and coverage > 1 - 1e-6:  # whole but for nanoseconds
            coverage = 1.0
        flagged |= dict.fromkeys(self.timing.flags, True)
        flagged[COUNTER_FLAG] = curve.counter_contradicted
        energy_j = math.fsum(curve.energy_j[between])
        statistical_j = self._statistical_j(curve, curve.split_j, channel, pairs)
        if curve.slow:
            declared_j = self._statistical_j(curve, curve.declared_split_j, channel, pairs)
            limits = TypeB.from_terms(self.terms, energy_j, duration_s)
            # The delay is flagged if it adds more variance than the rest of the budget.
            budget_j2 = declared_j**2 + (limits.standard_j**2 if limits else 0.0)
            flagged[SLOW_FLAG] = statistical_j**2 - declared_j**2 > budget_j2
        flagged[SHORTER] = duration_s < curve.window_s * (1 - 1e-6)
        flagged[HELD_FLAG] = self.updates[channel].held
        flagged[STUCK_FLAG] = any(meets(self.stuck_ns, *s) for s in stretches)
        flagged[DUPLICATE_FLAG] = any(meets(self.timing.extra_ns, *s) for s in stretches)
        odd = self.odd[channel].flags(energy_j, stretches) if channel == SYSTEM else set()
        if channel == SYSTEM and energy_j < 0:
            odd.add(NEGATIVE_FLAG)
        # A rest determines the energy at its edge: a single reading there can change the figure.
        with_rests = []
        for start, end in ([self.edges[self._places[t]] for t in s] for s in stretches):
            before_ns = start.rest_ns if start.rest == "before" else 0
            after_ns = end.rest_ns if end.rest == "after" else 0
            with_rests.append((start.t_ns - before_ns, end.t_ns + after_ns))
        if LONE_FLAG in self.odd[channel].flags(energy_j, with_rests):
            odd.add(LONE_FLAG)
        flagged |= dict.fromkeys(sorted(odd), True)
        flags = tuple(flag for flag, applies in flagged.items() if applies)
        stuck_ns = sum(overlap_ns(self.stuck_ns, *stretch) for stretch in stretches)
        if stuck_ns * 1e-9 > MOST_STUCK * duration_s or (NEGATIVE_FLAG in flags and energy_j < 0):
            return Energy(None, None, coverage, flags)
        rests = {self.edges[place].rest for place in pairs[0]}
        placed = rests == {"before", "after"} and self.timing.bound_ns < duration_s * 1e9 / 4
        bounded = placed and 1.96 * statistical_j <= MOST_SHARE * abs(energy_j)
        if refuse_short and flagged[SHORTER] and not bounded:
            return Energy(None, None, coverage, flags)
        return Energy(energy_j, statistical_j, coverage, flags)

    def is_stepped(self, channel: str, phases: Iterable[tuple[Hashable, int, int]]) -> bool:
        """Return whether all powers of a channel, in phases and in rests, step at one time.

        `phases` have a kind, which is the same for repetitions, and their ends in ns.
        """
        curve = self.curves[channel]
        powers = []
        for kind, start_ns, end_ns in phases:
            first, last = self._places[start_ns], self._places[end_ns]
            power_w = float(curve.energy_j[first:last].sum()) * 1e9 / (end_ns - start_ns)
            rests_w = float(curve.rest_w[first]), float(curve.rest_w[last])
            powers.append(Power(start_ns, (kind, "before"), rests_w[0]))
            powers.append(Power(start_ns, kind, power_w))
            powers.append(Power(end_ns, (kind, "after"), rests_w[1]))
        return is_stepped(powers)

    @cached_property
    def _places(self) -> dict[int, int]:
        return {edge.t_ns: place for place, edge in enumerate(self.edges)}

    def _statistical_j(
        self, curve: Curve, split_j: Floats, channel: str, pairs: Sequence[tuple[int, int]]
    ) -> float:
        """Return the root sum of squares of cuts, displaced windows, filled gaps and readings."""
        weights: dict[int, float] = {}
        for start, end in pairs:
            weights[start] = weights.get(start, 0.0) - 1
            weights[end] = weights.get(end, 0.0) + 1
        cuts: dict[int, float] = {}
        for edge, weight in weights.items():
            window = int(curve.window[edge])
            cuts[window] = cuts.get(window, 0.0) + weight * float(split_j[edge])
        slope_w = sum(weight * float(curve.slope_w[edge]) for edge, weight in weights.items())
        clock_ns = max(self.edges[edge].bound_ns for edge in weights)
        # Polled records have independent delays, which share their mean.
        meter_ns = self.timing.bound_ns / (2 if self.timing.kind == "poll" else 1)
        displaced_s = math.hypot(clock_ns, meter_ns) * 1e-9 / math.sqrt(3)
        variance_j2 = sum(cut * cut for cut in cuts.values()) + (slope_w * displaced_s) ** 2
        variance_j2 += sum(self._readings_j2(curve, channel, *pair) for pair in pairs)
        return math.sqrt(variance_j2)

    def _readings_j2(self, curve: Curve, channel: str, start: int, end: int) -> float:
        """Return the variance from filled gaps and from the readings of one stretch's windows."""
        inside = slice(start, end)
        filled = float((curve.filled_j[inside] ** 2).sum())
        count = float(curve.count[inside].sum())
        covered_s = float(curve.covered_s[inside].sum())
        if covered_s <= 0:
            return filled
        # Even if all windows are cut, there is at least one reading.
        windows_read = max(count, 1.0)
        mean = float(curve.sum_w[inside].sum()) / windows_read
        variance = max(0.0, float(curve.squares_w2[inside].sum()) / windows_read - mean * mean)
        width_s = covered_s / windows_read
        readings = reading_variance_j2(windows_read, width_s, variance, self.resolutions[channel])
        if self.timing.kind == "poll":
            # Ends have independent delays, which matter if the power differs from window to window.
            late_s = self.timing.bound_ns * 1e-9 / math.sqrt(12)
            readings += late_s**2 * float(curve.steps_w2[inside].sum())
        return filled + readings
